"""SaslAuthenticate (36) of a connection that is not logging in: it is refused (facts §18.1)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

_TEXT = "SaslAuthenticate request received after successful authentication"


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "auth_bytes": b""}


def handle(services: Services, request: Request, message: Any) -> Fields:
    """Answer with ILLEGAL_SASL_STATE."""
    return error(message, request.api_version, ErrorCode.ILLEGAL_SASL_STATE, _TEXT)


HANDLER = Handler(message=handle, error=error)
