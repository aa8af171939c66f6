"""Reading ranges of offsets, such as a group's records up to the end that the partitions had at the start; librdkafka's
side of consuming.py and copying.py.

The consumer joins no group: it reads what it is told to, and commits when it is told to.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from logyard.admin.cluster.snapshot import TopicView
from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.settings import BadSettings
from logyard.operators.hooks.records import RecordsFailed, asked, chosen, library, partitions_of, refusal

_POLL_S = 0.2
REQUEST_S = 30.0
OUT_OF_RANGE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")

Range = tuple[int, int]
Partition = tuple[str, int]


class Reading:
    """One reading of `ranges`: (topic, partition) → offsets from, to (without); none is empty."""

    def __init__(self, consumer: Any, ranges: Mapping[Partition, Range]) -> None:
        self._consumer = consumer
        self.ranges = dict(ranges)
        self.positions: dict[Partition, int] = {tp: start for tp, (start, _) in ranges.items()}
        self._committed: dict[Partition, int] = {}
        self._ended: set[Partition] = set()

    def batches(self, size_max: int, records_max: int | None, patience_s: float) -> Iterator[list[Any]]:
        """Messages in batches; `positions` are behind the last batch that was handed out.

        Raises RecordsFailed if nothing comes for `patience_s` while records are still to come.
        """
        confluent, left = library(), records_max
        assigned = [confluent.TopicPartition(t, p, start) for (t, p), (start, _) in self.ranges.items()]
        self._consumer.assign(assigned)
        self._consumer.resume(assigned)  # what an earlier reading has paused
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
                heard = time.monotonic()  # what was done with the batch may take as long as it likes

    def _is_wanted(self, message: Any) -> bool:
        """Whether a message is a record of the range; moves the position behind it, or to the partition's end."""
        at = (message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() != library().KafkaError._PARTITION_EOF:
            advice = ""
            if error.name() in OUT_OF_RANGE:
                advice = "; that offset does not exist any more, because records were deleted meanwhile"
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

    def leave(self, partition: Partition) -> None:
        """Read no more of it; what was fetched may still come."""
        self._ended.add(partition)

    def uncommitted(self) -> dict[Partition, int]:
        """The `positions` that moved since the last commit."""
        return {tp: at for tp, at in self.positions.items() if at > self._committed.get(tp, self.ranges[tp][0])}

    def commit(self) -> None:
        """Commit `positions`, where something was read. Raises ApiError, RecordsFailed."""
        confluent, moved = library(), self.uncommitted()
        wanted = [confluent.TopicPartition(topic, p, offset) for (topic, p), offset in sorted(moved.items())]
        if not wanted:
            return
        for tp in asked("commit", self._consumer.commit, offsets=wanted, asynchronous=False):
            if tp.error is not None:
                raise refusal(f"commit of {tp.topic}-{tp.partition}", tp.error)
        self._committed |= moved


def with_told(heard: Sequence[Any], told: Mapping[str, TopicView]) -> list[Any]:
    """The partitions that one broker has told (`partitions_of`), and those that the controller knows beside them."""
    there = {(tp.topic, tp.partition) for tp in heard}
    known = {(topic, part.partition) for topic, view in told.items() for part in view.partitions}
    return [*heard, *(library().TopicPartition(topic, number) for topic, number in sorted(known - there))]


def since_commits(
    consumer: Any, wanted: Sequence[Any], say: Callable[[str], None], end_of: Callable[[Any], int]
) -> Reading:
    """What a group has not read yet, as it is now. Raises ApiError (GROUP_AUTHORIZATION_FAILED …), RecordsFailed, also
    where the group has read more than a log has.

    :param wanted: the partitions, from `partitions_of`.
    :param end_of: the offset behind the last record of a partition, committed or not.
    """
    ranges: dict[Partition, Range] = {}
    for tp in asked("committed offsets", consumer.committed, wanted, timeout=REQUEST_S):
        name = f"{tp.topic}-{tp.partition}"
        if tp.error is not None:
            raise refusal(f"committed offset of {name}", tp.error)
        low, high = log_of(consumer, tp)
        start = tp.offset if tp.offset >= 0 else low
        if start < low:
            say(f"{name}: the records from {start} to {low} were deleted before they were read")
            start = low
        if start > high:
            _check_read(name, start, end_of(tp))
            say(f"{name}: offset {start} is committed, and only those below {high} can be read now")
        if start < high:
            ranges[tp.topic, tp.partition] = (start, high)
    return Reading(consumer, ranges)


def _check_read(name: str, start: int, end: int) -> None:
    """Raise RecordsFailed where a group has read more than there is: what is written now would never be read."""
    if start > end:
        raise RecordsFailed(
            f"{name}: offset {start} is committed, and the log ends at {end}: it lost records, or the topic was made "
            "anew. Set the group's offsets by ResetOffsetsOperator; right after a change of the leader, try again"
        )


def log_of(consumer: Any, tp: Any, patience_s: float = REQUEST_S) -> Range:
    """The first offset of a partition, and the one behind the last that can be read. Raises ApiError, RecordsFailed."""
    name = f"{tp.topic}-{tp.partition}"
    found: Range | None = asked(name, consumer.get_watermark_offsets, tp, timeout=patience_s)
    if found is None:
        raise RecordsFailed(f"{name}: no broker tells its offsets")
    return found


def first_offsets(
    consumer: Any, topics: Sequence[str], *, has_group: bool, told: Mapping[str, TopicView] | None = None
) -> dict[str, int]:
    """Where a group goes on, by "topic-partition": its commit, else the first record; without a group the end.

    :param told: the topics as the controller knows them.
    Raises BadSettings (no topic is named), ApiError (such as UNKNOWN_TOPIC_OR_PARTITION: no topic matches),
    RecordsFailed.
    """
    if not topics:
        raise BadSettings("topics: name at least one")
    wanted = with_told(partitions_of(consumer, topics, REQUEST_S), told or {})
    if not wanted:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {', '.join(topics)}")
    if has_group:
        wanted = asked("committed offsets", consumer.committed, wanted, timeout=REQUEST_S)
    found: dict[str, int] = {}
    for tp in wanted:
        name = f"{tp.topic}-{tp.partition}"
        if tp.error is not None:
            raise refusal(f"committed offset of {name}", tp.error)
        low, high = log_of(consumer, tp)
        found[name] = max(tp.offset, low) if has_group else high
    return found


def first_of_new(
    consumer: Any, known: Mapping[str, int], patience_s: float, patterns: Sequence[str] = ()
) -> dict[str, int]:
    """The first offsets of the partitions that topics have beyond their last one in `known` ("topic-partition" → any
    offset), and of all partitions of other topics that the expressions (`^…`) mean; those whose leader does not answer
    are left for the next time. Raises ApiError, RecordsFailed, BadSettings (no expression)."""
    last: dict[str, int] = {}
    for name in known:
        topic, _, partition = name.rpartition("-")
        last[topic] = max(last.get(topic, -1), int(partition))
    is_meant = chosen(patterns)
    # All topics by one question, rather than each by its own.
    one = list(last) if len(last) == 1 and not patterns else []
    views = asked("metadata", consumer.list_topics, *one, timeout=patience_s).topics
    found: dict[str, int] = {}
    for topic in sorted(topic for topic in views if topic in last or is_meant(topic)):
        for partition in sorted(p for p in views[topic].partitions if p > last.get(topic, -1)):
            try:
                low, _ = log_of(consumer, library().TopicPartition(topic, partition), patience_s)
            except LogyardError:
                break  # those after it too: what is read is known by the last one
            found[f"{topic}-{partition}"] = low
    return found
