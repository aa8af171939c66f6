"""Reading a group's records up to the end that the partitions had at the start; librdkafka's side of consuming.py.

The consumer joins no group: it reads from the committed offsets of all partitions, and commits when it is told to.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from logyard.operators.hooks.records import RecordsFailed, asked, library, partitions_of, refusal

_POLL_S = 1.0
_REQUEST_S = 30.0

Range = tuple[int, int]
Partition = tuple[str, int]


class Reading:
    """One reading of topics. `ranges`: (topic, partition) → offsets from, to (without), as they were at the start."""

    def __init__(self, consumer: Any, topics: Sequence[str], say: Callable[[str], None]) -> None:
        """Look up the ranges. Raises ApiError (UNKNOWN_TOPIC_OR_PARTITION, GROUP_AUTHORIZATION_FAILED …)."""
        self._consumer, self._say = consumer, say
        self.ranges: dict[Partition, Range] = {}
        self.positions: dict[Partition, int] = {}
        self._ended: set[Partition] = set()
        wanted = partitions_of(consumer, topics, _REQUEST_S)
        for tp in asked("committed offsets", consumer.committed, wanted, timeout=_REQUEST_S):
            if tp.error is not None:
                raise refusal(f"committed offset of {tp.topic}-{tp.partition}", tp.error)
            self._add(tp)

    def _add(self, tp: Any) -> None:
        name = f"{tp.topic}-{tp.partition}"
        found = asked(name, self._consumer.get_watermark_offsets, tp, timeout=_REQUEST_S)
        if found is None:
            raise RecordsFailed(f"{name}: no broker tells its offsets")
        low, high = found
        start = tp.offset if tp.offset >= 0 else low
        if start < low:
            self._say(f"{name}: the records from {start} to {low} were deleted before they were read")
            start = low
        if start > high:
            self._say(f"{name}: offset {start} is committed, and only those below {high} can be read now")
        if start < high:
            self.ranges[tp.topic, tp.partition] = (start, high)
            self.positions[tp.topic, tp.partition] = start

    def batches(self, size_max: int, records_max: int | None, patience_s: float) -> Iterator[list[Any]]:
        """Messages in batches; `positions` are behind the last batch that was handed out.

        Raises RecordsFailed if nothing comes for `patience_s` while records are still to come.
        """
        confluent, left = library(), records_max
        self._consumer.assign([confluent.TopicPartition(t, p, start) for (t, p), (start, _) in self.ranges.items()])
        heard = time.monotonic()
        while self._open() and (left is None or left > 0):
            size = size_max if left is None else min(size_max, left)
            found = asked("reading", self._consumer.consume, size, timeout=_POLL_S)
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard >= patience_s:
                raise RecordsFailed(f"nothing came for {patience_s:.0f} s; still to read: {', '.join(self._open())}")
            batch = [message for message in found if self._is_wanted(message)]
            self._pause_ended()
            if batch:
                left = None if left is None else left - len(batch)
                yield batch

    def _is_wanted(self, message: Any) -> bool:
        """Whether a message is a record of the range; moves the position behind it, or to the partition's end."""
        at = (message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() != library().KafkaError._PARTITION_EOF:
            advice = ""
            if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                advice = "; that offset does not exist any more: set the group's offsets by ResetOffsetsOperator"
            raise refusal(f"{at[0]}-{at[1]}{advice}", error)
        _, end = self.ranges[at]
        if error is not None:
            # The end of what a reader sees: behind it there are at most markers and records of aborted transactions.
            self.positions[at] = max(self.positions[at], min(message.offset(), end))
            if message.offset() >= end:
                self._ended.add(at)
            return False
        if message.offset() >= end:
            self.positions[at] = end
            self._ended.add(at)
            return False
        self.positions[at] = message.offset() + 1
        if self.positions[at] >= end:
            self._ended.add(at)
        return True

    def _pause_ended(self) -> None:
        confluent = library()
        ended = [confluent.TopicPartition(topic, partition) for topic, partition in sorted(self._ended)]
        if ended:
            self._consumer.pause(ended)

    def _open(self) -> list[str]:
        return [f"{topic}-{partition}" for topic, partition in self.ranges if (topic, partition) not in self._ended]

    def commit(self) -> None:
        """Commit `positions`, where something was read. Raises ApiError, RecordsFailed."""
        confluent = library()
        moved = {tp: offset for tp, offset in self.positions.items() if offset > self.ranges[tp][0]}
        wanted = [confluent.TopicPartition(topic, p, offset) for (topic, p), offset in sorted(moved.items())]
        if not wanted:
            return
        for tp in asked("commit", self._consumer.commit, offsets=wanted, asynchronous=False):
            if tp.error is not None:
                raise refusal(f"commit of {tp.topic}-{tp.partition}", tp.error)


def first_offsets(consumer: Any, topics: Sequence[str], *, has_group: bool) -> dict[str, int]:
    """Where a group goes on, by "topic-partition": its commit, else the first record; without a group the end.

    Raises ApiError, RecordsFailed.
    """
    wanted = partitions_of(consumer, topics, _REQUEST_S)
    if has_group:
        wanted = asked("committed offsets", consumer.committed, wanted, timeout=_REQUEST_S)
    found: dict[str, int] = {}
    for tp in wanted:
        name = f"{tp.topic}-{tp.partition}"
        low, high = asked(name, consumer.get_watermark_offsets, tp, timeout=_REQUEST_S)
        found[name] = max(tp.offset, low) if has_group else high
    return found
