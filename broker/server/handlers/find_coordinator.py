"""FindCoordinator (10): v1 adds key types and messages, v4 several keys (KIP-699)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

GROUP = 0
TRANSACTION = 1
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
NOWHERE = {"node_id": -1, "host": "", "port": -1}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    key_type = message.key_type if version >= 1 else GROUP
    if version < 4:
        return await _find(services, request, key_type, message.key, set())
    pauses, created = Pauses(services), set[str]()
    found = []
    for key in message.coordinator_keys:
        found.append({"key": key, **await _find(services, request, key_type, key, created)})
        await pauses.after(parts_of_name(key))
    return {"coordinators": found}


async def _find(services: Services, request: Request, key_type: int, key: str, created: set[str]) -> dict[str, Any]:
    """`created`: topics that this request has had created already."""
    try:
        found = await _coordinator(services, request, key_type, key, created)
        return {"error_code": 0, "error_message": "NONE", **found}
    except ApiError as refusal:
        return {"error_code": int(refusal.code), "error_message": refusal.message, **NOWHERE}


async def _coordinator(
    services: Services, request: Request, key_type: int, key: str, created: set[str]
) -> dict[str, Any]:
    topic = TOPICS.get(key_type)
    if topic is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 is a group, 1 a transactional id")
    row = RIGHTS[request.api_key]
    authorization.require(services, request, row.group if key_type == GROUP else row.transactional_id, key)
    if topic not in services.metadata:
        if topic not in created:
            created.add(topic)
            await services.auto_create.create_internal(topic)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is being created: try again")
    partitions = services.group_partitions if key_type == GROUP else services.transaction_partitions
    broker = partitions.coordinator_of(key)
    endpoint = broker.endpoint(request.session.listener) if broker is not None else None
    if broker is None or endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's partition has no leader now: try again")
    return {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    answer = {"error_code": int(code), "error_message": text, **NOWHERE}
    if version < 4:
        return answer
    return {"coordinators": [{"key": key, **answer} for key in message.coordinator_keys]}


HANDLER = Handler(message=handle, error=error)
