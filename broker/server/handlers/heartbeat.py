"""Heartbeat (12): v3 adds static members."""

from typing import Any

from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    instance_id = message.group_instance_id if request.api_version >= 3 else None
    code = services.groups.heartbeat(message.group_id, message.member_id, instance_id, message.generation_id)
    return {"error_code": int(code)}


HANDLER = Handler(message=handle)
