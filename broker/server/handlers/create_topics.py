"""CreateTopics (19): from v4 on -1 means the default, v5 adds counts and configs to the answer (KIP-525), v7 topic ids.

Only the active controller serves it. The answer waits until all partitions have leaders in this broker's metadata; if
that takes longer than the request's timeout, it is REQUEST_TIMED_OUT and the creation goes on (facts §14).
"""

from collections.abc import Container, Sequence
from typing import Any

from logyard.broker.controller.events import CreatedTopic, CreateTopics, NewTopic
from logyard.broker.controller.topics.placement import PARTITIONS_MAX
from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import TOPICS_PER_TURN, topic_config_fields
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge
from logyard.broker.server.topic_waits import led_partitions

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 6
# The log of a KRaft quorum. As a topic it would be in the way of a migration to one.
RESERVED = "__cluster_metadata"
# What all settings of a topic take, in parts of an answer.
SETTINGS_PARTS = PARTS_AT_ONCE // TOPICS_PER_TURN


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    times = await pauses.counted(topic.name for topic in message.topics)
    once = [name async for name, count in pauses.between(times.items()) if count == 1 and name != RESERVED]
    creatable = await _creatable(services, request, pauses, once)
    described = await authorization.seen_of_many(services, request, pauses, times)
    validate_only = request.api_version >= 1 and bool(message.validate_only)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    wanted: list[NewTopic] = []
    sizes: dict[str, int] = {}
    refused: list[CreatedTopic] = []
    async for topic in pauses.between(message.topics):
        name = topic.name
        if times[name] > 1 or name == RESERVED or name not in creatable:
            continue
        new = await _new_topic(pauses, topic)
        sizes[name] = _cost(services, new)
        if not validate_only and sizes[name] and charge.refuses(sizes[name]):
            refused.append(CreatedTopic(name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED))
        else:
            wanted.append(new)
    created = await services.controller.ask(CreateTopics(wanted, validate_only))
    if not validate_only:
        async for made in pauses.between(created):
            if made.error is not ErrorCode.NONE:
                charge.give_back(sizes[made.name])
        created = await _led(services, pauses, created, message.timeout_ms)
    async for name, count in pauses.between(times.items()):
        refusal = _refusal(name, count, creatable)
        if refusal is not None:
            refused.append(refusal)
    told = []
    for made in (*created, *refused):
        # As in Kafka, of what was tried and failed it is not told that its settings are hidden.
        is_failed = made.name == RESERVED or (made.error is not ErrorCode.NONE and made.name in sizes)
        told.append(_failed(made) if is_failed else _fields(services, made, described))
        await pauses.after(SETTINGS_PARTS if told[-1]["configs"] else 2)
    return {"throttle_time_ms": charge.throttle_ms, "topics": told}


async def _creatable(services: Services, request: Request, pauses: Pauses, names: Sequence[str]) -> Container[str]:
    if authorization.may(services, request, RIGHTS[request.api_key].cluster, tells=False):
        return authorization.EVERYTHING
    return await authorization.topics_of_many(services, request, pauses, names)


def _refusal(name: str, times: int, creatable: Container[str]) -> CreatedTopic | None:
    """Return the refusal of a name that is not even tried."""
    if name == RESERVED:
        return CreatedTopic(name, ErrorCode.INVALID_REQUEST, f"Creation of internal topic {RESERVED} is prohibited.")
    if times > 1:
        return CreatedTopic(name, ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
    if name not in creatable:
        return CreatedTopic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    return None


def _cost(services: Services, topic: NewTopic) -> int:
    """Return how many partitions are charged for: none for what is refused in any case, as it is by Kafka."""
    size = topic.num_partitions if topic.num_partitions >= 0 else services.config.int("num.partitions")
    size = len(topic.assignments) or size
    return 0 if topic.name in services.metadata or size > PARTITIONS_MAX else size


async def _new_topic(pauses: Pauses, topic: Any) -> NewTopic:
    assignments = [(a.partition_index, tuple(a.broker_ids)) async for a in pauses.between(topic.assignments)]
    settings = {c.name: c.value async for c in pauses.between(topic.configs)}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, tuple(assignments), settings)


async def _led(
    services: Services, pauses: Pauses, created: Sequence[CreatedTopic], timeout_ms: int
) -> list[CreatedTopic]:
    """Wait until the created topics have leaders; those that do not in time get REQUEST_TIMED_OUT."""
    counts = {t.name: t.num_partitions async for t in pauses.between(created) if t.error is ErrorCode.NONE}

    def is_led(name: str) -> bool:
        return led_partitions(services.metadata, name) >= counts[name]

    await services.topic_waits.until(lambda: all(is_led(name) for name in counts), timeout_ms)
    late = "the topic is being created, but some partitions have no leader yet"
    return [
        topic
        if topic.error is not ErrorCode.NONE or is_led(topic.name)
        else CreatedTopic(topic.name, ErrorCode.REQUEST_TIMED_OUT, late)
        async for topic in pauses.between(created)
    ]


def _failed(topic: CreatedTopic) -> Fields:
    return {"name": topic.name, "error_code": int(topic.error), "error_message": topic.message, "configs": []}


def _fields(services: Services, topic: CreatedTopic, described: Container[str]) -> Fields:
    if topic.name not in described:
        return {**_failed(topic), "topic_config_error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    if topic.error is not ErrorCode.NONE:
        return _failed(topic)
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
