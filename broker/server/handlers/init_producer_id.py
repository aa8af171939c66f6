"""InitProducerId (22): a producer id and epoch, for an idempotent producer or a transactional id (KIP-98, KIP-360)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights import Operation, Resource
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since
from logyard.broker.transactions.events import NO_EPOCH, NO_PRODUCER_ID, Initialize, Producer

KNOWN_PAIR_SINCE = 3
PRODUCER_FENCED_SINCE = 4


async def handle(services: Services, request: Request, message: Any) -> Fields:
    transactional_id = message.transactional_id
    if transactional_id is not None:
        authorization.require(services, request, RIGHTS[request.api_key].transactional_id, transactional_id)
    else:
        _require_idempotent_write(services, request)
    known = _known(request, message)
    if transactional_id is None:
        producer_id = await services.producer_ids.next()
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
    asked = Initialize(transactional_id, message.transaction_timeout_ms, known)
    answer = await services.transactions.initialize(asked)
    code = answered_since(PRODUCER_FENCED_SINCE, request, answer.error)
    return {
        "error_code": int(code),
        "producer_id": answer.producer.producer_id,
        "producer_epoch": answer.producer.epoch,
    }


def _require_idempotent_write(services: Services, request: Request) -> None:
    """Raise ApiError: CLUSTER_AUTHORIZATION_FAILED, without the right to it or to write to at least one topic."""
    row = RIGHTS[request.api_key]
    if authorization.may(services, request, row.cluster, tells=False):
        return
    if not services.rights.allow_any(request.session, Operation.WRITE, Resource.TOPIC, request.api_key):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _known(request: Request, message: Any) -> Producer | None:
    if request.api_version < KNOWN_PAIR_SINCE:
        return None
    has_id, has_epoch = message.producer_id != NO_PRODUCER_ID, message.producer_epoch != NO_EPOCH
    if has_id is not has_epoch:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and an epoch: both or none")
    return Producer(message.producer_id, message.producer_epoch) if has_id else None


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}


HANDLER = Handler(message=handle, error=error)
