"""Functions that the handlers of transactional APIs share."""

from logyard.broker.errors import ErrorCode
from logyard.broker.server.request import Request


def answered_since(first_version: int, request: Request, code: ErrorCode) -> ErrorCode:
    """Return the code; PRODUCER_FENCED as INVALID_PRODUCER_EPOCH in versions before `first_version` (KIP-588)."""
    is_old = request.api_version < first_version
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old and code is ErrorCode.PRODUCER_FENCED else code
