"""Metadata (3): v4 adds whether unknown topics may be created, v8 authorised operations, v10 topic ids, v12 queries by
id.

Encoded answers are cached until the metadata changes: all clients ask the same (server/answer_cache.py). Those of many
partitions are made in portions, once for all who ask the same meanwhile, and encoded in a thread. A request of many
names is read in a thread, answered in portions and not cached: a name may have three bytes.
"""

import asyncio
from collections.abc import Awaitable, Container, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from logyard.broker import tasks
from logyard.broker.controller.topics.topics import name_problem
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.response import NOT_ASKED, TopicQuery, metadata_response, queries
from logyard.broker.model import INTERNAL_TOPICS, ZERO_TOPIC_ID
from logyard.broker.protocol import codec
from logyard.broker.server import authorization
from logyard.broker.server.answer_cache import Versions, Viewer, answering
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Encoded, Fields, Request
from logyard.broker.server.rights import Resource
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import Timed, charge_time
from logyard.broker.server.turns import LARGE_BODY_BYTES, in_thread

API_KEY = 3
THROTTLE_TIME_SINCE = 3
FLEXIBLE_SINCE = 9
IDS_IN_REQUESTS_SINCE, BY_ID_SINCE = 10, 12
# What a topic takes whose operations are asked for, in parts of an answer: a decision for each.
OPERATIONS_PARTS = 8 * authorization.DECISION_PARTS
# Answers of more parts, some megabytes while they are made, are made one after the other.
PARTS_ALONE = 10_000


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
    if _is_early(request, message):
        return _charged(services, request, _refused_early(request, message))
    if _is_long(services.metadata, wanted):
        request.body = memoryview(bytes(request.body))
        return _shared(services, request, message, wanted, seen_at, viewer)
    hidden: dict[str, ErrorCode] = {}
    if not rights.is_open:
        wanted, hidden = _described(services, request, wanted)
    unknown = _unknown(services, wanted or (), hidden)
    if unknown and _creates(services, request, message):
        return tasks.answering(_create_and_answer(services, request, message, wanted, unknown, hidden))
    hidden |= _illegal(unknown)
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
    if await in_thread(services.replicas, partial(_is_early, request, message)):
        return await in_thread(services.replicas, partial(_refused_early, request, message))
    wanted = await in_thread(services.replicas, partial(queries, message.topics, request.api_version))
    return await _gathered(services, request, message, wanted)


async def _gathered(services: Services, request: Request, message: Any, wanted: list[TopicQuery] | None) -> bytes:
    """Return the answer, made in portions."""
    everything, checked, refusals = wanted is None, set[str | None](), dict[str, ErrorCode]()
    if wanted is None:
        wanted = await _everything(services, request)
    else:
        checked, refusals = await _refused(services, request, message, wanted)
    with_operations = request.api_version >= 8 and message.include_topic_authorized_operations
    each = 1 if services.rights.is_open or not with_operations else OPERATIONS_PARTS
    topics: list[Fields] = []
    fields: Fields = {}
    is_alone = _is_long(services.metadata, wanted, PARTS_ALONE)
    async with services.turns.large if is_alone else nullcontext():
        for portion in _portions(services.metadata, wanted, each):
            if everything:  # without those that were deleted meanwhile
                portion = [query for query in portion if _partitions(services.metadata, query)]
            elif not services.rights.is_open:  # an id may have got a name meanwhile
                late = [query for query in portion if _name(services, query) not in checked]
                refusals |= _described(services, request, late)[1]
            fields = _fields(services, request, message, portion, refusals)
            topics += fields["topics"]
            await services.turns.next()
        return await in_thread(services.replicas, partial(_encoded, request, {**fields, "topics": topics}))


async def _refused(
    services: Services, request: Request, message: Any, wanted: list[TopicQuery]
) -> tuple[set[str | None], dict[str, ErrorCode]]:
    """Return the names that were looked at, and those that are refused, or are being created."""
    checked: set[str | None] = {None}
    refusals: dict[str, ErrorCode] = {}
    for start in range(0, len(wanted), PARTS_AT_ONCE):
        portion = wanted[start : start + PARTS_AT_ONCE]
        if not services.rights.is_open:
            checked.update(_name(services, query) for query in portion)
            refusals |= _described(services, request, portion)[1]
        unknown = _unknown(services, portion, refusals)
        if unknown and _creates(services, request, message):
            refusals |= await _created(services, request, unknown)
        else:
            refusals |= _illegal(unknown)
        await services.turns.next()
    return checked, refusals


