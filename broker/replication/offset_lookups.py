"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords (facts §10, §11, §15)."""

from collections.abc import Hashable, Iterable, Sequence

from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.event_loop import Pending
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.timestamp_search import FoundRecord, TimestampSearch
from logyard.broker.model import INTERNAL_TOPICS, TopicPartition
from logyard.broker.replication.events import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    DeleteRecordsResult,
    EpochAnswer,
    EpochQuery,
    Isolation,
    OffsetAnswer,
    OffsetQuery,
    OldOffsetAnswer,
    OldOffsetQuery,
)
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.old_offsets import SegmentBounds, bounds_of, looks_at_files, offsets_before
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.purgatory import Delayed

# So many searches of a request are tried on the event loop; a thread does the others.
FEW_SEARCHES = 4
_new = tuple.__new__
# In the place of an answer that a search will give.
_UNANSWERED = OffsetAnswer(TopicPartition("", -1))


class Search:
    """Finds one answer in the segments, in a thread."""

    def __init__(self, tp: TopicPartition, look: TimestampSearch, end: int, missing: ErrorCode) -> None:
        self._tp, self._look, self._end, self._missing = tp, look, end, missing

    def __call__(self) -> OffsetAnswer:
        try:
            return _answer(self._tp, self._look(), self._end, self._missing)
        except Exception as trouble:
            return OffsetAnswer(self._tp, code_of(trouble, self._tp))


