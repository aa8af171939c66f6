"""Reading one partition for Fetch: the checks, the limits, and the slice of log that answers (facts §10, §22).

Nothing is loaded here: slices are loaded only when the whole fetch is answered.
"""

from collections.abc import Iterable

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import ZERO_TOPIC_ID
from logyard.broker.replication.events import (
    CONSUMER_ID,
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


def view_end(params: FetchParams, log: PartitionLog) -> int:
    """Return where a reader's view of a log ends: for followers at its end, for consumers at the committed records."""
    if params.replica_id != CONSUMER_ID and (params.replica_id >= 0 or params.replica_id == DEBUG_CONSUMER_ID):
        return log.log_end_offset
    if params.isolation is Isolation.READ_COMMITTED:
        return min(log.last_stable_offset, log.high_watermark)
    return log.high_watermark


def refused(hosted: Hosted, ask: PartitionFetch, code: ErrorCode) -> FetchedPartition:
    """Return the answer for a partition that cannot be read; it names the leader to those who ask the wrong broker."""
    result = FetchedPartition(ask.tp, code, topic_id=ask.topic_id)
    if code in _BEHIND:
        result.leader = hosted.current_leader(ask.tp)
    return result


class Reading:
    """Reads the partitions of one fetch once: they share its byte limit in the given order.

    `size` is the bytes found, `urgent` means: answer at once.
    """

    __slots__ = (
        "_beat",
        "_follows",
        "_hosted",
        "_now_ms",
        "_params",
        "_record",
        "moved",
        "results",
        "size",
        "slices",
        "urgent",
    )

    def __init__(self, hosted: Hosted, params: FetchParams, beat: Heartbeat | None, *, record: bool) -> None:
        self._hosted = hosted
        self._params = params
        self._beat = beat
        self._follows = follows = params.replica_id >= 0
        self._record = record and follows
        self._now_ms = hosted.now_ms() if follows else 0  # only followers have lags and throttled rates
        self.results: list[FetchedPartition] = []
        self.slices: list[tuple[FetchedPartition, Slice, Partition, int]] = []  # with the leader epoch of the reading
        self.size = 0
        self.urgent = False
        self.moved: list[Partition] = []

    def read(self, asks: Iterable[PartitionFetch]) -> None:
        """Read these partitions; an error of any kind concerns only its partition."""
        for ask in asks:
            try:
                self._read(ask)
            except ApiError as error:
                self._hosted.counters.failed_fetches += 1
                self.refuse(refused(self._hosted, ask, self._code(ask, error)))
                self._not_fetched(ask)
            except Exception as error:
                self._not_fetched(ask)
                self.refuse(refused(self._hosted, ask, code_of(error, ask.tp)))

    def refuse(self, refusal: FetchedPartition) -> None:
        """Add the answer of a partition that is not read."""
        self.urgent = True
        self.results.append(refusal)

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
        hosted, params, tp, epoch, topic_id = self._hosted, self._params, ask.tp, ask.leader_epoch, ask.topic_id
        partition = hosted.partitions.get(tp) or hosted.find(tp)
        log = partition.log
        if topic_id.int and log is not None and log.topic_id is not None and log.topic_id.int not in (0, topic_id.int):
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if log is None or not partition.is_leader or (epoch != partition.leader_epoch and epoch >= 0):
            log = partition.readable_log(epoch, params.only_leader)
        follower = None
        if self._follows:
            follower = partition.remotes.get(params.replica_id) or partition.follower(params.replica_id, epoch)
        end = log.log_end_offset
        result = FetchedPartition(tp, topic_id=topic_id)
        found = None
        # Nothing is found for a follower that is at the log's end, and agrees with the log up to there.
        if not self._follows or ask.offset != end or ask.last_fetched_epoch != log.epochs.latest:
            found = self._find(partition, log, end, ask, result)
        if result.diverging is not None:
            self._not_fetched(ask)
        elif follower is not None and self._record:
            beat, broker_epoch = self._beat, params.replica_epoch
            if partition.record_fetch(follower, ask, self._now_ms, end, beat, broker_epoch):
                self.moved.append(partition)
        result.high_watermark = log.high_watermark
        result.last_stable_offset = log.last_stable_offset
        result.log_start_offset = log.log_start_offset
        self.results.append(result)
        if found is not None and found.size > 0:
            self.slices.append((result, found, partition, partition.leader_epoch))
            self.size += found.size

    def _find(
        self, partition: Partition, log: PartitionLog, end: int, ask: PartitionFetch, result: FetchedPartition
    ) -> Slice | None:
        params, offset, follows = self._params, ask.offset, self._follows
        if params.rack and partition.is_leader and not follows:
            elsewhere = preferred_read_replica(self._hosted, partition, log, offset, params)
            if elsewhere is not None:
                result.preferred_read_replica = elsewhere
                self.urgent = True
                return None
        if ask.last_fetched_epoch >= 0:
            result.diverging = divergence(log, ask)
            if result.diverging is not None:
                self.urgent = True
                return None
        if params.isolation is Isolation.READ_COMMITTED and not follows:
            result.aborted = []
        limit = end if follows else view_end(params, log)
        if limit <= offset <= end:
            # Nothing for this reader yet: an offset between the end of its view and the log's end is no error.
            return None
        read = self.size
        room = min(ask.max_bytes, params.max_bytes - read)
        min_one = params.min_one and not read
        if room <= 0:
            room = 0
            if not min_one and log.log_start_offset <= offset < limit:
                return None
        # Refuses an offset outside the log.
        found = log.read(offset, room, limit_offset=limit, min_one=min_one, whole=follows)
        if follows and is_throttled(self._hosted, partition, log):
            if must_wait(self._hosted, partition, params.replica_id, self._now_ms):
                return None
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
