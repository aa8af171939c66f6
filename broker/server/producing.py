"""What Produce requests of any size have in common: which of their parts may be appended, and how they are answered."""

from collections.abc import Awaitable, Iterable, Sequence

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import produce
from logyard.broker.protocol.produce import Part, ProduceRequest
from logyard.broker.records import batch
from logyard.broker.records.header import is_one_batch, is_transactional
from logyard.broker.records.record_validation import EFFORT_MAX, effort
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.produce import NOT_VALIDATED, Entries, Validated, ValidatedBy
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.request import Encoded, Request, Session
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import produce_throttle_ms

ANY_CODEC_SINCE = 7
LEADERS_SINCE = 10
ACKS = (-1, 0, 1)

Results = list[ProduceResult]
Outcome = Results | Pending[Results]
"""Results, or what they will be once the records are everywhere they have to be."""


def fit(version: int, asked: ProduceRequest) -> tuple[Entries, Results]:
    """Return what may be appended, and what is refused as it stands; message sets of old clients (v0 to v2) are made
    v2 batches when they are validated.

    As in Kafka a partition that is named twice counts once, with what is said of it last.
    """
    parts = asked.partitions
    if len(parts) == 1 and version >= ANY_CODEC_SINCE and asked.transactional_id is None:
        ((topic, partition, records),) = parts
        if is_one_batch(records) and not is_transactional(records):
            return [(TopicPartition(topic, partition), records)], []  # as nearly all are: nothing below can refuse it
    fault = fault_of(asked, parts)
    if fault is not None:
        return [], refuse_all(parts, fault)
    if len(parts) > 1:
        parts = last_of_each(parts)
    return fit_parts(version, parts)


def fault_of(asked: ProduceRequest, parts: Iterable[Part]) -> ApiError | None:
    """Why the request is refused as a whole, if it is; `parts` are looked at."""
    if asked.transactional_id is not None:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not served by this broker")
    for *_, records in parts:
        if is_transactional(records):
            text = "transactional records without a transactional id"
            return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    return None


def refuse_all(parts: Iterable[Part], fault: ApiError) -> Results:
    each = dict.fromkeys(TopicPartition(topic, partition) for topic, partition, _ in parts)
    return [ProduceResult(tp, fault.code, message=fault.message) for tp in each]


def last_of_each(parts: Iterable[Part]) -> list[Part]:
    """The parts without those that name a partition which a later one names again."""
    return list({(part[0], part[1]): part for part in parts}.values())


def fit_parts(version: int, parts: Iterable[Part]) -> tuple[Entries, Results]:
    """As `fit`, for parts each of which names another partition."""
    entries: list[tuple[TopicPartition, memoryview]] = []
    refused: Results = []
    for topic, partition, records in parts:
        tp = TopicPartition(topic, partition)
        try:
            whole = batch.check_produce_version(records, version)
            if len(whole):
                entries.append((tp, whole))
            else:
                refused.append(ProduceResult(tp))  # nothing to append is no error to the oldest versions
        except ApiError as error:
            refused.append(ProduceResult(tp, error.code, message=error.message))
        except CorruptData as error:
            refused.append(ProduceResult(tp, ErrorCode.CORRUPT_MESSAGE, message=str(error)))
    return entries, refused


def validate_in_thread(
    replicas: Replicas, session: Session, asked: ProduceRequest, entries: Entries
) -> tuple[Awaitable[Validated] | None, bool]:
    """Start to validate what takes too long for the event loop, None if nothing does; and whether all of it is much."""
    much = len(entries) > 1 and sum(effort(batches) for _, batches in entries) > EFFORT_MAX
    client = client_of(session, asked)
    return (
        replicas.producing.validate_in_thread(entries, (), always=much, client=client) if asked.acks in ACKS else None
    ), much


def client_of(session: Session, asked: ProduceRequest) -> Session | None:
    """Whose absence ends the work; with acks=0 nobody's: a client may go as soon as it has sent its records."""
    return session if asked.acks != 0 else None


async def append_validated(
    replicas: Replicas, session: Session, asked: ProduceRequest, validation: Awaitable[Validated], much: bool
) -> tuple[Outcome, Results]:
    """Wait for the thread, then append; returns the outcome, and what was refused before."""
    refused: Results = []
    again: Awaitable[Validated] | None = validation
    while again is not None:
        entries, validated_by, spoilt = await again
        refused += spoilt
        # Again where the topic's settings have changed since.
        again = replicas.producing.validate_in_thread(
            entries, validated_by, always=much, client=client_of(session, asked)
        )
    return append(replicas, asked, entries, validated_by), refused


def append(
    replicas: Replicas, asked: ProduceRequest, entries: Entries, validated_by: ValidatedBy = NOT_VALIDATED
) -> Outcome:
    return replicas.producing.append(
        entries, acks=asked.acks, timeout_ms=asked.timeout_ms, origin=Origin.CLIENT, validated_by=validated_by
    )


def answer(services: Services, request: Request, acks: int, results: Results) -> Encoded:
    """Return the answer, None with acks=0; raises CorruptData where that cannot say what went wrong."""
    quotas, throttle_ms = services.quotas, 0
    if quotas.produce is not None or quotas.request is not None:
        throttle_ms = produce_throttle_ms(quotas, request, acks)
    if acks == 0:
        must_be_well(results)
        return None
    outcomes, leaders = outcomes_of(services, request, results)
    endpoints = endpoints_of(services.metadata, request.session.listener, leaders) if leaders else ()
    return produce.encode_response(request.api_version, request.correlation_id, outcomes, throttle_ms, endpoints)


def must_be_well(results: Results) -> None:
    """Raise CorruptData, which closes the connection, where anything went wrong with acks=0."""
    failed = next((r for r in results if r.error is not ErrorCode.NONE), None)
    if failed is not None:
        raise CorruptData(f"produce with acks=0 to {failed.tp} failed: {failed.error.name}")


def outcomes_of(
    services: Services, request: Request, results: Sequence[ProduceResult]
) -> tuple[list[produce.PartitionOutcome], list[int]]:
    """Return what the answer says of each, and the leaders that it names (KIP-951)."""
    outcomes = [_outcome(r) for r in results]
    leaders: list[int] = []
    if request.api_version >= LEADERS_SINCE:
        for n, result in enumerate(results):
            if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = services.replicas.current_leader(result.tp)
                outcomes[n] = outcomes[n]._replace(current_leader=leader)
                leaders.append(leader[0])
    return outcomes, leaders


def _outcome(result: ProduceResult) -> produce.PartitionOutcome:
    topic, partition = result.tp
    return produce.PartitionOutcome(
        topic,
        partition,
        result.error,
        result.base_offset,
        result.append_time_ms,
        result.log_start_offset,
        result.record_errors,
        result.message,
    )
