"""How a follower takes in what its leader answers, one partition at a time (facts §10, §11).

Rule 1: an answer counts only if it belongs to the question: same leader epoch, same offset.
Rule 2: records go into the log byte for byte; then the watermark and the log's start follow the leader's.
Rule 3: a divergence is cut off before anything else is fetched; what cannot be helped here is named by an Outcome
and left to the shell (fetcher.py).
"""

from enum import Enum

from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import ZERO_TOPIC_ID, TopicId
from logyard.broker.replication.events import FetchedPartition, PartitionFetch
from logyard.broker.replication.follower import truncation
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.throttle import is_listed


class Outcome(Enum):
    """What became of one partition's answer."""

    PROGRESS = "records, watermark or log start moved"
    IDLE = "nothing new"
    TRUNCATED = "cut to where leader and follower agree"
    BACK_OFF = "not now: again after the back-off"
    FENCED = "our leader epoch is past: wait for the controller"
    OUT_OF_RANGE = "the leader does not have our offset: ask for its bounds"
    FAILED = "the log cannot take it: `trouble` says why"


class FetchState:
    """Where a follower stands with one partition. `truncating`: OffsetForLeaderEpoch is to be asked first."""

    __slots__ = (
        "due_ms",
        "is_on_trial",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "offset",
        "partition",
        "refusals",
        "said",
        "topic_id",
        "trouble",
        "truncating",
    )

    def __init__(self, partition: Partition, *, truncates_on_fetch: bool) -> None:
        log = partition.log
        assert log is not None, "who follows has a log"
        self.partition = partition
        self.topic_id: TopicId = partition.topic_id
        self.leader_epoch = partition.leader_epoch
        self.due_ms = 0
        self.refusals = 0  # answers in a row that said "not yet"
        self.is_on_trial = False  # it failed before, and nothing was taken since
        self.trouble: Exception | None = None  # why the last answer could not be taken
        self.said = ""  # what was last said of that
        self.last_fetched_epoch = truncation.UNDEFINED  # what the leader was told of that
        self.lag = -1  # behind the leader's high watermark; -1 unknown
        self.offset = truncation.first_fetch_offset(log.epochs, log.log_end_offset, log.high_watermark)
        if log.epochs.latest is None:
            # Nothing can prove that the tail agrees with the leader's.
            log.truncate_to(self.offset)
        self.truncating = not truncates_on_fetch and log.epochs.latest is not None

    @property
    def log(self) -> PartitionLog:
        log = self.partition.log
        assert log is not None, "who follows has a log"
        return log

    def ask(self, max_bytes: int, *, with_last_epoch: bool, with_topic_id: bool) -> PartitionFetch:
        """Return what to ask the leader next."""
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
        """Whether what is fetched of it counts against follower.replication.throttled.rate."""
        listed = self.log.config.follower_replication_throttled_replicas
        return is_listed(listed, self.partition.tp.partition, self.partition.ports.settings.broker_id)

    def answers(self, asked: PartitionFetch) -> bool:
        """Whether an answer to `asked` is still of use."""
        partition = self.partition
        return (
            asked.offset == self.offset
            and asked.leader_epoch == self.leader_epoch == partition.leader_epoch
            and not partition.is_leader
            and partition.log is not None
        )

    def take(self, answer: FetchedPartition) -> Outcome:
        """Take in the leader's answer to the current question."""
        self.refusals = self.refusals + 1 if answer.error in _NOT_YET else 0
        if answer.error is not ErrorCode.NONE:
            return _ON_ERROR.get(answer.error, Outcome.BACK_OFF)
        try:
            if answer.diverging is not None:
                return self.cut(*answer.diverging)
            return self._append(answer)
        except ApiError as refused:
            self.trouble = refused
            return Outcome.BACK_OFF  # a batch damaged on its way, or at the leader: ask again
        except StorageError as trouble:
            self.trouble = trouble
            return Outcome.FAILED

    def _append(self, answer: FetchedPartition) -> Outcome:
        log = self.log
        if log.pending_reload is not None:
            # It was cut, and who wrote into it is read again in a thread: ask again in a moment.
            self.refusals += 1
            return Outcome.BACK_OFF
        records = answer.records
        start = log.log_start_offset
        if log.log_end_offset != self.offset:
            self.trouble = StorageError(
                f"{self.partition.tp}: the log ends at {log.log_end_offset}, {self.offset} was fetched"
            )
            return Outcome.FAILED
        if records:
            log.append_as_follower(memoryview(records))
            self.offset = log.log_end_offset
        self.lag = max(0, answer.high_watermark - self.offset)
        moved = self.partition.follow_leader(answer.high_watermark, answer.log_start_offset)
        progress = bool(records) or moved or log.log_start_offset != start
        return Outcome.PROGRESS if progress else Outcome.IDLE

    def cut(self, epoch: int, end: int) -> Outcome:
        """Cut what the leader's (epoch, end offset) shows to be foreign; raises StorageError."""
        log = self.log
        where = truncation.truncation(epoch, end, log.epochs, log.log_end_offset, log.high_watermark)
        log.truncate_to(where.offset)
        # Also where no record had to go: an epoch that this broker led without writing a record ends here as well,
        # or the leader would find the same divergence for ever.
        log.epochs.truncate_from_end(log.log_end_offset)
        self.offset = log.log_end_offset
        if where.done:
            self.truncating = False
        return Outcome.TRUNCATED

    def back_off_ms(self, longest_ms: int) -> int:
        """How long to leave it alone. A leader that has not heard of its leadership yet will in a moment."""
        if self.refusals == 0:
            return longest_ms
        return min(longest_ms, FIRST_PAUSE_MS << min(self.refusals - 1, 16))

    def rejoin(self, leader_start: int, leader_end: int) -> bool:
        """Go on after OFFSET_OUT_OF_RANGE, given the leader's bounds; returns whether the next question is another one.

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
    """Of a follower that wants to be out of the ISR: it asks for its last record again and takes nothing in.

    To fetch no more is not enough: whoever stands at the end of an idle leader's log is in sync however long ago that
    was (Kafka's Replica.isCaughtUp).
    """

    __slots__ = ()

    def __init__(self, partition: Partition, *, truncates_on_fetch: bool) -> None:
        super().__init__(partition, truncates_on_fetch=truncates_on_fetch)
        self.offset = max(self.log.log_end_offset - 1, self.log.log_start_offset)
        self.truncating = False

    def take(self, answer: FetchedPartition) -> Outcome:
        return Outcome.FENCED if answer.error is ErrorCode.FENCED_LEADER_EPOCH else Outcome.BACK_OFF


def fetch_state(partition: Partition, *, truncates_on_fetch: bool) -> FetchState:
    """Return how a partition is to be followed from where its log stands; raises StorageError."""
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
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.FENCED,
    ErrorCode.OFFSET_OUT_OF_RANGE: Outcome.OUT_OF_RANGE,
}
