"""ListGroups (16): v4 adds a filter by state (KIP-518), v5 one by type; all groups here are classic ones."""

from collections.abc import Container
from typing import Any

from logyard.broker.groups.members import GroupState
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

TYPE = "classic"
STATES = {state.value.lower(): state for state in GroupState}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses, listed = Pauses(services), []
    # A client may name millions of states: none but ours is kept.
    named = message.states_filter if request.api_version >= 4 else ()
    states = {STATES.get(name.lower()) async for name in pauses.between(named)}
    types = message.types_filter if request.api_version >= 5 else ()
    ours = [True async for name in pauses.between(types) if name.lower() == TYPE]
    code, groups = services.groups.list_groups()
    if types and not ours:
        groups = []
    seen: Container[str] = authorization.EVERYTHING
    if not authorization.may(services, request, RIGHTS[request.api_key].cluster, tells=False):
        seen = await authorization.seen_of_many(services, request, pauses, (group.group_id for group in groups))
    async for group in pauses.between(groups):
        if group.group_id not in seen or (states and group.state not in states):
            continue
        listed.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": TYPE,
            }
        )
    return {"error_code": int(code), "groups": listed}


HANDLER = Handler(message=handle)