async def _everything(services: Services, request: Request) -> list[TopicQuery]:
    """Return all topics that the principal may describe."""
    pauses, names = Pauses(services), list(services.metadata.topics())
    need = RIGHTS[API_KEY].topic
    described = await authorization.allowed_of_many(services, request, pauses, need, names, tells=False)
    return [TopicQuery(name) async for name in pauses.between(names) if name in described]


def _portions(metadata: MetadataCache, wanted: list[TopicQuery], each: int) -> Iterator[list[TopicQuery]]:
    """Split them so that each portion is a turn's work, at least one; a topic takes `each` and its partitions."""
    portion: list[TopicQuery] = []
    parts = 0
    for query in wanted:
        portion.append(query)
        parts += each + _partitions(metadata, query)
        if parts >= PARTS_AT_ONCE:
            yield portion
            portion, parts = [], 0
    if portion or not wanted:
        yield portion


def _partitions(metadata: MetadataCache, query: TopicQuery) -> int:
    name = query.name if query.name is not None else metadata.topic_name(query.topic_id)
    return 0 if name is None else len(metadata.partitions(name))


def _is_long(metadata: MetadataCache, wanted: list[TopicQuery] | None, parts: int = PARTS_AT_ONCE) -> bool:
    """Whether an answer has more parts than these, by default what is made in one turn; looks at no more than that."""
    left = parts
    for query in map(TopicQuery, metadata.topics()) if wanted is None else wanted:
        left -= 1 + _partitions(metadata, query)
        if left < 0:
            return True
    return False


def _shared(
    services: Services,
    request: Request,
    message: Any,
    wanted: list[TopicQuery] | None,
    seen_at: Versions,
    viewer: Viewer,
) -> "asyncio.Future[Encoded]":
    """Answer all who ask the same, of the same metadata, with what is made once.

    Where names are refused, or all that is allowed is logged, each makes its own: that is written into the audit log.
    """
    rights, answers = services.rights, services.metadata_answers
    is_same = (rights.is_open or wanted is None) and not rights.logs_allowed
    if not is_same or _unknown(services, wanted or (), ()):
        return tasks.answering(_own(services, request, _making(services, request, message, wanted)))
    made = answers.making(request, seen_at, viewer)
    if made is None:
        made = tasks.answering(_kept(services, request, seen_at, viewer, _making(services, request, message, wanted)))
        answers.begin(request, seen_at, viewer, made)
    return tasks.answering(_own(services, request, asyncio.shield(made)))


async def _kept(
    services: Services, request: Request, seen_at: Versions, viewer: Viewer, work: Awaitable[bytes]
) -> bytes:
    try:
        answer = await work
        services.metadata_answers.put(request, seen_at, viewer, answer)
        return answer
    finally:
        services.metadata_answers.end(request, seen_at, viewer)


async def _making(services: Services, request: Request, message: Any, wanted: list[TopicQuery] | None) -> bytes:
    work = _gathered(services, request, message, wanted)
    return await (Timed(request, work) if request.begun_s else work)


async def _own(services: Services, request: Request, made: Awaitable[bytes]) -> Encoded:
    return _charged(services, request, answering(request, await made))


def _read(request: Request) -> tuple[Any, list[TopicQuery] | None]:
    message = codec.decode_request(API_KEY, request.api_version, request.body)
    return message, queries(message.topics, request.api_version)


def _is_early(request: Request, message: Any) -> bool:
    """Whether it names a topic by its id, or not at all, in a version that has the fields for it and no more."""
    if not IDS_IN_REQUESTS_SINCE <= request.api_version < BY_ID_SINCE:
        return False
    return any(topic.name is None or topic.topic_id != ZERO_TOPIC_ID for topic in message.topics or ())


def _refused_early(request: Request, message: Any) -> bytes:
    """As Kafka: each topic is INVALID_REQUEST, and nothing is told of the cluster. A name may not be null there."""
    code = int(ErrorCode.INVALID_REQUEST)
    topics = [{"error_code": code, "name": t.name or "", "topic_id": t.topic_id} for t in message.topics]
    return _encoded(request, {"topics": topics})


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


def _illegal(unknown: Iterable[str]) -> dict[str, ErrorCode]:
    """Return the refusals of names that no topic can have: clients ask again for those that are only unknown."""
    return {name: ErrorCode.INVALID_TOPIC_EXCEPTION for name in unknown if name_problem(name) is not None}


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
    refusals |= _illegal(name for name in unknown if name in creatable)
    wanted = [name for name in unknown if name not in refusals]
    for name in wanted:
        if name in INTERNAL_TOPICS:
            refusals[name] = await services.auto_create.create_internal(name)
    return refusals | await services.auto_create.create([name for name in wanted if name not in INTERNAL_TOPICS])


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
