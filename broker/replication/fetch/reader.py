"""Reading one partition for Fetch: the checks, the limits, and the slice of log that answers (facts §10, §22).

Nothing is loaded here: slices are loaded only when the whole fetch is answered.
"""

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import ZERO_TOPIC_ID
from logyard.broker.replication.events import (
    DEBUG_CONSUMER_ID,
    FetchedPartition,
    FetchParams,
    Isolation,
    PartitionFetch,
)
from logyard.broker.replication.fetch.preferred_replica import preferred_read_replica
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.isr import Heartbeat
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import Slice
from logyard.broker.replication.throttle import is_listed

_BEHIND = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Reading:
    """The result of reading the partitions once; `size` is in bytes, `urgent` means: answer at once."""

    __slots__ = ("moved", "results", "size", "slices", "urgent")

    def __init__(self) -> None:
        self.results: list[FetchedPartition] = []
        self.slices: list[tuple[FetchedPartition, Slice, Partition, int]] = []  # with the leader epoch of the reading
        self.size = 0
        self.urgent = False
        self.moved: list[Partition] = []


def view_end(params: FetchParams, log: PartitionLog) -> int:
    """Return where a reader's view of a log ends: for followers at its end, for consumers at the committed records."""
    if params.replica_id >= 0 or params.replica_id == DEBUG_CONSUMER_ID:
        return log.log_end_offset
    if params.isolation == Isolation.READ_COMMITTED:
        return min(log.last_stable_offset, log.high_watermark)
    return log.high_watermark


def refused(hosted: Hosted, ask: PartitionFetch, code: ErrorCode) -> FetchedPartition:
    """Return the answer for a partition that cannot be read; it names the leader to those who ask the wrong broker."""
    result = FetchedPartition(ask.tp, code, topic_id=ask.topic_id)
    if code in _BEHIND:
        result.leader = hosted.current_leader(ask.tp)
    return result


