"""FindCoordinator (10): v1 key types and messages, v4 several keys (KIP-699). Transactions are not served yet."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.groups.record_format import partition_for
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

GROUP = 0
TRANSACTION = 1
NOWHERE = {"node_id": -1, "host": "", "port": -1}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    key_type = message.key_type if version >= 1 else GROUP
    if version < 4:
        return await _find(services, request, key_type, message.key)
    found = [{"key": key, **await _find(services, request, key_type, key)} for key in message.coordinator_keys]
    return {"coordinators": found}


async def _find(services: Services, request: Request, key_type: int, key: str) -> dict[str, Any]:
    try:
        if key_type == TRANSACTION:
            # The one refusal that every client takes for final: see docs/decisions/0014.
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this broker"
            )
        if key_type != GROUP:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}: only groups (0) are coordinated here")
        return {"error_code": 0, "error_message": "NONE", **await _group_coordinator(services, request, key)}
    except ApiError as refusal:
        return {"error_code": int(refusal.code), "error_message": refusal.message, **NOWHERE}


async def _group_coordinator(services: Services, request: Request, group_id: str) -> dict[str, Any]:
    count = len(services.metadata.partitions(OFFSETS_TOPIC))
    if not count:
        await services.auto_create.create_internal(OFFSETS_TOPIC)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created: try again")
    known = services.metadata.partition(TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count)))
    broker = services.metadata.brokers.get(known.leader) if known is not None else None
    endpoint = broker.endpoint(request.session.listener) if broker is not None else None
    if broker is None or endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's partition has no leader now: try again")
    return {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    answer = {"error_code": int(code), "error_message": text, **NOWHERE}
    if version < 4:
        return answer
    return {"coordinators": [{"key": key, **answer} for key in message.coordinator_keys]}


HANDLER = Handler(message=handle, error=error)
