"""DescribeGroups (15): v3 adds authorised operations, v4 instance ids.

A group that is named twice is described once, other than by Kafka: some kilobytes that name a large one again and again
would have an answer of gigabytes.
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights import Resource
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    wants_operations = request.api_version >= 3 and message.include_authorized_operations
    pauses, groups = Pauses(services), []
    need = RIGHTS[request.api_key].group
    described = await authorization.allowed_of_many(services, request, pauses, need, message.groups)
    for group_id in await pauses.counted(message.groups):
        if group_id in described:
            groups.append(await _described(services, request, pauses, group_id, wants_operations))
        else:
            groups.append(_refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        await pauses.after(parts_of_name(group_id))
    return {"groups": groups}


async def _described(
    services: Services, request: Request, pauses: Pauses, group_id: str, wants_operations: bool
) -> Fields:
    group = services.groups.describe(group_id)
    operations = authorization.NOT_ASKED
    if wants_operations and group.error is ErrorCode.NONE:
        operations = authorization.operations(services, request, Resource.GROUP, group_id)
    return {
        "error_code": int(group.error),
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "member_metadata": m.metadata,
                "member_assignment": m.assignment,
            }
            async for m in pauses.between(group.members)
        ],
        "authorized_operations": operations,
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"groups": [_refused(group_id, code) for group_id in message.groups]}


def _refused(group_id: str, code: ErrorCode) -> Fields:
    return {
        "error_code": int(code),
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


HANDLER = Handler(message=handle, error=error)
