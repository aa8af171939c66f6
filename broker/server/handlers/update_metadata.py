"""UpdateMetadata (6), from the controller: the live brokers, and the state of these partitions."""

from typing import Any

from logyard.broker.metadata import wire
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    update = wire.update_metadata(message, request.api_version)
    error = services.replicas.requests.update_metadata(update)
    control_log.say(request, "UpdateMetadata", update, error, [p.tp for p in update.partitions])
    return {"error_code": int(error)}


HANDLER = Handler(message=handle)
