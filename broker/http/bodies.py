"""The JSON bodies of requests: read once, of a bounded size."""

import json
from typing import Any

from starlette.requests import Request

from logyard.broker.leases.book import LeaseError

JSON_BYTES_MAX = 4 * 1024 * 1024

Json = dict[str, Any]


async def read_body(request: Request, bytes_max: int = JSON_BYTES_MAX) -> Json:
    """Read a JSON object, or return it again; raises LeaseError `too_large`, `invalid_request`."""
    known: Json | None = getattr(request.state, "body", None)
    if known is not None:
        return known
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > bytes_max:
            raise LeaseError("too_large", 413, f"a JSON body may have at most {bytes_max} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LeaseError("invalid_request", 400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise LeaseError("invalid_request", 400, "the body must be a JSON object")
    request.state.body = body
    return body
