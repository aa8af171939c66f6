"""DescribeCluster (60): brokers with their addresses on the request's listener, controller, cluster id (KIP-700)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

BROKERS, CONTROLLERS = 1, 2


def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version >= 1:
        _check_endpoint_type(message.endpoint_type)
    brokers = []
    for broker in sorted(services.metadata.brokers.values(), key=lambda b: b.id):
        endpoint = broker.endpoint(request.session.listener)
        if endpoint is not None:
            brokers.append({"broker_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack})
    operations = authorization.NOT_ASKED
    if message.include_cluster_authorized_operations:
        operations = authorization.cluster_operations(services, request)
    return {
        "error_code": 0,
        "cluster_id": services.cluster_id,
        "controller_id": services.metadata.controller_id,
        "brokers": brokers,
        "cluster_authorized_operations": operations,
    }


def _check_endpoint_type(kind: int) -> None:
    """Raise ApiError: MISMATCHED_ENDPOINT_TYPE (controllers are asked for), UNSUPPORTED_ENDPOINT_TYPE (KIP-919)."""
    if kind == CONTROLLERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is a broker (1): in ZooKeeper mode there is no endpoint of controllers",
        )
    if kind != BROKERS:
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {kind}: only 1, brokers, is served")


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "cluster_id": "", "brokers": []}


HANDLER = Handler(message=handle, error=error)