class Reader:
    """Reads the partitions of one fetch, which share its byte limit in the given order."""

    __slots__ = ("_beat", "_hosted", "_now_ms", "_params", "_record", "_remaining", "reading")

    def __init__(self, hosted: Hosted, params: FetchParams, beat: Heartbeat | None, *, record: bool) -> None:
        self._hosted = hosted
        self._params = params
        self._beat = beat
        self._record = record and params.replica_id >= 0
        self._remaining = params.max_bytes
        self._now_ms = hosted.now_ms()
        self.reading = Reading()

    def add(self, ask: PartitionFetch) -> None:
        """Read one partition; an error of any kind concerns only this partition."""
        reading = self.reading
        try:
            self._read(ask)
        except ApiError as error:
            self._hosted.counters.failed_fetches += 1
            reading.urgent = True
            reading.results.append(refused(self._hosted, ask, self._code(ask, error)))
            self._not_fetched(ask)
        except Exception as error:
            self._not_fetched(ask)
            reading.urgent = True
            reading.results.append(refused(self._hosted, ask, code_of(error, ask.tp)))

    def _not_fetched(self, ask: PartitionFetch) -> None:
        """A follower whose fetch failed is not known to be at the log's end: ignore its session's heartbeat."""
        partition = self._hosted.partitions.get(ask.tp) if self._record else None
        remote = partition.remotes.get(self._params.replica_id) if partition is not None else None
        if partition is not None and partition.log is not None and remote is not None:
            remote.detach(partition.log.log_end_offset)

    def _code(self, ask: PartitionFetch, error: ApiError) -> ErrorCode:
        """A reader that asks by topic id (v13+) gets an unknown id instead of an unknown name."""
        by_id = ask.topic_id != ZERO_TOPIC_ID
        if by_id and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            known = self._hosted.metadata.topic_name(ask.topic_id)
            return error.code if known == ask.tp.topic else ErrorCode.UNKNOWN_TOPIC_ID
        return error.code

    def _read(self, ask: PartitionFetch) -> None:
        # Hot path: what is usual is looked at here, and only what is not is asked of the partition, which refuses it.
        hosted, params, reading = self._hosted, self._params, self.reading
        replica_id, tp, number = params.replica_id, ask.tp, ask.topic_id.int
        partition = hosted.partitions.get(tp) or hosted.find(tp)
        log = partition.log
        if number and log is not None and log.topic_id is not None and log.topic_id.int not in (0, number):
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if log is None or not partition.is_leader or ask.leader_epoch != partition.leader_epoch:
            log = partition.readable_log(ask.leader_epoch, params.only_leader)
        follower = None
        if replica_id >= 0:
            follower = partition.remotes.get(replica_id) or partition.follower(replica_id, ask.leader_epoch)
        end_before = log.log_end_offset
        result = FetchedPartition(tp, topic_id=ask.topic_id)
        found = self._find(partition, log, ask, result)
        if result.diverging is not None:
            self._not_fetched(ask)
        elif follower is not None and self._record:
            beat, epoch = self._beat, params.replica_epoch
            if partition.record_fetch(follower, ask, self._now_ms, end_before, beat, epoch):
                reading.moved.append(partition)
        result.high_watermark = log.high_watermark
        result.last_stable_offset = log.last_stable_offset
        result.log_start_offset = log.log_start_offset
        reading.results.append(result)
        if found is not None and found.size > 0:
            reading.slices.append((result, found, partition, partition.leader_epoch))
            reading.size += found.size
            self._remaining -= found.size

    def _find(
        self, partition: Partition, log: PartitionLog, ask: PartitionFetch, result: FetchedPartition
    ) -> Slice | None:
        params, offset, end = self._params, ask.offset, log.log_end_offset
        is_consumer = params.replica_id < 0
        if is_consumer and params.rack and partition.is_leader:
            elsewhere = preferred_read_replica(self._hosted, partition, log, offset, params)
            if elsewhere is not None:
                result.preferred_read_replica = elsewhere
                self.reading.urgent = True
                return None
        if ask.last_fetched_epoch >= 0:
            result.diverging = divergence(log, ask)
            if result.diverging is not None:
                self.reading.urgent = True
                return None
        if is_consumer and params.isolation is Isolation.READ_COMMITTED:
            result.aborted = []
        limit = view_end(params, log) if is_consumer else end
        if limit <= offset <= end:
            return (
                None  # nothing for this reader yet: an offset between the end of its view and the log's end is no error
            )
        min_one = params.min_one and self.reading.size == 0
        room = max(0, min(ask.max_bytes, self._remaining))
        if room == 0 and not min_one and log.log_start_offset <= offset < limit:
            return None
        listed = not is_consumer and is_throttled(self._hosted, partition, log)
        if listed and must_wait(self._hosted, partition, params.replica_id, self._now_ms):
            return None
        found = log.read(offset, room, limit_offset=limit, min_one=min_one)
        if listed:
            self._hosted.throttled_out.record(found.size, self._now_ms)
        return found


def is_throttled(hosted: Hosted, partition: Partition, log: PartitionLog) -> bool:
    """Whether followers' fetches of this partition count against leader.replication.throttled.rate."""
    listed = log.config.leader_replication_throttled_replicas
    return is_listed(listed, partition.tp.partition, hosted.settings.broker_id)


def must_wait(hosted: Hosted, partition: Partition, follower: int, now_ms: int) -> bool:
    """Whether a follower of a throttled partition has to wait now; members of the ISR never do."""
    if follower in partition.isr.committed:
        return False
    return hosted.throttled_out.per_second(now_ms) > hosted.settings.leader_throttled_rate


def divergence(log: PartitionLog, ask: PartitionFetch) -> tuple[int, int] | None:
    """Return where the leader's log diverged from the follower's: (epoch, its end offset), or None if they agree
    (KIP-595, facts §22).

    Raises ApiError(OFFSET_OUT_OF_RANGE) if the epoch is unknown here or the offset is below the log's start.
    """
    epochs = log.epochs
    if ask.last_fetched_epoch == epochs.latest and log.log_start_offset <= ask.offset <= log.log_end_offset:
        return None  # as nearly always
    epoch, end = epochs.end_offset_for(ask.last_fetched_epoch)
    if epoch < 0 or end < 0 or ask.offset < log.log_start_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < ask.last_fetched_epoch or end < ask.offset:
        return epoch, end
    return None
