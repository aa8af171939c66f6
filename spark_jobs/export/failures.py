"""Failures of single partitions: the partition is named in the summary and given up, the others continue.

A task returns such a failure as a value; any other failure (of the destination, of the program) ends the whole job.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import TopicPartition
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.segments.splits import Range, Split

Answer = TypeVar("Answer")


class PartitionsFailed(LogyardError):
    """Some partitions cannot be exported; `reasons` says why, by partition."""

    def __init__(self, reasons: Mapping[TopicPartition, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = dict(reasons)


@dataclass(frozen=True, slots=True)
class PartitionFailure:
    """What a task returns instead of its result if its partition failed."""

    tp: TopicPartition
    reason: str


def guarded(function: Callable[[Split], Answer]) -> Callable[[Split], Answer | PartitionFailure]:
    """Return a task's function that returns failures of its split's log (damage, an unreadable file) as values."""

    def run(split: Split) -> Answer | PartitionFailure:
        try:
            return function(split)
        except (CorruptData, ExportRefused, OSError) as error:
            if not _is_of_log(error, split):
                raise
            tp = TopicPartition(split.segment.topic, split.segment.partition)
            reason = str(error)
            return PartitionFailure(tp, reason if str(tp) in reason else f"{split.segment.where}: {reason}")

    return run


def _is_of_log(error: Exception, split: Split) -> bool:
    """Whether the error concerns the split's log. An OSError does only if it names a file of the log, and not under a
    lease, whose end deletes the files."""
    if not isinstance(error, OSError):
        return True
    place, directory = str(error.filename or ""), split.segment.directory
    return split.segment.lease is None and (place == directory or place.startswith(os.path.join(directory, "")))


def answers(given: Iterable[Answer | PartitionFailure]) -> list[Answer]:
    """Return the results of tasks; raises PartitionsFailed if one failed."""
    good: list[Answer] = []
    reasons: dict[TopicPartition, str] = {}
    for one in given:
        if isinstance(one, PartitionFailure):
            reasons.setdefault(one.tp, one.reason)
        else:
            good.append(one)
    if reasons:
        raise PartitionsFailed(reasons)
    return good


def splits_or_failure(plan: Callable[[Range], Iterator[Split]]) -> Callable[[Range], Iterator[Split]]:
    """Return `plan` changed so that it raises PartitionsFailed if a range's log cannot be read."""

    def planned(span: Range) -> Iterator[Split]:
        try:
            yield from plan(span)
        except (CorruptData, OSError) as error:
            if isinstance(error, OSError) and span.replica.lease is not None:
                raise  # its lease may have ended
            raise PartitionsFailed({span.replica.tp: str(error)}) from error

    return planned


class FailedPartitions:
    """The partitions and topics that a run gave up, and why."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._first: LogyardError | None = None
        self.reasons: dict[TopicPartition, str] = {}
        # Topics of which no partition is known, or that were not done when the job ended.
        self._topics: dict[str, str] = {}

    @property
    def topics(self) -> dict[str, str]:
        """The topics that were given up, whole or in part, and why."""
        found = dict(self._topics)
        for tp, reason in sorted(self.reasons.items()):
            found[tp.topic] = f"{found[tp.topic]}; {reason}" if tp.topic in found else reason
        return found

    def give_up_topic(self, topic: str, error: LogyardError) -> None:
        """Give up a topic whose partitions are not known."""
        self._first = self._first or error
        self._topics[topic] = str(error)
        self._tell(f"{topic} is given up: {error}")

    def leave(self, topics: Iterable[str], reason: str) -> None:
        """Note why the job ended before these topics were done."""
        for topic in topics:
            self._topics.setdefault(topic, reason)

    def give_up(self, tp: TopicPartition, error: Exception | str) -> None:
        """Give a partition up."""
        reason = str(error)
        self._first = self._first or (error if isinstance(error, LogyardError) else PartitionsFailed({tp: reason}))
        self.reasons[tp] = reason if str(tp) in reason or tp.topic in reason else f"{tp}: {reason}"
        self._tell(f"{tp} is given up: {reason}")

    def attempt(self, tp: TopicPartition, function: Callable[[], Answer]) -> Answer | None:
        """Call a function that concerns one partition only; returns its result, or None and gives the partition up."""
        try:
            return function()
        except (LogyardError, OSError) as error:
            self.give_up(tp, error)
            return None

    def raise_if_none_left(self, tps: Iterable[Any]) -> None:
        """Raise the first failure again if all of these partitions were given up."""
        if self._first is not None and not [tp for tp in tps if tp not in self.reasons]:
            raise self._first
