"""All replicas of this broker; requests go to its parts.

`producing`, `fetching`, `lookups` and `requests` (the controller's) share the state in hosted.py. Every entry point is
synchronous: what has to wait returns a Pending instead of its answer; nothing here awaits. (Only the gauges do, which
are counted in turns of the loop. The periodic check and changed settings take turns as well, by timers.)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from logyard.broker import tasks
from logyard.broker.clock import Clock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.event_loop import Client, NewPending, Pending, SubmitBlocking, SubmitForClient, TimerHandle, Timers
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import TopicPartition
from logyard.broker.portions import AT_ONCE, portions
from logyard.broker.replication.config_news import ConfigNews
from logyard.broker.replication.controller_requests import ControllerRequests, Fetchers
from logyard.broker.replication.fetch.fetch import Fetching
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.offset_lookups import Lookups
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import IsrChanges, Logs
from logyard.broker.replication.produce import Producing
from logyard.broker.replication.settings import Counters, ReplicaSettings

# How long after its time-out a coordinator may take to end a transaction, as in Kafka.
LATE_BUFFER_MS = 5 * 60_000


class Replicas:
    """The replicas and their parts. Times in milliseconds, sizes in bytes; an offset of -1 is unknown.

    `fetchers` is built after this, because it calls `partition`; see `use_fetchers`.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        *,
        logs: Logs,
        metadata: MetadataCache,
        topic_config: Callable[[str], TopicConfig],
        isr_changes: IsrChanges,
        clock: Clock,
        timers: Timers,
        new_pending: NewPending,
        run_blocking: SubmitBlocking,
        broker_epoch: Callable[[], int],
        run_record_work: SubmitForClient | None = None,
    ) -> None:
        self.settings = settings
        self.hosted = Hosted(
            settings,
            logs,
            metadata,
            topic_config,
            isr_changes,
            clock,
            timers,
            new_pending,
            run_blocking,
            run_record_work,
        )
        self.producing = Producing(self.hosted)
        self.fetching = Fetching(self.hosted)
        self.lookups = Lookups(self.hosted)
        self._fetchers = _Switch()
        self.requests = ControllerRequests(self.hosted, self._fetchers, broker_epoch, self.fetching.hurry)
        self._config_news = ConfigNews(self.hosted)
        self._timer: TimerHandle | None = None
        self._next_look: TimerHandle | None = None

    def use_fetchers(self, fetchers: Fetchers) -> None:
        """Set the fetchers of followed partitions."""
        self._fetchers.target = fetchers

    def topic_configs_changed(self, topics: Iterable[str] | None) -> None:
        """These topics' settings (None: any topic's) may have changed: pass them to the logs, in turns if many."""
        self._config_news.changed(topics)

    # Data

    def in_record_thread(self, work: Callable[[], None], client: Client | None = None) -> Pending[None]:
        """Do work on records in a thread; clients decide how long it takes."""
        return self.hosted.in_record_thread(work, lambda: None, client)

    def in_disk_thread(self, work: Callable[[], None]) -> Pending[None]:
        """Do something in the threads that wait for the disk.

        Work on a few batches may keep the threads for records busy for minutes; the controller's requests must not wait
        for that.
        """
        return self.hosted.in_thread(work, lambda: None)

    # State

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return this broker's replica; None if it has none (or its directory failed)."""
        return self.hosted.partitions.get(tp)

    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """Return all replicas of this broker: a live view."""
        return self.hosted.partitions

    def current_leader(self, tp: TopicPartition) -> tuple[int, int]:
        """Return (leader id, leader epoch) as far as this broker knows; (-1, -1) if unknown."""
        return self.hosted.current_leader(tp)

    @property
    def controller_epoch(self) -> int:
        """The largest controller epoch that a request named; 0 before the first."""
        return self.hosted.controller_epoch

    @property
    def counters(self) -> Counters:
        return self.hosted.counters

    async def gauges(self) -> dict[str, int]:
        """Return the gauges, counted when they are read, in turns of the loop: Kafka's metric names in snake case."""
        counted = Counter[str]()
        latest_ms = self.hosted.clock.now_ms() - self.settings.transaction_timeout_max_ms - LATE_BUFFER_MS
        async for led in portions(list(self.hosted.led())):
            counted.update(_counted(led, latest_ms))
        return {
            "leader_count": counted["leaders"],
            "partition_count": len(self.hosted.partitions),
            "offline_replica_count": len(self.hosted.offline),
            "under_replicated_partitions": counted["under_replicated"],
            "under_min_isr_partition_count": counted["under_min_isr"],
            "at_min_isr_partition_count": counted["at_min_isr"],
            "partitions_with_late_transactions_count": counted["late_transactions"],
            "failed_partitions_count": self._fetchers.failed_count,
            "reassigning_partitions": counted["reassigning"],
            "delayed_produces": self.hosted.produces.waiting,
            "delayed_fetches": self.hosted.fetches.waiting,
            "delayed_deletions": self.hosted.deletions.waiting,
        }

    # Life

    def start(self) -> None:
        """Start the periodic check for lagging followers (every replica.lag.time.max.ms / 2)."""
        interval = self.settings.lag_time_max_ms / 2000

        def check() -> None:
            self._timer = self.hosted.timers.call_later(interval, check)
            self.look_at_all()

        self._timer = self.hosted.timers.call_later(interval, check)

    def look_at_all(self) -> None:
        """Look for lagging followers and for what retention has shortened, a portion in each turn of the loop.

        One that is still going on when the next one is due is finished instead of that.
        """
        if self._next_look is None:
            self._look_at_some(iter(list(self.hosted.partitions.values())))

    def _look_at_some(self, left: Iterator[Partition]) -> None:
        self._next_look = None
        portion = list(islice(left, AT_ONCE))
        if len(portion) == AT_ONCE:
            self._next_look = self.hosted.timers.call_later(0, lambda: self._look_at_some(left))
        for partition in portion:
            try:
                partition.shrink_isr()
                self._notice_retention(partition)
            except Exception as error:
                tasks.failed("look at a replica", error)

    def _notice_retention(self, partition: Partition) -> None:
        """Have fetch sessions read again a log that retention has shortened: nothing else notifies them."""
        log = partition.log
        if log is not None and partition.observers and log.log_start_offset != partition.noted_start:
            partition.noted_start = log.log_start_offset
            self.hosted.end_moved(partition)

    def close(self) -> None:
        """Stop the periodic work and answer the waiting requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        self._config_news.close()
        self.requests.missing_logs.close()
        self.hosted.close()


class _Switch:
    """Fetchers that are set later; before that nothing is followed."""

    def __init__(self) -> None:
        self.target: Fetchers | None = None

    def start(self, partitions: Any) -> None:
        if self.target is not None:
            self.target.start(partitions)

    def stop(self, partitions: Any) -> None:
        if self.target is not None:
            self.target.stop(partitions)

    def refresh_topic_ids(self, partitions: Any) -> None:
        if self.target is not None:
            self.target.refresh_topic_ids(partitions)

    @property
    def failed_count(self) -> int:
        return 0 if self.target is None else self.target.failed_count


def _counted(led: Sequence[Partition], latest_ms: int) -> Mapping[str, int]:
    """Count what the gauges tell of these partitions that the broker leads.

    A transaction that has been open since before `latest_ms` is open for longer than any may be: its marker seems lost.
    """
    return {
        "leaders": len(led),
        "under_replicated": sum(p.is_under_replicated for p in led),
        "under_min_isr": sum(p.is_under_min_isr for p in led),
        "at_min_isr": sum(p.is_at_min_isr for p in led),
        "late_transactions": sum(p.log is not None and p.log.producers.is_late(latest_ms) for p in led),
        "reassigning": sum(bool(p.adding or p.removing) for p in led),
    }
