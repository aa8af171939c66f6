"""StopReplica (5), from the controller: stop these replicas, and delete some; v3 has `delete` for each partition."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.replication import wire
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    order = wire.stop_replica(message, request.api_version)
    outcome = services.replicas.requests.stop_replicas(order)
    deleted = [p.tp for p in order.partitions if p.delete]
    control_log.say(request, "StopReplica", order, outcome.error, [p.tp for p in order.partitions], deleted=deleted)
    return wire.stop_replica_response(outcome)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": []}


HANDLER = Handler(message=handle, error=error)
