"""DescribeConfigs (32): settings of topics, brokers and loggers, and their sources; v1 adds synonyms, v3 types, docs.

Topics' settings are read from ZooKeeper at each request, in one batch, as Kafka 3.9 does (ZkConfigRepository): any
broker shows a change as soon as it was answered. A broker's settings are those that it uses now.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from logyard.broker.config.entries import ConfigEntry
from logyard.broker.controller.topics.topics import name_problem
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import BROKER, LOGGER, TOPIC, TOPICS_PER_TURN, described, meant_for_another
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.logger_levels import described_levels
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

# Several times as many as there are settings: of more names in one question it is not looked whether it comes again.
KEYS_COMPARED = 1000


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    # What is asked for twice is told once, other than by Kafka: see describe_groups.py.
    asked: dict[tuple[int, str, Hashable], Any] = {}
    known: dict[str, None] = {}
    pauses = Pauses(services)
    async for resource in pauses.between(message.resources):
        asked[resource.resource_type, resource.resource_name, _keys(resource)] = resource
        if resource.resource_type == TOPIC and resource.resource_name in services.metadata:
            known[resource.resource_name] = None
    overrides = await services.read_topic_overrides(known) if known else {}
    with_synonyms = version >= 1 and message.include_synonyms
    with_docs = version >= 3 and message.include_documentation
    results = []
    described_now = 0
    for resource in asked.values():
        if described_now >= TOPICS_PER_TURN:
            await services.turns.next()
            described_now = 0
        # A broker has ten times as many settings; and the same one may be named a thousand times.
        described_now += TOPICS_PER_TURN if resource.resource_type == BROKER else 1
        head = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            _require(services, request, resource.resource_type, resource.resource_name)
            entries = _entries(services, overrides, resource.resource_type, resource.resource_name)
        except LogyardError as problem:
            code, text = (
                (problem.code, problem.message)
                if isinstance(problem, ApiError)
                else (ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))
            )
            results.append({**head, "error_code": int(code), "error_message": text, "configs": []})
            continue
        fields = described(entries, await _wanted(pauses, resource, entries), with_synonyms, with_docs)
        results.append({**head, "error_code": 0, "error_message": None, "configs": fields})
    return {"results": results}


def _keys(resource: Any) -> Hashable:
    """Return what tells the same question again: the names of the settings that are asked for, if they are not many."""
    keys = resource.configuration_keys or ()
    return tuple(keys) if len(keys) <= KEYS_COMPARED else id(resource)


async def _wanted(pauses: Pauses, resource: Any, entries: Iterable[ConfigEntry]) -> set[str] | None:
    """Return the names of the settings that are asked for; None: all, for which Kafka takes an empty list too."""
    if not resource.configuration_keys:
        return None
    there = {entry.name for entry in entries}
    return {key async for key in pauses.between(resource.configuration_keys) if key in there}


def _require(services: Services, request: Request, kind: int, name: str) -> None:
    """Raise ApiError: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED; other types are refused later."""
    row = RIGHTS[request.api_key]
    if kind == TOPIC:
        authorization.require(services, request, row.topic, name)
    elif kind in (BROKER, LOGGER):
        authorization.require(services, request, row.cluster)


def _entries(services: Services, overrides: Mapping[str, Mapping[str, str]], kind: int, name: str) -> list[ConfigEntry]:
    if kind == TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name not in overrides:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return services.config.describe_topic(overrides[name])
    if kind == BROKER:
        if name not in ("", str(services.broker_id)):
            raise meant_for_another(services.broker_id, name)
        return services.describe_broker(cluster_wide=not name)
    if kind == LOGGER:
        return described_levels(services, name)
    raise ApiError(
        ErrorCode.INVALID_REQUEST, f"resource type {kind}: only topics (2), brokers (4) and loggers (8) have settings"
    )


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "results": [
            {
                "error_code": int(code),
                "error_message": text,
                "resource_type": r.resource_type,
                "resource_name": r.resource_name,
                "configs": [],
            }
            for r in message.resources
        ]
    }


HANDLER = Handler(message=handle, error=error)
