"""DescribeAcls (29): the ACLs that a filter matches, as this broker knows them; v1 adds prefixes (facts §18.4)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.acl_fields import SECURITY_DISABLED, filter_of
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes.acls import AclEntry, ResourcePattern


async def handle(services: Services, request: Request, message: Any) -> Fields:
    wanted = filter_of(message)
    if services.acls is None:
        return error(message, request.api_version, ErrorCode.SECURITY_DISABLED, SECURITY_DISABLED)
    known, pauses = services.acls.known, Pauses(services)
    resources = []
    async for pattern in pauses.between(known.patterns()):
        if wanted.takes_pattern(pattern):
            there = known.entries(pattern)
            entries = sorted(entry for entry in there if wanted.takes_entry(entry))
            if entries:
                resources.append(_resource(pattern, entries))
            await pauses.after(len(there))
    return {"error_code": 0, "error_message": None, "resources": resources}


def _resource(pattern: ResourcePattern, entries: list[AclEntry]) -> Fields:
    return {
        "resource_type": int(pattern.type),
        "resource_name": pattern.name,
        "pattern_type": int(pattern.kind),
        "acls": [
            {
                "principal": entry.principal,
                "host": entry.host,
                "operation": int(entry.operation),
                "permission_type": int(entry.permission),
            }
            for entry in entries
        ],
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "resources": []}


HANDLER = Handler(message=handle, error=error)
