"""SyncGroup (14): v3 adds static members, v5 protocol type and name, which are checked (KIP-559)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.groups.events import Sync
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

NAMED_SINCE = 5


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    if version >= NAMED_SINCE and (message.protocol_type is None or message.protocol_name is None):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    authorization.require(services, request, RIGHTS[request.api_key].group, message.group_id)
    assignments = {
        each.member_id: bytes(each.assignment) async for each in Pauses(services).between(message.assignments)
    }
    synced = await services.groups.sync(
        message.group_id,
        Sync(
            message.member_id,
            message.group_instance_id if version >= 3 else None,
            message.generation_id,
            message.protocol_type if version >= 5 else None,
            message.protocol_name if version >= 5 else None,
            assignments,
        ),
    )
    return {
        "error_code": int(synced.error),
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


HANDLER = Handler(message=handle)
