"""Functions that the handlers of transactional APIs share."""

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.request import Request
from logyard.broker.server.rights import Operation, Resource
from logyard.broker.server.services import Services


def require_write(services: Services, request: Request, transactional_id: str) -> None:
    """Raise ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, if the principal has no right to write with that id."""
    if not services.rights.allow(request.session, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def answered_since(first_version: int, request: Request, code: ErrorCode) -> ErrorCode:
    """Return the code; PRODUCER_FENCED as INVALID_PRODUCER_EPOCH in versions before `first_version` (KIP-588)."""
    is_old = request.api_version < first_version
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old and code is ErrorCode.PRODUCER_FENCED else code
