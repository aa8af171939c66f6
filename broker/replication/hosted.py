"""All replicas of this broker, and the requests that wait for them: the state shared by the parts of `Replicas`."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from logyard.broker import tasks
from logyard.broker.clock import Clock, passed_ms
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import Client, NewPending, Pending, SubmitBlocking, SubmitForClient, TimerHandle, Timers
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.replication.partition import Partition, PartitionPorts
from logyard.broker.replication.ports import IsrChanges, Logs, T
from logyard.broker.replication.purgatory import Purgatory
from logyard.broker.replication.settings import Counters, ReplicaSettings
from logyard.broker.replication.throttle import ByteRate


class Hosted:
    """The partitions by name, those whose directory failed, and the three purgatories keyed by partition.

    `fetches` is keyed by partition or by fetch session (an `Observer`).
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        logs: Logs,
        metadata: MetadataCache,
        topic_config: Callable[[str], TopicConfig],
        isr_changes: IsrChanges,
        clock: Clock,
        timers: Timers,
        new_pending: NewPending,
        run_blocking: SubmitBlocking,
        run_record_work: SubmitForClient | None = None,
    ) -> None:
        self.settings = settings
        self.logs = logs
        self.metadata = metadata
        self.topic_config = topic_config
        self.clock = clock
        self.timers = timers
        self.new_pending = new_pending
        self.run_blocking = run_blocking
        self.run_record_work = run_record_work  # runs work on records; None: in the threads that wait for the disk
        # Called with the bytes that cold reads are about to load, and with their negative when they are loaded.
        self.loading: Callable[[int], None] = lambda size: None
        self.counters = Counters()
        self.throttled_out = ByteRate(settings.throttle_windows, settings.throttle_window_ms)
        self.controller_epoch = 0
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, None] = {}
        self.produces = Purgatory(timers)
        self.fetches = Purgatory(timers)
        self.deletions = Purgatory(timers)
        self.ports = PartitionPorts(
            settings=settings,
            counters=self.counters,
            now_ms=self.now_ms,
            is_alive=metadata.is_alive,
            isr_changes=isr_changes,
            moved=self.watermark_moved,
            check_later=self._check_later,
        )
        self._looks: dict[TopicPartition, tuple[int, TimerHandle]] = {}
        self._passes: dict[Iterator[Partition], TimerHandle] = {}  # that look for brokers that are gone
        self._alive = frozenset(metadata.brokers)
        metadata.subscribe(lambda changed, deleted: self._metadata_changed())

    def now_ms(self) -> int:
        """Monotonic milliseconds: for lags, not for records."""
        return passed_ms(self.clock)

    def in_thread(
        self, work: Callable[[], None], outcome: Callable[[], T], run: SubmitBlocking | None = None
    ) -> Pending[T]:
        """Run `work` in a thread; then answer the result of `outcome()`, called on the loop, or the error of `work`.

        `run` chooses the threads; by default those that wait for the disk.
        """
        pending: Pending[T] = self.new_pending()

        def done(finished: Pending[None]) -> None:
            if pending.done():
                return
            try:
                finished.result()
                pending.set_result(outcome())
            except Exception as error:
                pending.set_exception(error)

        (run or self.run_blocking)(work).add_done_callback(done)
        return pending

    def in_record_thread(
        self, work: Callable[[], None], outcome: Callable[[], T], client: Client | None = None
    ) -> Pending[T]:
        """As `in_thread`, in the threads for work on records; it stops when `client` is gone."""
        run = self.run_record_work
        return self.in_thread(work, outcome, None if run is None else lambda each: run(each, client))

    def find(self, tp: TopicPartition) -> Partition:
        """Return the partition, or raise the ApiError that a client gets.

        KAFKA_STORAGE_ERROR: its directory is offline. NOT_LEADER_OR_FOLLOWER: its replicas are on other brokers, or the
        controller has not announced it here yet. UNKNOWN_TOPIC_OR_PARTITION: it is not in the metadata.
        """
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition
        if tp in self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        if self.metadata.partition(tp) is not None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def current_leader(self, tp: TopicPartition) -> tuple[int, int]:
        """Return (leader id, leader epoch) for clients that asked the wrong broker; (-1, -1) if unknown."""
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition.leader, partition.leader_epoch
        known = self.metadata.partition(tp)
        return (known.leader, known.leader_epoch) if known is not None else (-1, -1)

    def get_or_create_log(self, partition: Partition, topic_id: TopicId | None, is_new: bool) -> PartitionLog:
        """Return the partition's log, loaded or created; the first time its high watermark comes from the checkpoint.

        Later the checkpoint that was read at the start is out of date: the log may have been cut since. Raises
        StorageError, and ApiError(INCONSISTENT_TOPIC_ID) if the log is of an earlier topic of that name.
        """
        tp = partition.tp
        log = self.logs.get_or_create(tp, topic_id, self.topic_config(tp.topic), is_new)
        if topic_id is not None and topic_id != ZERO_TOPIC_ID and log.topic_id != topic_id:
            log.assign_topic_id(topic_id)
        if partition.log is not None:
            return log
        saved = min(max(self.logs.high_watermark_at_start(tp), log.log_start_offset), log.log_end_offset)
        if saved > log.high_watermark:
            log.set_high_watermark(saved)
        return log

    # Waking who waits

    def end_moved(self, partition: Partition) -> None:
        """Records were appended: wake fetches of followers and, if the high watermark moved, of consumers."""
        for observer in partition.observers:
            observer.touch(partition.tp)
            self.fetches.check(observer)
        self.fetches.check(partition.tp)

    def watermark_moved(self, partition: Partition) -> None:
        """The high or low watermark may have moved: wake producers, consumers and deletions."""
        tp = partition.tp
        self.produces.check(tp)
        self.end_moved(partition)
        self.deletions.check(tp)

    def transitioned(self, partition: Partition) -> None:
        """Leadership changed or the replica is gone: wake all requests that wait for it."""
        self.watermark_moved(partition)

    def _check_later(self, partition: Partition, due_ms: int) -> None:
        """Check the high watermark at that time, when a follower that holds it back will count as lagging."""
        tp = partition.tp
        planned = self._looks.get(tp)
        if planned is not None:
            if planned[0] <= due_ms:
                return
            planned[1].cancel()

        def look() -> None:
            del self._looks[tp]
            current = self.partitions.get(tp)
            if current is not None and current.advance_high_watermark():
                self.watermark_moved(current)

        self._looks[tp] = due_ms, self.timers.call_later(max(0, due_ms - self.now_ms()) / 1000, look)

    def _metadata_changed(self) -> None:
        """Stop waiting for dead brokers to join an ISR or to delete records."""
        alive = self.metadata.brokers.keys()
        gone = self._alive - alive
        self._alive = frozenset(alive)
        if not gone:
            return
        self._look_for(gone, iter(list(self.partitions.values())))

    def _look_for(self, gone: frozenset[int], left: Iterator[Partition]) -> None:
        """Look at a portion of the partitions in each turn of the loop: there may be very many."""
        self._passes.pop(left, None)
        portion = list(islice(left, AT_ONCE))
        if len(portion) == AT_ONCE:
            self._passes[left] = self.timers.call_later(0, lambda: self._look_for(gone, left))
        for partition in portion:
            if not partition.is_leader:
                continue
            for broker_id in gone & partition.remotes.keys():
                try:
                    if partition.broker_gone(broker_id):
                        self.watermark_moved(partition)
                    self.deletions.check(partition.tp)
                except Exception as error:
                    tasks.failed("look at a replica", error)

    def close(self) -> None:
        """Cancel the checks, and answer the waiting requests."""
        for _, timer in self._looks.values():
            timer.cancel()
        self._looks.clear()
        for timer in self._passes.values():
            timer.cancel()
        self._passes.clear()
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Answer the waiting requests, and all later ones at once."""
        for purgatory in (self.produces, self.fetches, self.deletions):
            purgatory.close()

    def led(self) -> Iterable[Partition]:
        """The partitions that this broker leads."""
        return (p for p in self.partitions.values() if p.is_leader)
