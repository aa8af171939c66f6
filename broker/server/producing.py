"""The steps that Produce requests of any size share: refuse, validate, append, answer (facts §15).

A *part* is what a request has for one partition: topic, partition, and the bytes of its batches.
"""

from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import produce
from logyard.broker.protocol.produce import Part, ProduceRequest
from logyard.broker.records import batch
from logyard.broker.records.header import is_one_plain_batch, is_transactional, producer_of
from logyard.broker.records.record_validation import EFFORT_MAX, effort
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.produce import NOT_VALIDATED, Entries, Validated, ValidatedBy
from logyard.broker.replication.replicas import Replicas
from logyard.broker.server import authorization
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.request import Encoded, Request, Session
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import produce_throttle_ms

ANY_CODEC_SINCE = 7
LEADERS_SINCE = 10
ACKS = (-1, 0, 1)
PRODUCE_ROW = RIGHTS[0]
assert PRODUCE_ROW.topic is not None
_new = tuple.__new__  # hot path: a NamedTuple's own is Python
WRITE, TOPIC = PRODUCE_ROW.topic.operation, PRODUCE_ROW.topic.resource

Results = list[ProduceResult]
ResultsOrPending = Results | Pending[Results]
"""Pending: the results of an acks=all request that waits for followers."""


def fit_permitted(services: Services, request: Request, asked: ProduceRequest) -> tuple[Entries, Results]:
    """Do what `fit` does, for what the request's principal may write."""
    if len(asked.partitions) == 1 and asked.transactional_id is None:
        ((topic, _, records),) = asked.partitions
        # Not by `authorization.may`, whose call takes a third of the time of a decision that is kept.
        may_write = services.rights.allow(request.session, WRITE, TOPIC, topic, 0)
        if may_write or is_transactional(records):
            return fit(request.api_version, asked)  # which refuses transactional records without an id
        return [], _denied(asked.partitions)
    kept, denied = permitted(services, request, asked)
    entries, refused = fit(request.api_version, kept)
    return entries, refused + denied


def permitted(services: Services, request: Request, asked: ProduceRequest) -> tuple[ProduceRequest, Results]:
    """Return the request with the parts that its principal may write, and the results of the others.

    TOPIC_AUTHORIZATION_FAILED; TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all, if one part is transactional.
    """
    parts = asked.partitions
    if any(is_transactional(records) for *_, records in parts):
        if asked.transactional_id is None:
            return asked, []  # `fault_of` refuses it
        fault = refused_id(services, request, asked.transactional_id)
        if fault is not None:
            return asked._replace(partitions=[]), refuse_all(parts, fault)
    kept, denied = writable(services, request, parts)
    return (asked if kept is parts else asked._replace(partitions=kept)), denied


def refused_id(services: Services, request: Request, transactional_id: str) -> ApiError | None:
    """Return the refusal if the principal may not write with this id, else None."""
    if authorization.may(services, request, PRODUCE_ROW.transactional_id, transactional_id):
        return None
    return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def writable(services: Services, request: Request, parts: list[Part]) -> tuple[list[Part], Results]:
    """Return the parts whose topics the principal may write to, and the results of the others."""
    if len(parts) == 1:
        may_write = authorization.may(services, request, PRODUCE_ROW.topic, parts[0][0])
        return (parts, []) if may_write else ([], _denied(parts))
    topics = authorization.topics(services, request, [topic for topic, *_ in parts])
    return [part for part in parts if part[0] in topics], _denied(part for part in parts if part[0] not in topics)


