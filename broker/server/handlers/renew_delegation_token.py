"""RenewDelegationToken (39): puts off the end of a token (KIP-48). Its owner and its renewers may (facts §18.5)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.token_requests import check_allowed


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "expiry_timestamp_ms": -1}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    check_allowed(request.session)
    expires_ms = await services.tokens.renew(request.session.principal, bytes(message.hmac), message.renew_period_ms)
    return {"error_code": 0, "expiry_timestamp_ms": expires_ms}


HANDLER = Handler(message=handle, error=error)
