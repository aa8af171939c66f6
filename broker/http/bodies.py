"""The JSON bodies of requests: read once, of a bounded size."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from logyard.broker.leases.book import LeaseError

JSON_BYTES_MAX = 4 * 1024 * 1024
# Of a body of objects, lists and numbers each part takes as long as a hundred characters of a text: four megabytes of
# them took 0.3 s. The largest commit has fewer.
JSON_PARTS_MAX = 200_000
# Of a request whose connection will be closed.
REST_BYTES_MAX = 64 * 1024
REST_S = 1.0
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

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
    body = request.state.body = _parsed(data)
    return body


def _parsed(data: bytearray) -> Json:
    """Return the JSON object; raises LeaseError `invalid_request`.

    Half of a surrogate pair (U+D800) is refused: a text with one can be put into no answer and no line of the log.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > JSON_PARTS_MAX:
        raise LeaseError("too_large", 413, f"a JSON body may have at most {JSON_PARTS_MAX:,} parts")
    try:
        text = data.decode()
        body = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise LeaseError("invalid_request", 400, "the body is not valid UTF-8, or has half of a character") from error
    except (ValueError, RecursionError) as error:
        raise LeaseError("invalid_request", 400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise LeaseError("invalid_request", 400, "the body must be a JSON object")
    return body


async def drop_rest(request: Request) -> None:
    """Read what is left of a refused request, for a moment: closing with unread bytes would take the answer away."""
    size = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(REST_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > REST_BYTES_MAX:
                    return
