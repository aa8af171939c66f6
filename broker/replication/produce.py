"""Produce: append to led partitions, and for acks=all wait for the high watermark (facts §10, §15).

This module reads no records. The append happens at once; only the answer waits. Batches whose validation may take long
are validated in a thread first (log/validation.py).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from logyard.broker.errors import ApiError, ErrorCode, RecordErrors, StorageError
from logyard.broker.event_loop import Client, Pending
from logyard.broker.log.guards import Guard
from logyard.broker.log.producers import Origin
from logyard.broker.log.validation import ValidationWork
from logyard.broker.model import INTERNAL_TOPICS, TopicPartition
from logyard.broker.records.batch import Bounds
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.purgatory import Delayed

Entries = Sequence[tuple[TopicPartition, memoryview]]
ValidatedBy = Sequence[Any]
"""For each entry, the bounds by which a thread has validated its batches, None if none has. Empty: none has for any."""
Validated = tuple[Entries, ValidatedBy, list[ProduceResult]]
"""The entries to append, by which bounds each was validated, and the results of those refused."""

NOT_VALIDATED: ValidatedBy = ()


class Waiting:
    """One partition of a delayed produce: answered once the high watermark reaches `required_offset`."""

    __slots__ = ("required_offset", "result")

    def __init__(self, required_offset: int, result: ProduceResult) -> None:
        self.required_offset = required_offset
        self.result = result
        # The answer if the time runs out; the records stay in the log all the same.
        result.error = ErrorCode.REQUEST_TIMED_OUT


class DelayedProduce(Delayed):
    """An acks=all request whose records are not yet on all in-sync replicas."""

    __slots__ = ("_hosted", "_pending", "_results", "_waiting")

    def __init__(
        self,
        hosted: Hosted,
        waiting: dict[TopicPartition, Waiting],
        results: list[ProduceResult],
        pending: Pending[list[ProduceResult]],
    ) -> None:
        super().__init__()
        self._hosted = hosted
        self._waiting = waiting
        self._results = results
        self._pending = pending

    def is_ready(self, key: Hashable | None) -> bool:
        waiting = self._waiting
        for tp in list(waiting) if key is None else (key,):
            if tp not in waiting:
                continue
            error = _acknowledged(self._hosted, tp, waiting[tp].required_offset)
            if error is not None:
                waiting.pop(tp).result.error = error
        return not waiting

    def answer(self, *, expired: bool) -> None:
        if not self._pending.done():
            self._pending.set_result(self._results)


def _acknowledged(hosted: Hosted, tp: TopicPartition, required_offset: int) -> ErrorCode | None:
    partition = hosted.partitions.get(tp)
    if partition is not None:
        return partition.acknowledged(required_offset)
    try:
        hosted.find(tp)
    except ApiError as refused:
        return refused.code
    return ErrorCode.UNKNOWN_SERVER_ERROR


class Producing:
    """Produce requests: batches appended to led partitions, and answers that wait for acks=all."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    def append(
        self,
        entries: Entries,
        *,
        acks: int,
        timeout_ms: int,
        origin: Origin,
        internal_topics: bool = False,
        validated_by: ValidatedBy = NOT_VALIDATED,
    ) -> list[ProduceResult] | Pending[list[ProduceResult]]:
        """Append each partition's batches; one result per entry, in order.

        Returns a Pending only if acks is -1 and some records are not yet on all in-sync replicas. Errors per entry:
        INVALID_REQUIRED_ACKS (acks not in -1, 0, 1), NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (before the append),
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT (not acknowledged within `timeout_ms`; the records stay),
        INVALID_TOPIC_EXCEPTION (a topic that only the broker writes, unless `internal_topics`), KAFKA_STORAGE_ERROR,
        and those of `PartitionLog.append_as_leader`.
        """
        if acks not in (-1, 0, 1):
            return [ProduceResult(tp, ErrorCode.INVALID_REQUIRED_ACKS) for tp, _ in entries]
        hosted, counters = self._hosted, self._hosted.counters
        now_ms = hosted.clock.now_ms()
        results: list[ProduceResult] = []
        appended: list[tuple[Partition, bool]] = []
        waiting: dict[TopicPartition, Waiting] = {}
        for number, (tp, batches) in enumerate(entries):
            try:
                if not internal_topics and tp[0] in INTERNAL_TOPICS:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp[0]} is written by the broker only")
                partition = hosted.partitions.get(tp) or hosted.find(tp)
                log = partition.log
                watermark = log.high_watermark if log is not None else -1
                info = partition.append(batches, acks, now_ms, origin, validated_by[number] if validated_by else None)
            except ApiError as refused:
                counters.failed_produces += 1
                results.append(_refusal(hosted, tp, refused))
                continue
            except Exception as failed:
                message = str(failed) if isinstance(failed, StorageError) else None
                results.append(ProduceResult(tp, code_of(failed, tp), message=message))
                continue
            assert log is not None, "an append needs a log"
            first, last = info.first_offset, info.last_offset
            counters.bytes_in += len(batches)
            counters.messages_in += last - first + 1
            result = ProduceResult(tp, ErrorCode.NONE, first, info.append_time_ms, log.log_start_offset)
            results.append(result)
            appended.append((partition, log.high_watermark != watermark))
            if acks == -1:
                if log.high_watermark <= last:
                    waiting[tp] = Waiting(last + 1, result)
                else:
                    result.error = partition.acknowledged(last + 1) or ErrorCode.NONE
        for partition, moved in appended:
            if moved:
                hosted.watermark_moved(partition)
            else:
                hosted.end_moved(partition)
        return self._wait(waiting, results, timeout_ms) if waiting else results

    def begin_verification(
        self, tp: TopicPartition, producer_id: int, epoch: int, sequence: int, *, raises: bool = False
    ) -> Guard | None:
        """Return the guard to verify before a batch of this producer may begin a transaction in the partition.

        None: its transaction is open there. `raises`: the client goes by `transaction.version` 2. Raises
        ApiError(NOT_LEADER_OR_FOLLOWER), and what `Hosted.find` and `PartitionLog.require_producers` raise.
        """
        hosted = self._hosted
        partition = hosted.partitions.get(tp) or hosted.find(tp)
        log = partition.log
        if log is None or not partition.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log.require_producers()
        if log.producers.is_in_transaction(producer_id, epoch):
            return None
        return log.producers.guards.begin(producer_id, epoch, sequence, hosted.clock.now_ms(), raises=raises)

    def begin_validation(
        self, entries: Entries, validated_by: ValidatedBy, *, always: bool = False, client: Client | None = None
    ) -> tuple[Pending[Validated] | None, ValidatedBy]:
        """Validate at once the batches for which that is worth it, and begin in a thread what takes long.

        Returns what runs in the thread, None if nothing does, and by which bounds each of the entries is validated by
        now.

        With `always` the short validations go to the thread too: many of them together are long. The work stops when
        `client` is gone.

        The caller appends the resulting entries with their `validated_by`, and answers those refused; the entries are
        copies, so the receive buffer is free. The caller keeps later requests of the same client behind this one, and
        calls this again before it appends, because the topics' configs may have changed meanwhile.
        """
        partitions = self._hosted.partitions
        now_ms = self._hosted.clock.now_ms
        validations: dict[int, ValidationWork] = {}
        done: dict[int, Bounds] = {}
        for number, (tp, batches) in enumerate(entries):
            partition = partitions.get(tp)
            log = partition.log if partition is not None and partition.is_leader else None
            if log is None:
                continue
            done_by = validated_by[number] if validated_by else None
            work = log.validation_work(batches, now_ms, done_by, always=always)
            if isinstance(work, Bounds):
                done[number] = work
            elif work is not None:
                validations[number] = work
        if done:
            validated_by = [done.get(n) or (validated_by[n] if validated_by else None) for n in range(len(entries))]
        if not validations:
            return None, validated_by
        running = self._run_in_thread(entries, validated_by or [None] * len(entries), validations, client)
        return running, validated_by

    def _run_in_thread(
        self,
        entries: Entries,
        validated_by: ValidatedBy,
        validations: Mapping[int, ValidationWork],
        client: Client | None,
    ) -> Pending[Validated]:
        fit = [(tp, memoryview(bytearray(batches))) for tp, batches in entries]
        by = list(validated_by)
        refused: dict[int, ApiError] = {}

        def work() -> None:
            for number, (validate, bounds) in validations.items():
                tp, batches = fit[number]
                try:
                    fit[number], by[number] = (tp, validate(batches)), bounds
                except ApiError as problem:
                    refused[number] = problem
                except Exception as problem:
                    refused[number] = ApiError(code_of(problem, tp))

        def finish() -> Validated:
            self._hosted.counters.failed_produces += len(refused)
            results = [_refusal(self._hosted, fit[number][0], problem) for number, problem in refused.items()]
            kept = [number for number in range(len(fit)) if number not in refused]
            return [fit[number] for number in kept], [by[number] for number in kept], results

        return self._hosted.in_record_thread(work, finish, client)

    def _wait(
        self, waiting: dict[TopicPartition, Waiting], results: list[ProduceResult], timeout_ms: int
    ) -> list[ProduceResult] | Pending[list[ProduceResult]]:
        pending: Pending[list[ProduceResult]] = self._hosted.new_pending()
        keys = tuple(waiting)
        operation = DelayedProduce(self._hosted, waiting, results, pending)
        done = self._hosted.produces.try_complete_else_watch(operation, keys, timeout_ms)
        return results if done else pending


def _refusal(hosted: Hosted, tp: TopicPartition, refused: ApiError) -> ProduceResult:
    result = ProduceResult(tp, refused.code, message=refused.message)
    if isinstance(refused, RecordErrors):
        result.record_errors = refused.records
    partition = hosted.partitions.get(tp)
    if partition is not None and partition.log is not None and refused.code in _KNOWS_LOG_START:
        result.log_start_offset = partition.log.log_start_offset
    return result


# Refusals of the records themselves, whose answers carry the log's start offset.
_KNOWS_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
