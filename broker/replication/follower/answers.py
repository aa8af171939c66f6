"""How a follower handles its leader's answers, one partition at a time (facts §10, §11).

Rule 1: an answer counts only if it belongs to the current request: same leader epoch, same offset.
Rule 2: records go into the log byte for byte; then high watermark and log start follow the leader's.
Rule 3: a divergence is cut off before anything else is fetched. What cannot be handled here is returned as a
FetchOutcome, and fetcher.py acts on it.
"""

from enum import Enum

from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import ZERO_TOPIC_ID, TopicId
from logyard.broker.replication.events import FetchedPartition, PartitionFetch
from logyard.broker.replication.follower import truncation
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.throttle import is_listed


class FetchOutcome(Enum):
    """The result of one partition's answer."""

    PROGRESS = "records, watermark or log start moved"
    IDLE = "nothing new"
    TRUNCATED = "cut to where leader and follower agree"
    BACK_OFF = "not now: fetch again after the back-off"
    FENCED = "the leader has a later leader epoch: wait for the controller"
    OUT_OF_RANGE = "the leader does not have our offset: ask for its bounds"
    FAILED = "the log refused it: `trouble` says why"


_PROGRESS, _IDLE = FetchOutcome.PROGRESS, FetchOutcome.IDLE


class FetchState:
    """A follower's progress with one partition. `truncating`: OffsetForLeaderEpoch has to be asked first."""

    __slots__ = (
        "due_ms",
        "is_on_trial",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "offset",
        "partition",
        "refusals",
        "reported",
        "topic_id",
        "trouble",
        "truncating",
    )

    def __init__(self, partition: Partition, *, truncates_on_fetch: bool) -> None:
        log = partition.log
        assert log is not None, "a follower has a log"
        self.partition = partition
        self.topic_id: TopicId = partition.topic_id
        self.leader_epoch = partition.leader_epoch
        self.due_ms = 0
        self.refusals = 0  # answers in a row that said "not yet"
        self.is_on_trial = False  # it failed before, and no answer was used since
        self.trouble: Exception | None = None  # why the last answer could not be used
        self.reported = ""  # the trouble that was logged last
        self.last_fetched_epoch = truncation.UNDEFINED  # the last fetched epoch that the leader was sent
        self.lag = -1  # distance to the leader's high watermark; -1 unknown
        self.offset = truncation.first_fetch_offset(log.epochs, log.log_end_offset, log.high_watermark)
        if log.epochs.latest is None:
            # Without epochs nothing can prove that the tail agrees with the leader's.
            log.truncate_to(self.offset)
        self.truncating = not truncates_on_fetch and log.epochs.latest is not None

    @property
    def log(self) -> PartitionLog:
        log = self.partition.log
        assert log is not None, "a follower has a log"
        return log

    def ask(self, max_bytes: int, *, with_last_epoch: bool, with_topic_id: bool) -> PartitionFetch:
        """Return the next fetch of this partition."""
        latest = self.log.epochs.latest if with_last_epoch else None
        self.last_fetched_epoch = truncation.UNDEFINED if latest is None else latest
        return PartitionFetch(
            tp=self.partition.tp,
            offset=self.offset,
            max_bytes=max_bytes,
            leader_epoch=self.leader_epoch,
            last_fetched_epoch=self.last_fetched_epoch,
            log_start_offset=self.log.log_start_offset,
            topic_id=self.topic_id if with_topic_id else ZERO_TOPIC_ID,
        )

    @property
    def is_throttled(self) -> bool:
        """Whether fetches of it count against follower.replication.throttled.rate."""
        listed = self.log.config.follower_replication_throttled_replicas
        return is_listed(listed, self.partition.tp.partition, self.partition.ports.settings.broker_id)

    def answers(self, asked: PartitionFetch) -> bool:
        """Whether an answer to `asked` can still be used."""
        partition = self.partition
        return (
            asked.offset == self.offset
            and asked.leader_epoch == self.leader_epoch == partition.leader_epoch
            and not partition.is_leader
            and partition.log is not None
        )

    def asks_anew(self, asked: PartitionFetch, answer: FetchedPartition, outcome: FetchOutcome) -> bool:
        """Whether the next fetch may ask for something else: not where only the watermark has moved."""
        is_taken = outcome is _PROGRESS or outcome is _IDLE
        return not is_taken or bool(answer.records) or self.log.log_start_offset != asked.log_start_offset

    def take(self, answer: FetchedPartition) -> FetchOutcome:
        """Handle the leader's answer to the current request."""
        if answer.error:
            self.refusals = self.refusals + 1 if answer.error in _NOT_YET else 0
            return _ON_ERROR.get(answer.error, FetchOutcome.BACK_OFF)
        self.refusals = 0
        try:
            if answer.diverging is not None:
                return self.cut(*answer.diverging)
            return self._append(answer)
        except ApiError as refused:
            self.trouble = refused
            return FetchOutcome.BACK_OFF  # a batch was damaged on its way, or at the leader: fetch again
        except StorageError as trouble:
            self.trouble = trouble
            return FetchOutcome.FAILED

    def _append(self, answer: FetchedPartition) -> FetchOutcome:
        log = self.log
        if log.pending_reload is not None:
            # The log was cut, and its producers' states are being read again in a thread: fetch again in a moment.
            self.refusals += 1
            return FetchOutcome.BACK_OFF
        records, watermark = answer.records, answer.high_watermark
        start, end = log.log_start_offset, log.log_end_offset
        if end != self.offset:
            self.trouble = StorageError(f"{self.partition.tp}: the log ends at {end}, {self.offset} was fetched")
            return FetchOutcome.FAILED
        if records:
            log.append_as_follower(memoryview(records))
            self.offset = end = log.log_end_offset
        self.lag = watermark - end if watermark > end else 0
        moved = self.partition.follow_leader(watermark, answer.log_start_offset)
        return _PROGRESS if records or moved or log.log_start_offset != start else _IDLE

    def cut(self, epoch: int, end: int) -> FetchOutcome:
        """Truncate the log where the leader's (epoch, end offset) shows that it diverges; raises StorageError."""
        log = self.log
        where = truncation.truncation(epoch, end, log.epochs, log.log_end_offset, log.high_watermark)
        log.truncate_to(where.offset)
        # Also if no record was removed: an epoch that this broker led without writing a record ends here as well.
        # Otherwise the leader would find the same divergence for ever.
        log.epochs.truncate_from_end(log.log_end_offset)
        self.offset = log.log_end_offset
        if where.done:
            self.truncating = False
        return FetchOutcome.TRUNCATED

    def back_off_ms(self, longest_ms: int) -> int:
        """Return how long to wait before the next fetch. A leader that does not know of its leadership yet will in a
        moment."""
        if self.refusals == 0:
            return longest_ms
        return min(longest_ms, FIRST_PAUSE_MS << min(self.refusals - 1, 16))

    def rejoin(self, leader_start: int, leader_end: int) -> bool:
        """Continue after OFFSET_OUT_OF_RANGE, given the leader's bounds; returns whether the next fetch differs.

        Raises StorageError.
        """
        log, before = self.log, self.offset
        epoch = self.last_fetched_epoch
        step = truncation.out_of_range(log.log_end_offset, leader_end, leader_start, log.high_watermark, epoch)
        if step.truncate:
            log.truncate_to(step.offset)
        elif step.restart:
            log.truncate_fully(step.offset)
        if step.forget:
            log.epochs.clear()
        self.offset = log.log_end_offset
        return step.forget or self.offset != before