def _denied(parts: Iterable[Part]) -> Results:
    return refuse_all(parts, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def fit(version: int, asked: ProduceRequest) -> tuple[Entries, Results]:
    """Return the entries to append, and the results of parts that are refused without a look at their records.

    If a request names a partition twice, its last part counts, as in Kafka. Message sets of old clients (v0 to v2) are
    among the entries; validation makes v2 batches of them.
    """
    parts = asked.partitions
    if len(parts) == 1 and version >= ANY_CODEC_SINCE and asked.transactional_id is None:
        ((topic, partition, records),) = parts
        if is_one_plain_batch(records):
            return [
                (_new(TopicPartition, (topic, partition)), records)
            ], []  # the usual request: nothing below can refuse it
    fault = fault_of(asked, parts)
    if fault is not None:
        return [], refuse_all(parts, fault)
    if len(parts) > 1:
        parts = last_of_each(parts)
    return fit_parts(version, parts)


def fault_of(asked: ProduceRequest, parts: Iterable[Part]) -> ApiError | None:
    """Return why the whole request is refused, None if it is not: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (one of `parts`
    is transactional, and the request has no such id), or INVALID_PRODUCER_ID_MAPPING (they have several producers)."""
    producers = {producer_of(records)[:2] for *_, records in parts if is_transactional(records)}
    if producers and asked.transactional_id is None:
        text = "transactional records without a transactional id"
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    if len(producers) > 1:
        text = "transactional records of more than one producer id or epoch"
        return ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    return None


def refuse_all(parts: Iterable[Part], fault: ApiError) -> Results:
    each = dict.fromkeys(TopicPartition(topic, partition) for topic, partition, _ in parts)
    return [ProduceResult(tp, fault.code, message=fault.message) for tp in each]


def last_of_each(parts: Iterable[Part]) -> list[Part]:
    """Return the last part of each partition."""
    return list({(part[0], part[1]): part for part in parts}.values())


def fit_parts(version: int, parts: Iterable[Part]) -> tuple[Entries, Results]:
    """Do what `fit` does, for parts of different partitions."""
    entries: list[tuple[TopicPartition, memoryview]] = []
    refused: Results = []
    for topic, partition, records in parts:
        tp = TopicPartition(topic, partition)
        try:
            whole = batch.check_produce_version(records, version)
            if len(whole):
                entries.append((tp, whole))
            else:
                refused.append(ProduceResult(tp))  # v0 to v2 may send empty parts
        except ApiError as error:
            refused.append(ProduceResult(tp, error.code, message=error.message))
        except CorruptData as error:
            refused.append(ProduceResult(tp, ErrorCode.CORRUPT_MESSAGE, message=str(error)))
    return entries, refused


class Validation(NamedTuple):
    """How the entries of a request are validated: in a thread (`running`), or here; None: here, or by the append.

    `by`: the bounds of what is validated already. `much`: the entries are too much for the event loop together,
    although each may be small.
    """

    running: Awaitable[Validated] | None
    by: ValidatedBy = NOT_VALIDATED
    much: bool = False


def begin_validation(replicas: Replicas, session: Session, asked: ProduceRequest, entries: Entries) -> Validation:
    """Validate what is worth it here, and begin in a thread what takes long."""
    much = len(entries) > 1 and sum(effort(batches) for _, batches in entries) > EFFORT_MAX
    if asked.acks not in ACKS:
        return Validation(None, much=much)
    client = client_of(session, asked)
    running, by = replicas.producing.begin_validation(entries, (), always=much, client=client)
    return _new(Validation, (running, by, much))


def client_of(session: Session, asked: ProduceRequest) -> Session | None:
    """Return the session whose end stops the validation. None with acks=0: such a client may disconnect at once."""
    return session if asked.acks != 0 else None


async def append_validated(
    replicas: Replicas, session: Session, asked: ProduceRequest, validation: Validation
) -> tuple[ResultsOrPending, Results]:
    """Wait for the thread, then append. Returns the results of the append, and those of what validation refused."""
    refused: Results = []
    again = validation.running
    entries: Entries = []
    by: ValidatedBy = NOT_VALIDATED
    while again is not None:
        entries, by, rejected = await again
        refused += rejected
        # Not None if the topic's settings have changed meanwhile.
        again, by = replicas.producing.begin_validation(
            entries, by, always=validation.much, client=client_of(session, asked)
        )
    return append(replicas, asked, entries, by), refused


def append(
    replicas: Replicas, asked: ProduceRequest, entries: Entries, validated_by: ValidatedBy = NOT_VALIDATED
) -> ResultsOrPending:
    return replicas.producing.append(
        entries, acks=asked.acks, timeout_ms=asked.timeout_ms, origin=Origin.CLIENT, validated_by=validated_by
    )


def answer(services: Services, request: Request, acks: int, results: Results) -> Encoded:
    """Return the answer's bytes; with acks=0 None, or CorruptData is raised if anything was refused."""
    quotas, throttle_ms = services.quotas, 0
    if quotas.produce is not None or quotas.request is not None:
        throttle_ms = produce_throttle_ms(quotas, request, acks)
    if acks == 0:
        check_all_appended(results)
        return None
    outcomes, leaders = outcomes_of(services, request, results)
    endpoints = endpoints_of(services.metadata, request.session.listener, leaders) if leaders else ()
    return produce.encode_response(request.api_version, request.correlation_id, outcomes, throttle_ms, endpoints)


def check_all_appended(results: Results) -> None:
    """Raise CorruptData, which closes the connection, if a result has an error: acks=0 has no answer to tell it."""
    failed = next((r for r in results if r.error is not ErrorCode.NONE), None)
    if failed is not None:
        raise CorruptData(f"produce with acks=0 to {failed.tp} failed: {failed.error.name}")


def outcomes_of(
    services: Services, request: Request, results: Sequence[ProduceResult]
) -> tuple[list[produce.PartitionOutcome], list[int]]:
    """Return each partition's part of the answer, and the broker ids of the leaders that these name (KIP-951)."""
    outcomes = list(map(_outcome, results))
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
    fields = (
        topic,
        partition,
        result.error,
        result.base_offset,
        result.append_time_ms,
        result.log_start_offset,
        result.record_errors,
        result.message,
        None,
    )
    return _new(produce.PartitionOutcome, fields)
