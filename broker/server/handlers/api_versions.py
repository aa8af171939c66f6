"""ApiVersions (18): what this broker serves. v3 tells the client's software; the response header is always v0."""

from typing import Any

from logyard.broker.server.api_versions import SUPPORTED
from logyard.broker.server.request import Fields, Handler, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version >= 3:
        request.session.client_software = f"{message.client_software_name} {message.client_software_version}"
    return {
        "error_code": 0,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in sorted(SUPPORTED.items())
        ],
    }


HANDLER = Handler(18, "ApiVersions", message=handle)
