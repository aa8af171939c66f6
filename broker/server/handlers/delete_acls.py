"""DeleteAcls (31): deletes the ACLs that filters match, at any broker; v1 adds prefixes (facts §18.4)."""

from collections.abc import Mapping
from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.security.acls.store import Binding
from logyard.broker.server.acl_fields import SECURITY_DISABLED, filter_of
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

# What a filter takes to be read, in parts of an answer.
FILTER_PARTS = 3


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    filters = []
    for asked in message.filters:
        await pauses.after(FILTER_PARTS)
        filters.append(filter_of(asked))
    if services.acls is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, SECURITY_DISABLED)
    results: list[Fields] = []
    for each in await services.acls.delete(filters):
        await pauses.after(1 + len(each))
        results.append({"error_code": 0, "error_message": None, "matching_acls": _acls(each)})
    return {"filter_results": results}


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
