"""Fetch (1), v0 to v17, for consumers and followers, with sessions (KIP-227). Hand-coded: no copy of records."""

import asyncio
from collections.abc import Awaitable, Sequence

from logyard.broker import tasks
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.protocol import fetch
from logyard.broker.protocol.produce import NodeEndpoint
from logyard.broker.records import compiled_loops
from logyard.broker.records.downconvert import (
    AT_ONCE_BYTES,
    BEGIN_BYTES,
    downconvert,
    downconvert_at_once,
    magic_for_fetch,
)
from logyard.broker.replication.events import FetchedPartition, FetchParams
from logyard.broker.replication.fetch import wire
from logyard.broker.replication.fetch.contexts import FetchContext
from logyard.broker.replication.fetch.sessions import PARTITIONS_BESIDES
from logyard.broker.security.quotas import Quotas
from logyard.broker.server import fetch_rights
from logyard.broker.server.api import Handler
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import fetch_throttle_ms, user_of

ZSTD_SINCE = 10
LEADERS_SINCE = 16
OLD_FORMATS_BELOW = 4
# So much to convert is worth the compiled loop, which is loaded once.
MUCH_BYTES = 64 * 1024
# Shorter requests keep the event loop for 20 ms at most, whatever they name.
SHORT_BYTES = 64 * 1024
# What each partition of a longer one may take, with a topic's name of its own.
PART_BYTES_MAX = 512


