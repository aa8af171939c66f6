"""LeaveGroup (13): one member up to v2; several, with instance ids, from v3 on (KIP-345)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import Leaver
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

# Each that leaves is logged, and its timer is stopped.
LEAVERS_AT_ONCE = 100


async def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version < 3:
        code, answers = services.groups.leave(message.group_id, [Leaver(message.member_id)])
        return {"error_code": int(code if code is not ErrorCode.NONE else answers[0])}
    members: list[Fields] = []
    # Without members too the answer tells whether this is the group's coordinator; it may become another meanwhile.
    for start in range(0, max(1, len(message.members)), LEAVERS_AT_ONCE):
        if start:
            await services.turns.next()
        portion = message.members[start : start + LEAVERS_AT_ONCE]
        leavers = [Leaver(m.member_id, m.group_instance_id) for m in portion]
        code, answers = services.groups.leave(message.group_id, leavers)
        if code is not ErrorCode.NONE:
            return {"error_code": int(code), "members": []}
        members += [
            {"member_id": who.member_id, "group_instance_id": who.instance_id, "error_code": int(answer)}
            for who, answer in zip(leavers, answers, strict=True)
        ]
    return {"error_code": int(ErrorCode.NONE), "members": members}


HANDLER = Handler(message=handle)
