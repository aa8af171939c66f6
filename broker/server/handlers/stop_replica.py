"""StopReplica (5), from the controller: stop replicas, and delete those it says to; v3+ says so per partition."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.replication import wire
from logyard.broker.server.request import Fields, Handler, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    outcome = services.replicas.stop_replicas(wire.stop_replica(message, request.api_version))
    return wire.stop_replica_response(outcome)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": []}


HANDLER = Handler(5, "StopReplica", message=handle, error=error)
