"""Metadata (3): v4 adds whether unknown topics may be created, v8 authorised operations, v10 topic ids, v12 queries by
id.

Encoded answers are cached until the metadata changes: all clients ask the same (server/answer_cache.py).
"""

import asyncio
from typing import Any

from logyard.broker import tasks
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.response import NOT_ASKED, TopicQuery, metadata_response, queries
from logyard.broker.model import INTERNAL_TOPICS
from logyard.broker.protocol import codec
from logyard.broker.server.api import Handler
from logyard.broker.server.handlers.describe_cluster import CLUSTER_OPERATIONS
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import charge_time

API_KEY = 3
THROTTLE_TIME_SINCE = 3
FLEXIBLE_SINCE = 9
# Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, as a bit field.
TOPIC_OPERATIONS = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11


def handle(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    cached = services.metadata_answers.get(request, services.metadata.version)
    if cached is not None:
        return _charged(services, request, cached)
    message = codec.decode_request(API_KEY, request.api_version, request.body)
    wanted = queries(message.topics, request.api_version)
    unknown = [q.name for q in wanted or () if q.name is not None and q.name not in services.metadata]
    may_create = request.api_version < 4 or message.allow_auto_topic_creation
    if unknown and may_create and services.config.bool("auto.create.topics.enable"):
        return tasks.answering(_create_and_answer(services, request, message, wanted, unknown))
    answer = _answer(services, request, message, wanted, {})
    if not unknown:
        services.metadata_answers.put(request, services.metadata.version, answer)
    return _charged(services, request, answer)


async def _create_and_answer(
    services: Services, request: Request, message: Any, wanted: list[TopicQuery] | None, unknown: list[str]
) -> Encoded:
    refusals: dict[str, ErrorCode] = {}
    for name in unknown:
        if name in INTERNAL_TOPICS:
            refusals[name] = await services.auto_create.create_internal(name)
        else:
            refusals[name] = await services.auto_create.create(name)
    return _charged(services, request, _answer(services, request, message, wanted, refusals))


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


def _answer(
    services: Services,
    request: Request,
    message: Any,
    wanted: list[TopicQuery] | None,
    refusals: dict[str, ErrorCode],
) -> bytes:
    version = request.api_version
    cluster_operations, topic_operations = NOT_ASKED, None
    if 8 <= version <= 10 and message.include_cluster_authorized_operations:
        cluster_operations = CLUSTER_OPERATIONS
    if version >= 8 and message.include_topic_authorized_operations:
        topic_operations = dict.fromkeys(services.metadata.topics(), TOPIC_OPERATIONS)
    fields = metadata_response(
        services.metadata,
        wanted,
        version,
        request.session.listener,
        cluster_id=services.cluster_id,
        refusals=refusals,
        topic_operations=topic_operations,
        cluster_operations=cluster_operations,
    )
    return codec.encode_response(API_KEY, version, request.correlation_id, fields)


HANDLER = Handler(raw=handle)
