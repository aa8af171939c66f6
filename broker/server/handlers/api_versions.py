"""ApiVersions (18): the APIs and versions that this broker serves. v3 adds the name and version of the client's
software; the response header is always v0."""

import re
from typing import Any

from logyard.broker.config.features import SUPPORTED
from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

# The names and versions of a client's software that Kafka accepts (KIP-511): they get into logs and metrics.
_SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version >= 3:
        for told in (message.client_software_name, message.client_software_version):
            if not _SOFTWARE.fullmatch(told):
                return {"error_code": int(ErrorCode.INVALID_REQUEST), "api_keys": []}
        request.session.client_software = f"{message.client_software_name} {message.client_software_version}"
    features = services.features
    return {
        "error_code": 0,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(services.api_versions.items())
        ],
        "supported_features": [
            {"name": name, "min_version": levels.lowest, "max_version": levels.highest}
            for name, levels in SUPPORTED.items()
        ],
        "finalized_features_epoch": features.epoch,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in features.levels.items()
        ],
    }


HANDLER = Handler(message=handle)
