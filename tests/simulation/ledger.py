"""What clients were promised and what they saw: the evidence against the brokers."""

from dataclasses import dataclass, field

from logyard.broker.model import TopicPartition


class BrokenPromise(AssertionError):
    """Something that must never happen has happened."""


@dataclass
class Ledger:
    """`acknowledged` by offset, only what acks=all promised where the topic keeps promises; `seen` by consumers.

    `ordered` holds, per idempotent producer and partition, the values in the order of sending.
    """

    keeps: bool = True  # else nothing is promised, and what changed is counted only
    changed: int = 0
    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    seen: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    ordered: dict[tuple[str, TopicPartition], list[bytes]] = field(default_factory=dict)
    writes: int = 0

    def promise(self, tp: TopicPartition, offset: int, values: list[bytes]) -> None:
        self.writes += 1
        held = self.acknowledged.setdefault(tp, {})
        for number, value in enumerate(values, start=offset):
            before = held.setdefault(number, value)
            if before != value and self.keeps:
                raise BrokenPromise(f"{tp}: offset {number} was acknowledged for {before!r} and for {value!r}")

    def saw(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        before = self.seen.setdefault(tp, {}).setdefault(offset, value)
        if not self.keeps:
            self.changed += before != value
            return
        if before != value:
            raise BrokenPromise(f"{tp}: a consumer saw {before!r} at {offset}, and later {value!r}")
        promised = self.acknowledged.get(tp, {}).get(offset, value)
        if promised != value:
            raise BrokenPromise(f"{tp}: {promised!r} was acknowledged at {offset}, a consumer saw {value!r}")

    def settle(self, tp: TopicPartition, end: int) -> None:
        """Check that all acknowledged records were seen, up to the partition's end."""
        seen = self.seen.get(tp, {})
        for offset, value in self.acknowledged.get(tp, {}).items():
            if offset >= end or offset not in seen:
                raise BrokenPromise(f"{tp}: {value!r}, acknowledged at {offset}, is lost (the log ends at {end})")

    def check_order(self) -> None:
        """Check that an idempotent producer's records are there once each, in the order in which they were sent."""
        for (producer, tp), sent in self.ordered.items():
            place = {value: number for number, value in enumerate(sent)}
            last, twice = -1, set()
            for offset, value in sorted(self.seen.get(tp, {}).items()):
                number = place.get(value)
                if number is None:
                    continue
                if value in twice:
                    raise BrokenPromise(f"{tp}: {value!r} of {producer} is there twice, again at {offset}")
                twice.add(value)
                if number < last:
                    raise BrokenPromise(f"{tp}: {value!r} of {producer} is out of order at {offset}")
                last = number
