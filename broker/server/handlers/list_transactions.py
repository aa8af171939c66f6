"""ListTransactions (66): the transactional ids that this broker coordinates; v1 adds a filter by duration (KIP-994)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.transactions.states import STATES

ANY_DURATION = -1


async def handle(services: Services, request: Request, message: Any) -> Fields:
    states = [STATES[name] for name in message.state_filters if name in STATES] if message.state_filters else None
    duration_ms = message.duration_filter if request.api_version >= 1 else ANY_DURATION
    found = services.transactions.matching(states, set(message.producer_id_filters), duration_ms)
    if found is None:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pauses, listed = Pauses(services), []
    seen = await authorization.seen_of_many(services, request, pauses, (each.transactional_id for each in found))
    for each in found:
        await pauses.after(1)
        if each.transactional_id in seen:
            listed.append(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.stored.producer_id,
                    "transaction_state": each.state.label,
                }
            )
    return {
        "error_code": 0,
        "unknown_state_filters": [name for name in message.state_filters if name not in STATES],
        "transaction_states": listed,
    }


HANDLER = Handler(message=handle)
