"""UpdateMetadata (6), from the controller: who lives, and how these partitions stand."""

from typing import Any

from logyard.broker.metadata import wire
from logyard.broker.server.request import Fields, Handler, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    return {"error_code": int(services.replicas.update_metadata(wire.update_metadata(message, request.api_version)))}


HANDLER = Handler(6, "UpdateMetadata", message=handle)