def handle(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    version, session, body = request.api_version, request.session, request.body
    parts_max = None if len(body) <= SHORT_BYTES else _parts_max(services, body)
    params, session_id, session_epoch, asks, forgotten = wire.asked(
        version, body, session.listener, services.metadata.topic_name, parts_max
    )
    session.is_broker = is_follower = params.from_follower
    if session.sends_files and version >= OLD_FORMATS_BELOW:
        params.in_files = True
    if not is_follower:
        _limit(services, request, params)
    reader = fetch_rights.EVERYTHING if services.rights.is_open else fetch_rights.reader_of(services, request, params)
    context = services.fetch_sessions.open(
        params,
        session_id,
        session_epoch,
        asks,
        forgotten,
        uses_topic_ids=version >= wire.TOPIC_IDS_SINCE,
        allowed=None if reader is fetch_rights.EVERYTHING else reader,
        rights=reader.rights,
    )
    # Quotas do not apply to followers (but see replication/throttle.py).
    quotas = None if session.is_broker else services.quotas
    if context.error is not ErrorCode.NONE:
        return _answer(services, quotas, request, context, [])
    outcome = services.replicas.fetching.fetch(params, context.source)
    if version < OLD_FORMATS_BELOW:
        if isinstance(outcome, list):
            return _answer_old(services, quotas, request, context, outcome)
        return tasks.answering(_answer_old_later(services, quotas, request, context, outcome, reader))
    if isinstance(outcome, list):
        return _answer(services, quotas, request, context, outcome)
    answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()

    def done(future: "asyncio.Future[list[FetchedPartition]]") -> None:
        if not answer.done():
            try:
                answer.set_result(_answer(services, quotas, request, context, reader.still(future.result())))
            except Exception as error:
                answer.set_exception(error)

    outcome.add_done_callback(done)
    return answer


def _limit(services: Services, request: Request, params: FetchParams) -> None:
    """Limit what a client asks for: by fetch.max.bytes, and by its quota, which a larger answer would always exceed."""
    most, quota = services.fetch_bytes_max, services.quotas.fetch
    if quota is not None:
        most = int(min(most, quota.largest(user_of(request), request.client_id or "")))
    if params.max_bytes > most:
        params.max_bytes = most
    if params.min_bytes > params.max_bytes:
        params.min_bytes = params.max_bytes


def _parts_max(services: Services, body: memoryview) -> int:
    """Return how many topics and partitions a long request may name, each of them asked for or forgotten: many more
    than there are would take seconds, and a GB. Raises CorruptData for a body that must have more."""
    metadata = services.metadata
    known = sum(len(metadata.partitions(name)) for name in metadata.topics())
    parts_max = PARTITIONS_BESIDES + 2 * (known + len(services.replicas.hosted.partitions))
    if len(body) > parts_max * PART_BYTES_MAX:
        raise CorruptData(f"a Fetch request of {len(body):,} bytes is longer than one that names all partitions")
    return parts_max


def _answer_old(
    services: Services,
    quotas: Quotas | None,
    request: Request,
    context: FetchContext,
    answers: list[FetchedPartition],
) -> "Encoded | asyncio.Future[Encoded]":
    """Answer a client that reads formats v0 and v1 only: what is not converted at once, a thread converts."""
    postponed = _postponed(quotas, request, context, answers)
    if postponed is not None:
        return postponed
    if quotas is not None:
        refuse_unreadable(services.configs, request.api_version, answers)
    magic = magic_for_fetch(request.api_version)
    left = _made_old_at_once(answers, magic)
    if not left:
        return _encoded(services, request, context, answers)

    async def answer() -> Encoded:
        await services.replicas.in_record_thread(lambda: _make_old(left, magic), request.session)
        return _encoded(services, request, context, answers)

    return tasks.answering(answer())


async def _answer_old_later(
    services: Services,
    quotas: Quotas | None,
    request: Request,
    context: FetchContext,
    outcome: Awaitable[list[FetchedPartition]],
    reader: fetch_rights.Reader,
) -> Encoded:
    answer = _answer_old(services, quotas, request, context, reader.still(await outcome))
    return await answer if isinstance(answer, asyncio.Future) else answer


def _answer(
    services: Services,
    quotas: Quotas | None,
    request: Request,
    context: FetchContext,
    answers: list[FetchedPartition],
) -> Encoded:
    if quotas is not None:
        if quotas.fetch is not None or quotas.request is not None:
            postponed = _postponed(quotas, request, context, answers)
            if postponed is not None:
                return postponed
        if request.api_version < ZSTD_SINCE:
            refuse_unreadable(services.configs, request.api_version, answers)
    return _encoded(services, request, context, answers)


def _postponed(
    quotas: Quotas | None, request: Request, context: FetchContext, answers: list[FetchedPartition]
) -> Encoded:
    """Return the empty answer for a client that has exceeded its quota, None if it has not."""
    if quotas is None or (quotas.fetch is None and quotas.request is None):
        return None
    throttle_ms = fetch_throttle_ms(quotas, request, sum(len(each.records) for each in answers))
    if not throttle_ms:
        return None
    error, session_id = context.postpone()
    return fetch.encode_response(
        request.api_version,
        request.correlation_id,
        (),
        throttle_ms=throttle_ms,
        error_code=int(error),
        session_id=session_id,
    )


def _encoded(services: Services, request: Request, context: FetchContext, answers: list[FetchedPartition]) -> Encoded:
    error, session_id, news = context.finish(answers)
    endpoints: Sequence[NodeEndpoint] = ()
    if request.api_version >= LEADERS_SINCE:
        leaders = [each.leader[0] for each in news if each.leader is not None]
        if leaders:
            endpoints = endpoints_of(services.metadata, request.session.listener, leaders)
    return wire.answer(
        request.api_version,
        request.correlation_id,
        news,
        error_code=int(error),
        session_id=session_id,
        node_endpoints=endpoints,
    )


def refuse_unreadable(configs: DynamicConfigs, version: int, answers: list[FetchedPartition]) -> None:
    """Refuse partitions whose topic's settings exclude the client's version, whatever the records are, as in Kafka.

    UNSUPPORTED_COMPRESSION_TYPE (zstd), UNSUPPORTED_VERSION (no down-conversion).
    """
    for answer in answers:
        if answer.error is not ErrorCode.NONE:
            continue
        config = configs.topic_config(answer.tp.topic)
        if config.compression_type == "zstd":
            answer.error, answer.records = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b""
        elif magic_for_fetch(version) < 2 and not config.message_downconversion_enable:
            answer.error, answer.records = ErrorCode.UNSUPPORTED_VERSION, b""


def _made_old_at_once(answers: list[FetchedPartition], magic: int) -> list[FetchedPartition]:
    """Convert the records to the format of Fetch v0 to v3 (magic 0 or 1) as far as that is short; return the others."""
    with_records = [answer for answer in answers if len(answer.records)]
    if sum(len(answer.records) for answer in with_records) >= MUCH_BYTES:
        compiled_loops.want()
    room, left = AT_ONCE_BYTES, []
    for answer in with_records:
        made = downconvert_at_once(memoryview(answer.records), magic, room)
        if made is None:
            left.append(answer)
        else:
            room -= max(len(made), len(answer.records)) + BEGIN_BYTES
            answer.records = made
    return left


def _make_old(answers: list[FetchedPartition], magic: int) -> None:
    """Convert the records, however many they are. Raises ApiError: NETWORK_EXCEPTION (the client is gone)."""
    for answer in answers:
        try:
            answer.records = downconvert(memoryview(answer.records), magic)
        except ApiError as refusal:
            if refusal.code is ErrorCode.NETWORK_EXCEPTION:
                raise
            answer.error, answer.records = refusal.code, b""
        except CorruptData:
            answer.error, answer.records = ErrorCode.CORRUPT_MESSAGE, b""


HANDLER = Handler(raw=handle)