class LeavingState(FetchState):
    """The state of a follower that leaves the ISR: it fetches its last record again and again, and appends nothing.

    Stopping its fetches is not enough: a follower at the end of an idle leader's log counts as in sync however long ago
    that was (Kafka's Replica.isCaughtUp).
    """

    __slots__ = ()

    def __init__(self, partition: Partition, *, truncates_on_fetch: bool) -> None:
        super().__init__(partition, truncates_on_fetch=truncates_on_fetch)
        self.offset = max(self.log.log_end_offset - 1, self.log.log_start_offset)
        self.truncating = False

    def take(self, answer: FetchedPartition) -> FetchOutcome:
        return FetchOutcome.FENCED if answer.error is ErrorCode.FENCED_LEADER_EPOCH else FetchOutcome.BACK_OFF


def fetch_state(partition: Partition, *, truncates_on_fetch: bool) -> FetchState:
    """Return the state for following a partition from the end of its log; raises StorageError."""
    kind = LeavingState if partition.leaves_isr else FetchState
    return kind(partition, truncates_on_fetch=truncates_on_fetch)


FIRST_PAUSE_MS = 25

_NOT_YET = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)

_ON_ERROR = {
    ErrorCode.FENCED_LEADER_EPOCH: FetchOutcome.FENCED,
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchOutcome.OUT_OF_RANGE,
}
