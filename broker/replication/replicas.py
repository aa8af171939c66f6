"""The façade: everything that handlers and coordinators ask of this broker's replicas.

Every entry point is synchronous. What has to wait gives a future instead of its answer; nothing here awaits.
The parts: produce.py, fetch/, offset_lookups.py, controller_requests.py, over the state in hosted.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logyard.broker.clock import Clock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import Client, NewPending, Pending, SubmitBlocking, SubmitForClient, TimerHandle, Timers
from logyard.broker.log.producers import Origin
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import UpdateMetadata
from logyard.broker.model import TopicPartition
from logyard.broker.replication.controller_requests import Fetchers, LeadershipListener, Transitions
from logyard.broker.replication.events import (
    DeleteRecordsResult,
    EpochAnswer,
    EpochQuery,
    FetchedPartition,
    FetchParams,
    Isolation,
    LeaderAndIsr,
    OffsetAnswer,
    OffsetQuery,
    PartitionErrors,
    PartitionFetch,
    ProduceResult,
    StopReplica,
)
from logyard.broker.replication.fetch.fetch import Fetching, FetchSource, Sessionless
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.offset_lookups import Lookups
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import IsrChanges, Logs
from logyard.broker.replication.produce import NOT_OPENED, AfterOpening, Entries, Opened, Producing
from logyard.broker.replication.settings import Counters, ReplicaSettings


class Replicas:
    """See the head of this file. Times in milliseconds, sizes in bytes, offsets of -1 unknown.

    `fetchers` is built after this (it reads through `partition`); see `use_fetchers`.
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
        run_opening: SubmitForClient | None = None,
    ) -> None:
        self.settings = settings
        self.hosted = Hosted(
            settings, logs, metadata, topic_config, isr_changes, clock, timers, new_pending, run_blocking, run_opening
        )
        self._produce = Producing(self.hosted)
        self._fetch = Fetching(self.hosted)
        self._lookups = Lookups(self.hosted)
        self._fetchers = _Switch()
        self._transitions = Transitions(self.hosted, self._fetchers, broker_epoch, self._fetch.hurry)
        self._timer: TimerHandle | None = None

    def use_fetchers(self, fetchers: Fetchers) -> None:
        """Say who fetches for the followed partitions."""
        self._fetchers.target = fetchers

    def add_listener(self, listener: LeadershipListener) -> None:
        """Tell `listener` when this broker starts or stops leading a partition, or loses it."""
        self._transitions.listeners.append(listener)

    # The controller's orders

    def become_leader_or_follower(self, request: LeaderAndIsr) -> PartitionErrors:
        """Carry out LeaderAndIsr (facts §9). The whole-request error is 77 or 11 for a request of the past."""
        return self._transitions.become_leader_or_follower(request)

    def refusal(self, request: LeaderAndIsr) -> ErrorCode:
        """Return NONE, or 77 or 11 for a request of the past; the epoch of one of the present counts from now on."""
        return self._transitions.refusal(request)

    def stop_replicas(self, request: StopReplica) -> PartitionErrors:
        """Carry out StopReplica: stop fetching, and where asked delete the replica (facts §9)."""
        return self._transitions.stop_replicas(request)

    def update_metadata(self, update: UpdateMetadata) -> ErrorCode:
        """Apply UpdateMetadata to the cache; 77 or 11 (and nothing applied) for a request of the past."""
        return self._transitions.update_metadata(update)

    def log_dir_failed(self, partitions: Sequence[TopicPartition]) -> None:
        """These replicas' directory is gone: they answer KAFKA_STORAGE_ERROR from now on."""
        self._transitions.take_offline(partitions)

    def leave_isr(self, tp: TopicPartition) -> None:
        """Take no more records of a followed partition, so that its leader puts it out of the ISR."""
        self._transitions.leave_isr(tp)

    def follow_again(self, tp: TopicPartition) -> None:
        """Take `leave_isr` back."""
        self._transitions.follow_again(tp)

    def set_aside(self, tp: TopicPartition) -> str:
        """Keep a follower's log elsewhere and fetch it whole; returns where (see `Transitions.set_aside`)."""
        return self._transitions.set_aside(tp)

    def topic_configs_changed(self, topics: Iterable[str] | None) -> None:
        """These topics' settings (None: any topic's) may have changed: hand them to the logs.

        A smaller min.insync.replicas may let the high watermark go on at once.
        """
        wanted = None if topics is None else frozenset(topics)
        for tp, partition in list(self.hosted.partitions.items()):
            if partition.log is None or (wanted is not None and tp.topic not in wanted):
                continue
            partition.log.config = self.hosted.topic_config(tp.topic)
            if partition.advance_high_watermark():
                self.hosted.watermark_moved(partition)

    # Data

    def opening(
        self, entries: Entries, opened: Opened, *, always: bool = False, client: Client | None = None
    ) -> Pending[AfterOpening] | None:
        """Have a thread do what has to look into records and takes long; None: nothing does, or it was done.

        With `always` whatever it takes: each of many may be little. It ends where `client` is gone.

        What comes of it is to be appended instead (`opened` too), and what was refused is answered. It no longer needs
        the receive buffer. Whoever calls sees to it that later requests of the same client do not overtake this one,
        and asks again before appending: the topics' settings may have changed meanwhile.
        """
        return self._produce.opening(entries, opened, client, always=always)

    def look_into(self, work: Callable[[], None], client: Client | None = None) -> Pending[None]:
        """Do something with records in a thread: what takes as long as those who sent them like."""
        return self.hosted.in_record_thread(work, lambda: None, client)

    def beside(self, work: Callable[[], None]) -> Pending[None]:
        """Do something in a thread that never waits for others to look into records: a few batches may hold all of
        those threads for minutes, and the controller's orders must not stand behind them."""
        return self.hosted.in_thread(work, lambda: None)

    def append(
        self,
        entries: Entries,
        *,
        acks: int,
        timeout_ms: int,
        origin: Origin,
        internal_topics: bool = False,
        opened: Opened = NOT_OPENED,
    ) -> list[ProduceResult] | Pending[list[ProduceResult]]:
        """Append each partition's batches; one result per entry, in order.

        A future only for acks=-1 whose records are not yet everywhere. Errors per entry: 21 acks not in -1, 0, 1;
        6 not leader; 19 too few in sync before, 20 after; 7 not acknowledged in time (the records stay); 17 a topic
        that only the broker writes, unless `internal_topics`; 56 storage; and what the log refuses.
        """
        return self._produce.append(entries, acks, timeout_ms, origin, internal_topics, opened)

    def fetch(
        self, params: FetchParams, partitions: Sequence[PartitionFetch]
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """Read, for a request without a session; one answer per partition, in order.

        A future where it has to wait for data or for a disk. Errors per partition: 1, 3, 6, 56, 74, 75, 103.
        """
        return self._fetch.fetch(params, Sessionless(partitions)) if partitions else []

    def fetch_from(
        self, params: FetchParams, source: FetchSource
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """The same for a session's request: answers only for the partitions that `source` names."""
        return self._fetch.fetch(params, source)

    def list_offsets(
        self, queries: Sequence[OffsetQuery], isolation: Isolation, *, only_leader: bool = True
    ) -> list[OffsetAnswer] | Pending[list[OffsetAnswer]]:
        """Offsets by time. `isolation` LOG_END for replicas. Errors: 3, 6, 56, 74, 75, 78 (handlers of v<5 say 5).

        A future where segments have to be searched.
        """
        return self._lookups.list_offsets(queries, isolation, only_leader)

    def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery], *, only_leader: bool = True) -> list[EpochAnswer]:
        """Where epochs end (facts §11). Errors: 3, 6, 56, 74, 75."""
        return self._lookups.end_offsets(queries, only_leader)

    def delete_records(
        self, offsets: Sequence[tuple[TopicPartition, int]], *, timeout_ms: int, internal_topics: bool = False
    ) -> list[DeleteRecordsResult] | Pending[list[DeleteRecordsResult]]:
        """Delete what lies before the offsets (-1: all that is committed); waits for every living replica.

        Errors: 1 beyond the high watermark, 3, 6, 7 (deleted here, not yet everywhere), 17, 44, 56.
        """
        return self._lookups.delete_records(offsets, timeout_ms, internal_topics)

    # State

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return this broker's replica, None where it has none (or its directory failed)."""
        return self.hosted.partitions.get(tp)

    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """Return all replicas of this broker: a live view."""
        return self.hosted.partitions

    def current_leader(self, tp: TopicPartition) -> tuple[int, int]:
        """Return (leader id, leader epoch) as far as this broker knows; (-1, -1) unknown."""
        return self.hosted.current_leader(tp)

    @property
    def controller_epoch(self) -> int:
        """The largest controller epoch that a request named; 0 before the first."""
        return self.hosted.controller_epoch

    @property
    def counters(self) -> Counters:
        return self.hosted.counters

    def gauges(self) -> dict[str, int]:
        """Return the figures that are counted when asked: Kafka's metric names in snake case."""
        led = list(self.hosted.led())
        return {
            "leader_count": len(led),
            "partition_count": len(self.hosted.partitions),
            "offline_replica_count": len(self.hosted.offline),
            "under_replicated_partitions": sum(p.is_under_replicated for p in led),
            "under_min_isr_partition_count": sum(p.is_under_min_isr for p in led),
            "at_min_isr_partition_count": sum(p.is_at_min_isr for p in led),
            "failed_partitions_count": self._fetchers.failed_count,
            "reassigning_partitions": sum(bool(p.adding or p.removing) for p in led),
            "delayed_produces": self.hosted.produces.waiting,
            "delayed_fetches": self.hosted.fetches.waiting,
            "delayed_deletions": self.hosted.deletions.waiting,
        }

    # Life

    def start(self) -> None:
        """Begin the periodic look for followers that have fallen behind (every replica.lag.time.max.ms / 2)."""
        interval = self.settings.lag_time_max_ms / 2000

        def check() -> None:
            self._timer = self.hosted.timers.call_later(interval, check)
            self.shrink_isrs()
            self.notice_retention()

        self._timer = self.hosted.timers.call_later(interval, check)

    def shrink_isrs(self) -> None:
        """Ask for those to be put out of the ISR who have fallen behind, in every led partition."""
        for partition in list(self.hosted.led()):
            partition.shrink_isr()

    def notice_retention(self) -> None:
        """Have sessions look again at logs that retention has shortened: nobody else tells them of it."""
        for partition in list(self.hosted.partitions.values()):
            log = partition.log
            if log is not None and partition.observers and log.log_start_offset != partition.noted_start:
                partition.noted_start = log.log_start_offset
                self.hosted.end_moved(partition)

    def close(self) -> None:
        """Stop the periodic work and answer everyone who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.hosted.close()


class _Switch:
    """Fetchers that are plugged in later; before that nothing is followed."""

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
