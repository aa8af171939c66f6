"""CreateAcls (30): adds ACLs, at any broker; v1 adds prefixes (facts §18.4).

The answers are Kafka's: an entry that cannot be is INVALID_REQUEST; ANY or MATCH fails the whole request, a principal
without a colon all entries of its pattern, with UNKNOWN_SERVER_ERROR.
"""

from typing import Any, NamedTuple

from logyard.broker.config.inter_broker_protocol import IBP_2_0_IV1
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.acl_fields import (
    SECURITY_DISABLED,
    operation_of,
    pattern_type_of,
    permission_of,
    refuse_unknown,
    resource_type_of,
)
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights import CLUSTER
from logyard.broker.server.services import Services
from logyard.broker.znodes.acls import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    is_principal,
)

# What an entry takes before it is written, in parts of an answer.
BINDING_PARTS = 5
NO_PRINCIPAL = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a principal is a type, a colon and a name: User:name")


class Binding(NamedTuple):
    """An ACL of the request, or why it cannot be one."""

    pattern: ResourcePattern
    entry: AclEntry
    refusal: ApiError | None


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    async for asked in pauses.between(message.creations):
        refuse_unknown(asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type)
    if services.acls is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, SECURITY_DISABLED)
    has_prefixes = services.config.ibp >= IBP_2_0_IV1
    bindings = []
    for asked in message.creations:
        await pauses.after(BINDING_PARTS)
        bindings.append(_binding(asked, has_prefixes))
    wanted: dict[ResourcePattern, set[AclEntry]] = {}
    failed: dict[ResourcePattern, ApiError] = {}
    async for binding in pauses.between(bindings):
        if binding.refusal is None:
            wanted.setdefault(binding.pattern, set()).add(binding.entry)
            if not is_principal(binding.entry.principal):
                failed[binding.pattern] = NO_PRINCIPAL
    for pattern, entries in wanted.items():
        await pauses.after(1)
        if pattern not in failed:
            try:
                await services.acls.create(pattern, entries)
            except ApiError as refusal:
                failed[pattern] = refusal
    answered = pauses.between(bindings)
    return {"results": [_result(each.refusal or failed.get(each.pattern)) async for each in answered]}


def _binding(asked: Any, has_prefixes: bool) -> Binding:
    pattern = ResourcePattern(
        resource_type_of(asked.resource_type), asked.resource_name, pattern_type_of(asked.resource_pattern_type)
    )
    entry = AclEntry(asked.principal, permission_of(asked.permission_type), operation_of(asked.operation), asked.host)
    if (
        pattern.type is ResourceType.ANY
        or pattern.kind in (PatternType.ANY, PatternType.MATCH)
        or entry.operation is Operation.ANY
        or entry.permission is Permission.ANY
    ):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters: an ACL has a value")
    refusal = _refusal(pattern, entry)
    if pattern.kind is PatternType.PREFIXED and not has_prefixes and refusal is None:
        text = "Failed to create ACL: prefixes need inter.broker.protocol.version 2.0 or newer"
        refusal = ApiError(ErrorCode.INVALID_REQUEST, text)
    return Binding(pattern, entry, refusal)


def _refusal(pattern: ResourcePattern, entry: AclEntry) -> ApiError | None:
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER:
        return ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER}")
    if not pattern.name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if not (pattern.type and pattern.kind and entry.operation and entry.permission):
        return ApiError(ErrorCode.INVALID_REQUEST, "Failed to create ACL: it has a code that is not known")
    if "/" in pattern.name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Failed to create ACL: the resource's name has a slash")
    return None


def _result(refusal: ApiError | None) -> Fields:
    if refusal is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(refusal.code), "error_message": refusal.message}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"results": [{"error_code": int(code), "error_message": text} for _ in message.creations]}


HANDLER = Handler(message=handle, error=error)
