"""Produce (0): hand-coded, the records stay where they were received.

v3 transactional id, v5 log start offset in the answer, v8 record errors (KIP-467), v9 flexible, v10 current leader.
acks=0 gets no answer; where something went wrong then, the connection is closed, as in Kafka.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from logyard.broker import tasks
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.log.partition_log import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import produce
from logyard.broker.records import batch
from logyard.broker.records.header import is_transactional
from logyard.broker.records.record_validation import EFFORT_MAX, effort
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.produce import AfterOpening
from logyard.broker.server.api import Handler
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import produce_throttle_ms

LEADERS_SINCE = 10
ACKS = (-1, 0, 1)


def handle(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    asked = produce.parse_request(request.api_version, request.body)
    if asked.transactional_id is not None:
        refusal = "transactions are not served by this broker"
        return _refuse_all(services, request, asked, ErrorCode.INVALID_TXN_STATE, refusal)
    for *_, records in asked.partitions:
        if is_transactional(records):
            refusal = "transactional records without a transactional id"
            return _refuse_all(services, request, asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, refusal)
    entries, refused = _fit(request.api_version, asked.partitions)
    much = len(entries) > 1 and sum(effort(batches) for _, batches in entries) > EFFORT_MAX
    opening = services.replicas.opening(entries, (), always=much) if asked.acks in ACKS else None
    if opening is not None:
        request.session.is_appending = True
        return tasks.answering(_append_opened(services, request, asked, opening, refused, much))
    outcome = services.replicas.append(entries, acks=asked.acks, timeout_ms=asked.timeout_ms, origin=Origin.CLIENT)
    if isinstance(outcome, list):
        return _answer(services, request, asked.acks, outcome + refused)
    answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()

    def done(future: "asyncio.Future[list[ProduceResult]]") -> None:
        if not answer.done():
            try:
                answer.set_result(_answer(services, request, -1, future.result() + refused))
            except Exception as error:
                answer.set_exception(error)

    outcome.add_done_callback(done)
    return answer


async def _append_opened(
    services: Services,
    request: Request,
    asked: produce.ProduceRequest,
    opening: Awaitable[AfterOpening] | None,
    refused: list[ProduceResult],
    much: bool,
) -> Encoded:
    """Wait for the thread, then append and answer like `handle`; until it is appended a later request waits."""
    replicas = services.replicas
    try:
        while opening is not None:
            entries, opened, spoilt = await opening
            refused += spoilt
            # Again where the topic's settings have changed since.
            opening = replicas.opening(entries, opened, always=much)
        outcome = replicas.append(
            entries, acks=asked.acks, timeout_ms=asked.timeout_ms, origin=Origin.CLIENT, opened=opened
        )
    finally:
        request.session.is_appending = False
    if isinstance(outcome, list):
        return _answer(services, request, asked.acks, outcome + refused)
    request.session.go_on()
    return _answer(services, request, asked.acks, await outcome + refused)


def _refuse_all(
    services: Services, request: Request, asked: produce.ProduceRequest, code: ErrorCode, refusal: str
) -> Encoded:
    refused = [
        ProduceResult(TopicPartition(topic, partition), code, message=refusal)
        for topic, partition, _ in asked.partitions
    ]
    return _answer(services, request, asked.acks, refused)


Entries = list[tuple[TopicPartition, memoryview]]


def _fit(version: int, asked: list[tuple[str, int, memoryview]]) -> tuple[Entries, list[ProduceResult]]:
    """Check what depends on the version. Message sets of old clients (v0 to v2) are made v2 batches when opened."""
    fit: Entries = []
    refused = []
    for topic, partition, records in asked:
        tp = TopicPartition(topic, partition)
        try:
            whole = batch.check_produce_version(records, version)
            if len(whole):
                fit.append((tp, whole))
            else:
                refused.append(ProduceResult(tp))  # nothing to append is no error to the oldest versions
        except ApiError as error:
            refused.append(ProduceResult(tp, error.code, message=error.message))
        except CorruptData as error:
            refused.append(ProduceResult(tp, ErrorCode.CORRUPT_MESSAGE, message=str(error)))
    return fit, refused


def _answer(services: Services, request: Request, acks: int, results: list[ProduceResult]) -> Encoded:
    quotas = services.quotas
    throttle_ms = 0
    if quotas.produce is not None or quotas.request is not None:
        throttle_ms = produce_throttle_ms(quotas, request, acks)
    if acks == 0:
        failed = next((r for r in results if r.error is not ErrorCode.NONE), None)
        if failed is not None:
            raise CorruptData(f"produce with acks=0 to {failed.tp} failed: {failed.error.name}")
        return None
    outcomes = [_outcome(r) for r in results]
    endpoints: Sequence[produce.NodeEndpoint] = ()
    if request.api_version >= LEADERS_SINCE:
        moved = [n for n, r in enumerate(results) if r.error is ErrorCode.NOT_LEADER_OR_FOLLOWER]
        if moved:
            for n in moved:
                outcomes[n] = outcomes[n]._replace(current_leader=services.replicas.current_leader(results[n].tp))
            leaders = [o.current_leader[0] for o in outcomes if o.current_leader is not None]
            endpoints = endpoints_of(services.metadata, request.session.listener, leaders)
    return produce.encode_response(request.api_version, request.correlation_id, outcomes, throttle_ms, endpoints)


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


HANDLER = Handler(raw=handle)
