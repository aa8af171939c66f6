"""How full brokers' disks get while replicas move. Pure.

A moving replica exists twice until its new copy is in sync (facts §36, guard rail 6), so added replicas need space in
addition to everything that is there now, whatever is removed later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.reassignment.plan import Move
from logyard.admin.settings import BadSettings
from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

# How full a plan may make a disk at the peak, by default, in percent.
LIMIT_PERCENT = 80
LIMIT = LIMIT_PERCENT / 100


class DiskTooFull(LogyardError):
    """A plan would fill a broker's disks above the limit; the text names the broker, the share, and what would help."""


def read_capacities(given: Any, brokers: Iterable[int]) -> dict[int, int]:
    """Capacities in bytes, by broker: one number for all of them, or broker → bytes (or pairs). Raises BadSettings.

    Empty if none is given. Name all brokers or none: a broker of unknown capacity counts as full.
    """
    known = sorted(brokers)
    if given in (None, "", "None", "null", {}):
        return {}
    try:
        if isinstance(given, (Mapping, tuple)):
            found = {int(broker): int(size) for broker, size in dict(given).items()}
        else:
            found = dict.fromkeys(known, int(given))
    except (TypeError, ValueError, OverflowError):
        raise BadSettings(f"disk_capacities {given!r}: a number of bytes, or broker → bytes is expected") from None
    missing = [broker for broker in known if broker not in found]
    if missing or min(found.values(), default=1) < 1:
        which = f"broker {missing[0]}'s is missing" if missing else "each has to be above 0"
        raise BadSettings(f"disk_capacities {given!r}: {which}")
    return found


def read_limit(percent: int) -> float:
    """The share of a disk that may be filled. Raises BadSettings."""
    if not 1 <= percent <= 100:
        raise BadSettings(f"disk_limit {percent}: 1 to 100 percent is expected")
    return percent / 100


@dataclass(frozen=True, slots=True)
class Disks:
    """`capacities`: bytes, by broker; `held`: bytes that each holds now, in all; `limit`: share of the disks that may
    be used."""

    capacities: Mapping[int, int] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)
    limit: float = LIMIT

    def allowed(self, broker: int) -> int:
        """Bytes that it may hold. The broker's capacity has to be known."""
        return int(self.capacities[broker] * self.limit)

    def refuse_overfull(self, moves: Iterable[Move]) -> None:
        """Raise DiskTooFull if the moves bring a broker above its limit while they run."""
        comes: dict[int, int] = {}
        for move in moves:
            for broker in move.adding:
                comes[broker] = comes.get(broker, 0) + move.size
        for broker, size in sorted(comes.items()):
            if broker not in self.capacities:
                continue
            peak = self.held.get(broker, 0) + size
            if size and peak > self.allowed(broker):
                raise DiskTooFull(
                    f"broker {broker} would hold {peak} of its {self.capacities[broker]} bytes "
                    f"({peak / self.capacities[broker]:.0%}) while replicas move, and {self.limit:.0%} are allowed: "
                    "move less at once, add a broker, or allow more"
                )


@dataclass(slots=True)
class Room:
    """Bytes that each broker can still take while a plan is being made; unlimited without capacities."""

    free: dict[int, int]
    at_first: Mapping[TopicPartition, tuple[int, ...]]

    @classmethod
    def of(cls, disks: Disks, at_first: Mapping[TopicPartition, tuple[int, ...]]) -> "Room":
        return cls({b: disks.allowed(b) - disks.held.get(b, 0) for b in disks.capacities}, at_first)

    def fits(self, tp: TopicPartition, broker: int, size: int) -> bool:
        """Whether there is space for a replica; one that the broker held at first needs none."""
        return broker not in self.free or size <= self.free[broker] or broker in self.at_first[tp]

    def put(self, tp: TopicPartition, broker: int, size: int) -> None:
        if broker in self.free and broker not in self.at_first[tp]:
            self.free[broker] -= size

    def take(self, tp: TopicPartition, broker: int, size: int) -> None:
        if broker in self.free and broker not in self.at_first[tp]:
            self.free[broker] += size
