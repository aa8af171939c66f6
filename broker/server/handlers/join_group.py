"""JoinGroup (11): v1 adds the rebalance timeout, v5 static members, v9 `skip_assignment` (KIP-814).

From v4 on a member joins with an id that the coordinator has given it (KIP-394). A member has PROTOCOLS_MAX protocols
at most, other than with Kafka: a group looks through those of all its members at once.
"""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode, fitting
from logyard.broker.groups.events import Join
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

# A consumer has one for each of its assignors.
PROTOCOLS_MAX = 100


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    if len(message.protocols) > PROTOCOLS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    joined = await services.groups.join(
        message.group_id,
        Join(
            member_id=message.member_id,
            instance_id=message.group_instance_id if version >= 5 else None,
            client_id=fitting(request.client_id or ""),
            client_host=f"/{request.session.client_host}",
            session_timeout_ms=message.session_timeout_ms,
            rebalance_timeout_ms=message.rebalance_timeout_ms if version >= 1 else message.session_timeout_ms,
            protocol_type=message.protocol_type,
            protocols=tuple((p.name, bytes(p.metadata)) for p in message.protocols),
            needs_known_id=version >= 4,
            can_skip_assignment=version >= 9,
        ),
    )
    return {
        "error_code": int(joined.error),
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        # Nullable from v7 on; before that it is empty if none was chosen.
        "protocol_name": joined.protocol if version >= 7 else joined.protocol or "",
        "leader": joined.leader_id,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.instance_id, "metadata": m.metadata}
            async for m in Pauses(services).between(joined.members)
        ],
    }


HANDLER = Handler(message=handle)
