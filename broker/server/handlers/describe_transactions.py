"""DescribeTransactions (65): the coordinator's state of transactional ids (KIP-664, facts §17.6)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.transactions.events import Description


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses, states = Pauses(services), []
    # An id that is named twice is described once, other than by Kafka: see describe_groups.py.
    for name in await pauses.counted(message.transactional_ids):
        states.append(await _state(services, request, pauses, name))
        await pauses.after(parts_of_name(name) + len(states[-1]["topics"]))
    return {"transaction_states": states}


async def _state(services: Services, request: Request, pauses: Pauses, transactional_id: str) -> Fields:
    if authorization.may(services, request, RIGHTS[request.api_key].transactional_id, transactional_id):
        found = services.transactions.describe(transactional_id)
    else:
        found = Description(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics: dict[str, list[int]] = {}
    async for topic, partition in pauses.between(found.partitions):
        topics.setdefault(topic, []).append(partition)
    seen = await authorization.seen_of_many(services, request, pauses, topics)
    told = []
    for name in sorted(topics):
        if name in seen:
            told.append({"topic": name, "partitions": sorted(topics[name])})
            await pauses.after(len(topics[name]))
    return {
        "error_code": int(found.error),
        "transactional_id": transactional_id,
        "transaction_state": found.state,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.start_ms,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.epoch,
        "topics": told,
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"transaction_states": [{"error_code": int(code), "transactional_id": n} for n in message.transactional_ids]}


HANDLER = Handler(message=handle, error=error)
