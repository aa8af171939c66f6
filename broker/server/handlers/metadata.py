"""Metadata (3): v4 adds whether unknown topics may be created, v8 authorised operations, v10 topic ids, v12 queries by
id.

Encoded answers are cached until the metadata changes: all clients ask the same (server/answer_cache.py). A request of
many names is read in a thread, answered in portions and not cached: a name may have three bytes.
"""

import asyncio
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from logyard.broker import tasks
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.response import NOT_ASKED, TopicQuery, metadata_response, queries
from logyard.broker.model import INTERNAL_TOPICS
from logyard.broker.protocol import codec
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE
from logyard.broker.server.request import Encoded, Fields, Request
from logyard.broker.server.rights import Resource
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import Timed, charge_time
from logyard.broker.server.turns import LARGE_BODY_BYTES, in_thread

API_KEY = 3
THROTTLE_TIME_SINCE = 3
FLEXIBLE_SINCE = 9


def handle(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    if len(request.body) > LARGE_BODY_BYTES:
        return tasks.answering(_large(services, request, bytes(request.body)))
    rights, session = services.rights, request.session
    seen_at = services.metadata.version, rights.version
    viewer = None if rights.is_open else (session.principal, session.client_host)
    cached = services.metadata_answers.get(request, seen_at, viewer)
    if cached is not None:
        return _charged(services, request, cached)
    message, wanted = _read(request)
    hidden: dict[str, ErrorCode] = {}
    if not rights.is_open:
        wanted, hidden = _described(services, request, wanted)
    unknown = _unknown(services, wanted or (), hidden)
    if unknown and _creates(services, request, message):
        return tasks.answering(_create_and_answer(services, request, message, wanted, unknown, hidden))
    answer = _encoded(request, _fields(services, request, message, wanted, hidden))
    if not unknown and not hidden and not rights.logs_allowed:
        services.metadata_answers.put(request, seen_at, viewer, answer)
    return _charged(services, request, answer)


async def _large(services: Services, request: Request, body: bytes) -> Encoded:
    request.body = memoryview(body)
    work = _in_portions(services, request)
    return _charged(services, request, await (Timed(request, work) if request.begun_s else work))


async def _in_portions(services: Services, request: Request) -> bytes:
    message = await services.large_requests.decode(services.replicas, request, waits=True)
    wanted = await in_thread(services.replicas, partial(queries, message.topics, request.api_version))
    if wanted is None:
        everything = [TopicQuery(name) for name in services.metadata.topics()]
        wanted = everything if services.rights.is_open else _described(services, request, None)[0]
    topics: list[Fields] = []
    fields: Fields = {}
    for start in range(0, len(wanted) or 1, PARTS_AT_ONCE):
        portion, refusals = wanted[start : start + PARTS_AT_ONCE], dict[str, ErrorCode]()
        if not services.rights.is_open:
            portion, refusals = _described(services, request, portion)
        unknown = _unknown(services, portion, refusals)
        if unknown and _creates(services, request, message):
            refusals |= await _created(services, request, unknown)
        fields = _fields(services, request, message, portion, refusals)
        topics += fields["topics"]
        await services.turns.next()
    return await in_thread(services.replicas, partial(_encoded, request, {**fields, "topics": topics}))


def _read(request: Request) -> tuple[Any, list[TopicQuery] | None]:
    message = codec.decode_request(API_KEY, request.api_version, request.body)
    return message, queries(message.topics, request.api_version)


def _described(
    services: Services, request: Request, wanted: list[TopicQuery] | None
) -> tuple[list[TopicQuery], dict[str, ErrorCode]]:
    """Return the topics to answer for, and the refusals of those that the principal may not describe."""
    if wanted is None:
        everything = services.metadata.topics()
        need = RIGHTS[API_KEY].topic
        described = authorization.allowed(services, request, need, everything, tells=False)
        return [TopicQuery(name) for name in everything if name in described], {}
    names = [_name(services, query) for query in wanted]
    described = authorization.topics(services, request, [name for name in names if name is not None])
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return wanted, {name: refused for name in names if name is not None and name not in described}


def _name(services: Services, query: TopicQuery) -> str | None:
    return query.name if query.name is not None else services.metadata.topic_name(query.topic_id)


def _unknown(services: Services, wanted: Sequence[TopicQuery], hidden: Container[str]) -> list[str]:
    """Return the names of topics that are not there, of those that the principal may describe."""
    names = [query.name for query in wanted]
    return [name for name in names if name is not None and name not in hidden and name not in services.metadata]


def _creates(services: Services, request: Request, message: Any) -> bool:
    may_create = request.api_version < 4 or message.allow_auto_topic_creation
    return bool(may_create) and services.config.bool("auto.create.topics.enable")


def _creatable(services: Services, request: Request, names: list[str]) -> Container[str]:
    row = RIGHTS[API_KEY]
    if authorization.may(services, request, row.cluster, tells=False):
        return authorization.EVERYTHING
    return authorization.allowed(services, request, row.seen, names)


async def _create_and_answer(
    services: Services,
    request: Request,
    message: Any,
    wanted: list[TopicQuery] | None,
    unknown: list[str],
    hidden: dict[str, ErrorCode],
) -> Encoded:
    refusals = hidden | await _created(services, request, unknown)
    return _charged(services, request, _encoded(request, _fields(services, request, message, wanted, refusals)))


async def _created(services: Services, request: Request, unknown: list[str]) -> dict[str, ErrorCode]:
    """Create topics; returns what is answered for each meanwhile."""
    creatable = _creatable(services, request, unknown)
    refusals = {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in unknown if name not in creatable}
    for name in [name for name in unknown if name in creatable]:
        if name in INTERNAL_TOPICS:
            refusals[name] = await services.auto_create.create_internal(name)
        else:
            refusals[name] = await services.auto_create.create(name)
    return refusals


def _charged(services: Services, request: Request, answer: bytes) -> bytes:
    """Return the answer with the throttle time, which is its first field from v3 on."""
    quota = services.quotas.request
    if quota is None:
        return answer
    throttle_ms = charge_time(quota, request)
    if not throttle_ms:
        return answer
    request.session.mute(throttle_ms)
    if request.api_version < THROTTLE_TIME_SINCE:
        return answer
    at = 9 if request.api_version >= FLEXIBLE_SINCE else 8  # after size, correlation id and the header's tags
    return answer[:at] + throttle_ms.to_bytes(4, "big") + answer[at + 4 :]


def _encoded(request: Request, fields: Fields) -> bytes:
    return codec.encode_response(API_KEY, request.api_version, request.correlation_id, fields)


def _fields(
    services: Services,
    request: Request,
    message: Any,
    wanted: list[TopicQuery] | None,
    refusals: dict[str, ErrorCode],
) -> Fields:
    version = request.api_version
    cluster_operations, topic_operations = NOT_ASKED, None
    if 8 <= version <= 10 and message.include_cluster_authorized_operations:
        cluster_operations = authorization.cluster_operations(services, request)
    if version >= 8 and message.include_topic_authorized_operations:
        topics = services.metadata.topics() if wanted is None else [_name(services, query) for query in wanted]
        topic_operations = {
            name: authorization.operations(services, request, Resource.TOPIC, name)
            for name in topics
            if name is not None and refusals.get(name) is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }
    return metadata_response(
        services.metadata,
        wanted,
        version,
        request.session.listener,
        cluster_id=services.cluster_id,
        refusals=refusals,
        topic_operations=topic_operations,
        cluster_operations=cluster_operations,
    )


HANDLER = Handler(raw=handle)
