"""DescribeGroups (15): v3 adds authorised operations, v4 instance ids."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

# Read, Delete, Describe: the operations on a group, as a bit field (KIP-430).
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
NOT_ASKED = -(2**31)


def handle(services: Services, request: Request, message: Any) -> Fields:
    wants_operations = request.api_version >= 3 and message.include_authorized_operations
    return {"groups": [_described(services, group_id, wants_operations) for group_id in message.groups]}


def _described(services: Services, group_id: str, wants_operations: bool) -> Fields:
    group = services.groups.describe(group_id)
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
            for m in group.members
        ],
        "authorized_operations": GROUP_OPERATIONS if wants_operations else NOT_ASKED,
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "groups": [
            {
                "error_code": int(code),
                "group_id": group_id,
                "group_state": "",
                "protocol_type": "",
                "protocol_data": "",
                "members": [],
            }
            for group_id in message.groups
        ]
    }


HANDLER = Handler(message=handle, error=error)