class Lookups:
    """Look-ups of offsets, and DeleteRecords."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    # ListOffsets

    def list_offsets(
        self, queries: Sequence[OffsetQuery], isolation: Isolation, *, only_leader: bool = True
    ) -> list[OffsetAnswer] | Pending[list[OffsetAnswer]]:
        """Find offsets by time; `isolation` is LOG_END for replicas. Returns a Pending if segments have to be searched.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE (below ListOffsets v5 handlers answer LEADER_NOT_AVAILABLE).
        """
        answers: list[OffsetAnswer] = []
        searches: list[tuple[int, Search]] = []
        tries = FEW_SEARCHES
        for query in queries:
            answer = self._offset(query, isolation, only_leader, tries > 0)
            if query.timestamp >= 0 or query.timestamp == MAX_TIMESTAMP:
                tries -= 1
            if isinstance(answer, Search):
                searches.append((len(answers), answer))
                answer = _UNANSWERED
            answers.append(answer)
        return self._search(answers, searches) if searches else answers

    def list_offset(
        self, query: OffsetQuery, isolation: Isolation, *, only_leader: bool = True
    ) -> OffsetAnswer | Pending[list[OffsetAnswer]]:
        """Find one offset, as `list_offsets` does: hot path."""
        answer = self._offset(query, isolation, only_leader, True)
        return self._search([_UNANSWERED], [(0, answer)]) if isinstance(answer, Search) else answer

    def _search(self, answers: list[OffsetAnswer], searches: list[tuple[int, Search]]) -> Pending[list[OffsetAnswer]]:
        """Find the answers that need segments; in a thread, as that waits for the disk and decompresses batches."""

        def work() -> None:
            for number, search in searches:
                answers[number] = search()

        return self._hosted.in_record_thread(work, lambda: answers)

    def _offset(
        self, query: OffsetQuery, isolation: Isolation, only_leader: bool, at_once: bool
    ) -> OffsetAnswer | Search:
        tp, timestamp, leader_epoch = query
        try:
            partition = self._hosted.find(tp)
            log = partition.readable_log(leader_epoch, only_leader)
            # A new leader whose high watermark has not reached its own epoch does not know yet what is committed
            # (KAFKA-2334).
            if isolation is Isolation.LOG_END:
                end, lagging = log.log_end_offset, False
            else:
                end = high_watermark = log.high_watermark
                lagging = partition.epoch_start > high_watermark
                if isolation is Isolation.READ_COMMITTED:
                    end = min(log.last_stable_offset, high_watermark)
            if timestamp < 0 and timestamp != MAX_TIMESTAMP:
                return _known(query, partition, log, end, lagging)
            missing = ErrorCode.OFFSET_NOT_AVAILABLE if lagging else ErrorCode.NONE
            return _found(tp, log, log.max_timestamp if timestamp < 0 else timestamp, end, missing, at_once)
        except Exception as trouble:
            return OffsetAnswer(tp, code_of(trouble, tp))

    # ListOffsets v0

    def old_offsets(
        self, queries: Sequence[OldOffsetQuery], *, for_consumer: bool, only_leader: bool, now_ms: int
    ) -> list[OldOffsetAnswer] | Pending[list[OldOffsetAnswer]]:
        """Find some offsets before a time for each partition; a Pending if files have to be looked at.

        Errors: as for `list_offsets`, without those of leader epochs.
        """
        answers: list[OldOffsetAnswer] = []
        looks: list[tuple[int, OldOffsetQuery, SegmentBounds]] = []
        for query in queries:
            tp, timestamp, most = query
            try:
                log = self._hosted.find(tp).readable_log(-1, only_leader)
                bounds = bounds_of(log, log.high_watermark if for_consumer else log.log_end_offset, now_ms)
                if looks_at_files(timestamp):
                    looks.append((len(answers), query, bounds))
                    answers.append(OldOffsetAnswer(tp))
                else:
                    answers.append(OldOffsetAnswer(tp, offsets=offsets_before(bounds, timestamp, most)))
            except Exception as trouble:
                answers.append(OldOffsetAnswer(tp, code_of(trouble, tp)))

        def work() -> None:
            for number, (tp, timestamp, most), bounds in looks:
                try:
                    answers[number] = OldOffsetAnswer(tp, offsets=offsets_before(bounds, timestamp, most))
                except Exception as trouble:
                    answers[number] = OldOffsetAnswer(tp, code_of(trouble, tp))

        return self._hosted.in_record_thread(work, lambda: answers) if looks else answers

    # OffsetForLeaderEpoch

    def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery], *, only_leader: bool = True) -> list[EpochAnswer]:
        """Find where leader epochs end in this log (facts §11).

        Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH.
        """
        return [self._end_offset(query, only_leader) for query in queries]

    def _end_offset(self, query: EpochQuery, only_leader: bool) -> EpochAnswer:
        try:
            log = self._hosted.find(query.tp).readable_log(query.current_leader_epoch, only_leader)
            epoch, end = log.epochs.end_offset_for(query.epoch)
            return EpochAnswer(query.tp, epoch=epoch, end_offset=end)
        except Exception as trouble:
            return EpochAnswer(query.tp, code_of(trouble, query.tp))

    # DeleteRecords

    def delete_records(self, tp: TopicPartition, offset: int, *, internal_topics: bool = False) -> DeleteRecordsResult:
        """Delete the partition's records before the offset (-1: before the high watermark); see `all_deleted` for the
        result if it waits.

        Errors: OFFSET_OUT_OF_RANGE (above the high watermark), UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT (deleted here, not yet on all replicas), INVALID_TOPIC_EXCEPTION (an internal topic),
        POLICY_VIOLATION (the topic is only compacted), KAFKA_STORAGE_ERROR.
        """
        result = DeleteRecordsResult(tp)
        try:
            if tp.topic in INTERNAL_TOPICS and not internal_topics:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is maintained by the broker only")
            partition = self._hosted.find(tp)
            result.wanted, result.low_watermark = partition.delete_records(offset)
            self._hosted.watermark_moved(partition)
        except ApiError as refused:
            result.error, result.message = refused.code, refused.message
        except Exception as trouble:
            result.error = code_of(trouble, tp)
            result.message = str(trouble) if isinstance(trouble, StorageError) else None
        else:
            if result.low_watermark < result.wanted:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return result

    def all_deleted(self, results: Iterable[DeleteRecordsResult], timeout_ms: int) -> Pending[None] | None:
        """Wait until every live replica has deleted as well, and complete the results; None: nothing has to be waited
        for any more. Each partition may be there once."""
        waiting = {result.tp: result for result in results if result.waits}
        if not waiting:
            return None
        pending: Pending[None] = self._hosted.new_pending()
        operation = DelayedDeletion(self._hosted, waiting, pending)
        done = self._hosted.deletions.try_complete_else_watch(operation, tuple(waiting), timeout_ms)
        return None if done else pending


class DelayedDeletion(Delayed):
    """A DeleteRecords that waits until every live replica has advanced its log's start."""

    __slots__ = ("_hosted", "_pending", "_waiting")

    def __init__(
        self, hosted: Hosted, waiting: dict[TopicPartition, DeleteRecordsResult], pending: Pending[None]
    ) -> None:
        super().__init__()
        self._hosted = hosted
        self._waiting = waiting
        self._pending = pending

    def is_ready(self, key: Hashable | None) -> bool:
        # By its key: to compare each that waits with each that moves takes quadratic time.
        if key is None:
            moved = list(self._waiting.values())
        else:
            moved = [self._waiting[key]] if isinstance(key, TopicPartition) and key in self._waiting else []
        for result in moved:
            self._look(result)
        return not self._waiting

    def _look(self, result: DeleteRecordsResult) -> None:
        try:
            result.low_watermark = self._hosted.find(result.tp).low_watermark()
        except ApiError as refused:
            result.error, result.low_watermark = refused.code, -1
            del self._waiting[result.tp]
            return
        if result.low_watermark >= result.wanted:
            result.error = ErrorCode.NONE
            del self._waiting[result.tp]

    def answer(self, *, expired: bool) -> None:
        if not self._pending.done():
            self._pending.set_result(None)


def _known(query: OffsetQuery, partition: Partition, log: PartitionLog, end: int, lagging: bool) -> OffsetAnswer:
    """Return the answer to a timestamp that stands for an end of the log."""
    timestamp = query.timestamp
    if timestamp == LATEST_TIMESTAMP:
        if lagging:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetAnswer(query.tp, offset=end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset
        epoch = log.epochs.epoch_of(start)
        return OffsetAnswer(query.tp, offset=start, leader_epoch=-1 if epoch is None else epoch)
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return OffsetAnswer(query.tp)  # there is no tiered storage here
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def _found(
    tp: TopicPartition, log: PartitionLog, timestamp: int, end: int, missing: ErrorCode, at_once: bool
) -> OffsetAnswer | Search:
    """Return the answer to a search, or the search where a thread has to do it."""
    if at_once:
        try:
            return _answer(tp, log.find_late_now(timestamp), end, missing)
        except Exception:
            pass  # NotCached; anything else meets the thread too, which says what it is
    return Search(tp, log.timestamp_search(timestamp), end, missing)


def _answer(tp: TopicPartition, found: FoundRecord | None, end: int, missing: ErrorCode) -> OffsetAnswer:
    if found is None or found[1] >= end:
        return OffsetAnswer(tp, missing)
    return _new(OffsetAnswer, (tp, ErrorCode.NONE, *found))
