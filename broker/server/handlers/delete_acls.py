"""DeleteAcls (31): deletes the ACLs that filters match, at any broker; v1 adds prefixes (facts §18.4)."""

from collections.abc import Mapping
from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.security.acls.store import Binding
from logyard.broker.server.acl_fields import SECURITY_DISABLED, filter_of
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    filters = [filter_of(each) for each in message.filters]
    if services.acls is None:
        return error(message, request.api_version, ErrorCode.SECURITY_DISABLED, SECURITY_DISABLED)
    deleted = await services.acls.delete(filters)
    return {
        "filter_results": [{"error_code": 0, "error_message": None, "matching_acls": _acls(each)} for each in deleted]
    }


def _acls(deleted: Mapping[Binding, ApiError | None]) -> list[Fields]:
    return [
        {
            "error_code": int(ErrorCode.NONE if problem is None else problem.code),
            "error_message": None if problem is None else problem.message,
            "resource_type": int(pattern.type),
            "resource_name": pattern.name,
            "pattern_type": int(pattern.kind),
            "principal": entry.principal,
            "host": entry.host,
            "operation": int(entry.operation),
            "permission_type": int(entry.permission),
        }
        for (pattern, entry), problem in deleted.items()
    ]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused: Fields = {"error_code": int(code), "error_message": text, "matching_acls": []}
    return {"filter_results": [refused for _ in message.filters]}


HANDLER = Handler(message=handle, error=error)
