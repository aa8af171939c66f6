"""CreateTopics (19): from v4 on -1 means the default, v5 adds counts and configs to the answer (KIP-525), v7 topic ids.

Only the active controller serves it. The answer waits until all partitions have leaders in this broker's metadata; if
that takes longer than the request's timeout, it is REQUEST_TIMED_OUT and the creation goes on (facts §14).
"""

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from logyard.broker.controller.events import CreatedTopic, CreateTopics, NewTopic
from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import TOPICS_PER_TURN, topic_config_fields
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge
from logyard.broker.server.topic_waits import led_partitions

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 6
# The log of a KRaft quorum. As a topic it would be in the way of a migration to one.
RESERVED = "__cluster_metadata"


async def handle(services: Services, request: Request, message: Any) -> Fields:
    names = [topic.name for topic in message.topics]
    twice = {name for name, count in Counter(names).items() if count > 1}
    once = [name for name in names if name not in twice and name != RESERVED]
    creatable = _creatable(services, request, once)
    described = authorization.seen(services, request, names)
    single = set(once)
    wanted = tuple(_new_topic(topic) for topic in message.topics if topic.name in single and topic.name in creatable)
    validate_only = request.api_version >= 1 and bool(message.validate_only)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    sizes = {topic.name: _size(services, topic) for topic in wanted}
    over = set() if validate_only else {name for name, size in sizes.items() if charge.refuses(size)}
    wanted = tuple(topic for topic in wanted if topic.name not in over)
    created = list(await services.controller.ask(CreateTopics(wanted, validate_only)))
    if not validate_only:
        for topic in created:
            if topic.error is not ErrorCode.NONE:
                charge.give_back(sizes[topic.name])
        created = await _led(services, created, message.timeout_ms)
    created += [CreatedTopic(name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED) for name in sorted(over)]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    created += [CreatedTopic(name, denied, "Authorization failed.") for name in once if name not in creatable]
    refusal = "the request names this topic more than once"
    created += [CreatedTopic(name, ErrorCode.INVALID_REQUEST, refusal) for name in sorted(twice - {RESERVED})]
    if RESERVED in names:
        prohibited = f"Creation of internal topic {RESERVED} is prohibited."
        created.append(CreatedTopic(RESERVED, ErrorCode.INVALID_REQUEST, prohibited))
    told = []
    for number, topic in enumerate(created, 1):
        told.append(_fields(services, topic, described))
        if number % TOPICS_PER_TURN == 0:
            await services.turns.next()
    return {"throttle_time_ms": charge.throttle_ms, "topics": told}


def _creatable(services: Services, request: Request, names: Sequence[str]) -> Container[str]:
    if authorization.may(services, request, RIGHTS[request.api_key].cluster, tells=False):
        return authorization.EVERYTHING
    return authorization.topics(services, request, names)


def _size(services: Services, topic: NewTopic) -> int:
    """Return how many partitions the topic is to have."""
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions >= 0 else services.config.int("num.partitions")


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((a.partition_index, tuple(a.broker_ids)) for a in topic.assignments),
        {c.name: c.value for c in topic.configs},
    )


async def _led(services: Services, created: Sequence[CreatedTopic], timeout_ms: int) -> list[CreatedTopic]:
    """Wait until the created topics have leaders; those that do not in time get REQUEST_TIMED_OUT."""
    counts = {t.name: t.num_partitions for t in created if t.error is ErrorCode.NONE}

    def is_led(name: str) -> bool:
        return led_partitions(services.metadata, name) >= counts[name]

    await services.topic_waits.until(lambda: all(is_led(name) for name in counts), timeout_ms)
    late = "the topic is being created, but some partitions have no leader yet"
    return [
        topic
        if topic.error is not ErrorCode.NONE or is_led(topic.name)
        else CreatedTopic(topic.name, ErrorCode.REQUEST_TIMED_OUT, late)
        for topic in created
    ]


def _fields(services: Services, topic: CreatedTopic, described: Container[str]) -> Fields:
    head = {"name": topic.name, "error_code": int(topic.error), "error_message": topic.message}
    if topic.name not in described:
        return {**head, "configs": None, "topic_config_error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    if topic.error is not ErrorCode.NONE:
        return {**head, "configs": []}
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "configs": topic_config_fields(services.config, topic.configs),
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused: dict[str, Any] = {"error_code": int(code), "error_message": text, "configs": []}
    return {"topics": [{"name": topic.name, **refused} for topic in message.topics]}


HANDLER = Handler(message=handle, error=error)
