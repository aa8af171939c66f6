"""LeaderAndIsr (4), from the controller: lead or follow these partitions; v5 answers with topic ids (facts §9, §22)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.replication import wire
from logyard.broker.replication.events import PartitionErrors
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    order = wire.leader_and_isr(message, request.api_version)
    stale = services.replicas.requests.admit(order)
    if stale is not ErrorCode.NONE:
        return wire.leader_and_isr_response(PartitionErrors(stale), request.api_version)
    # A log is opened with its topic's settings: of a new topic they may not have been notified yet.
    new = dict.fromkeys(p.tp.topic for p in order.partitions if services.store.logs.get(p.tp) is None)
    if new:
        await services.refresh_topic_overrides(new)
    unknown = [p.tp for p in order.partitions if services.store.logs.get(p.tp) is None]
    outcome = services.replicas.requests.become_leader_or_follower(order)
    made = [tp for tp in unknown if services.store.logs.get(tp) is not None]
    control_log.say(request, "LeaderAndIsr", order, outcome.error, [p.tp for p in order.partitions], made=made)
    return wire.leader_and_isr_response(outcome, request.api_version)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": [], "topics": []}


HANDLER = Handler(message=handle, error=error)
