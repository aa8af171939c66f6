"""Hands changed settings of topics to the logs of the replicas, a portion of them in each turn of the event loop.

Rule 1: the first portion is done at once; so where there are few replicas, everything is.
Rule 2: each log gets the settings that hold when its turn comes. What changes meanwhile is looked for once more, by one
        look for all that has changed until then: thousands of topics that change one by one do not have all replicas
        looked at thousands of times.
"""

from collections.abc import Iterable, Iterator

from logyard.broker import tasks
from logyard.broker.event_loop import TimerHandle
from logyard.broker.portions import AT_ONCE
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.partition import Partition

HANDED_OUT = 5
"""What a log that gets its settings costs, where a replica that is looked at costs 1; to build them takes 30 µs."""


class ConfigNews:
    """See the rules at the head of this file."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._topics: dict[str, None] = {}
        self._all = False
        self._next: TimerHandle | None = None

    def changed(self, topics: Iterable[str] | None) -> None:
        """These topics' settings (None: any topic's) may have changed."""
        if topics is None:
            self._all = True
        else:
            self._topics.update(dict.fromkeys(topics))
        if self._next is None:
            self._look()

    def _look(self) -> None:
        self._next = None
        wanted = None if self._all else self._topics
        self._topics, self._all = {}, False
        self._hand_out(iter(list(self._hosted.partitions.values())), wanted)

    def _hand_out(self, left: Iterator[Partition], wanted: dict[str, None] | None) -> None:
        self._next = None
        used = 0
        for partition in left:
            used += 1
            if wanted is None or partition.tp.topic in wanted:
                used += HANDED_OUT
                try:
                    self._configure(partition)
                except Exception as error:
                    # The other logs get theirs.
                    tasks.failed("settings of a log", error)
            if used >= AT_ONCE:
                self._next = self._hosted.timers.call_later(0, lambda: self._hand_out(left, wanted))
                return
        if self._topics or self._all:
            self._next = self._hosted.timers.call_later(0, self._look)

    def _configure(self, partition: Partition) -> None:
        if partition.log is None:
            return
        partition.log.config = self._hosted.topic_config(partition.tp.topic)
        # A smaller min.insync.replicas may advance the high watermark at once.
        if partition.advance_high_watermark():
            self._hosted.watermark_moved(partition)

    def close(self) -> None:
        """Hand out nothing more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
