"""ListTransactions (66): the transactional ids that this broker coordinates; v1 adds a filter by duration (KIP-994)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.transactions.listing import ANY_DURATION, Wanted
from logyard.broker.transactions.states import STATES, State


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    states, unknown = set[State](), []
    async for name in pauses.between(message.state_filters):
        if name in STATES:
            states.add(STATES[name])
        else:
            unknown.append(name)
    wanted = Wanted(
        states if message.state_filters else None,
        {producer_id async for producer_id in pauses.between(message.producer_id_filters)},
        message.duration_filter if request.api_version >= 1 else ANY_DURATION,
    )
    all_of_them, now_ms = services.transactions.all(), services.clock.now_ms()
    if all_of_them is None:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = [each async for each in pauses.between(all_of_them) if wanted.has(each, now_ms)]
    seen = await authorization.seen_of_many(services, request, pauses, (each.transactional_id for each in found))
    listed = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.stored.producer_id,
            "transaction_state": each.state.label,
        }
        async for each in pauses.between(found)
        if each.transactional_id in seen
    ]
    return {
        "error_code": 0,
        "unknown_state_filters": unknown,
        "transaction_states": listed,
    }


HANDLER = Handler(message=handle)
