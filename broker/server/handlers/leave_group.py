"""LeaveGroup (13): one member up to v2; several, with instance ids, from v3 on (KIP-345)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import Leaver
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version < 3:
        code, answers = services.groups.leave(message.group_id, [Leaver(message.member_id)])
        return {"error_code": int(code if code is not ErrorCode.NONE else answers[0])}
    leavers = [Leaver(m.member_id, m.group_instance_id) for m in message.members]
    code, answers = services.groups.leave(message.group_id, leavers)
    return {
        "error_code": int(code),
        "members": [
            {"member_id": who.member_id, "group_instance_id": who.instance_id, "error_code": int(answer)}
            for who, answer in zip(leavers, answers, strict=False)
        ],
    }


HANDLER = Handler(message=handle)
