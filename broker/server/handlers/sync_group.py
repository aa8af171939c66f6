"""SyncGroup (14): v3 adds static members, v5 protocol type and name, which are checked (KIP-559)."""

from typing import Any

from logyard.broker.groups.events import Sync
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    synced = await services.groups.sync(
        message.group_id,
        Sync(
            message.member_id,
            message.group_instance_id if version >= 3 else None,
            message.generation_id,
            message.protocol_type if version >= 5 else None,
            message.protocol_name if version >= 5 else None,
            tuple((a.member_id, bytes(a.assignment)) for a in message.assignments),
        ),
    )
    return {
        "error_code": int(synced.error),
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


HANDLER = Handler(message=handle)
