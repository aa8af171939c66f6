"""The routes of runs and their tokens (docs/leases.md, Tokens of runs).

Only who has logged in as a user begins and renews runs. A run's token ends its own run: the driver's part that ends a
read may have nothing else.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from logyard.broker.http.access import Endpoint, caller_of, forbidden
from logyard.broker.http.bodies import read_body
from logyard.broker.http.rights_table import Route
from logyard.broker.http.run_tokens import TTL_MS_DEFAULT, TTL_MS_MAX, TTL_MS_MIN, Run, RunToken, RunTokens
from logyard.broker.leases.book import Purpose
from logyard.broker.leases.requests import RUN_ID_CHARACTERS_MAX, invalid_request

TOPIC_CHARACTERS_MAX = 249

log = structlog.get_logger("logyard.http")


class Kept(Protocol):
    """What keeps the runs over a restart (run_file.py)."""

    async def save(self) -> None: ...


def run_routes(runs: RunTokens, file: Kept) -> list[tuple[Route, Endpoint]]:
    """Return the routes with their endpoints."""

    async def issue(request: Request) -> Response:
        body = await read_body(request)
        topic = str(body["topic"])
        if not 0 < len(topic) <= TOPIC_CHARACTERS_MAX:
            raise invalid_request(f"topic: 1 to {TOPIC_CHARACTERS_MAX} characters are expected")
        run = runs.begin(caller_of(request).principal, _run_id(body), _ttl_ms(body) or TTL_MS_DEFAULT)
        await file.save()
        token = runs.token(run, topic, Purpose(body["purpose"]))
        return JSONResponse({"token": token, **_described(run)}, 201, {"cache-control": "no-store"})

    async def renew(request: Request) -> Response:
        body = await read_body(request)
        run = runs.renew(caller_of(request).principal, _run_id(body), _ttl_ms(body))
        await file.save()
        return JSONResponse(_described(run))

    async def end(request: Request) -> Response:
        caller, run_id = caller_of(request), _run_id(await read_body(request))
        if caller.token is not None and caller.token.run_id != run_id:
            raise forbidden("this token is for another run")
        ended = runs.end(caller.principal, run_id)
        # Also where it had ended before: the file may not have been written then.
        await file.save()
        return JSONResponse({"run_id": run_id, "ended": ended})

    return [
        (Route("POST", "/tokens"), issue),
        (Route("POST", "/runs/renew"), renew),
        (Route("POST", "/runs/end"), end),
    ]


def keeping(runs: RunTokens, file: Kept) -> Callable[[RunToken], Awaitable[None]]:
    """Return what renews a run while its token is used."""

    async def in_use(token: RunToken) -> None:
        if not runs.touch(token):
            return
        try:
            await file.save()
        except OSError as error:
            # The run goes on here; only a restart would end it early. Its work is not refused for that.
            log.warning("the runs with tokens could not be kept", error=str(error))

    return in_use


def _described(run: Run) -> dict[str, Any]:
    return {"run_id": run.run_id, "ttl_ms": run.ttl_ms, "expires_at_ms": run.expires_ms}


def _run_id(body: Mapping[str, Any]) -> str:
    run_id = body.get("run_id")
    if not isinstance(run_id, str) or not 0 < len(run_id) <= RUN_ID_CHARACTERS_MAX:
        raise invalid_request(f"run_id: a text of 1 to {RUN_ID_CHARACTERS_MAX} characters is expected")
    return run_id


def _ttl_ms(body: Mapping[str, Any]) -> int | None:
    ttl_ms = body.get("ttl_ms")
    if ttl_ms is None:
        return None
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or not TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX:
        raise invalid_request(f"ttl_ms: {TTL_MS_MIN} to {TTL_MS_MAX} is expected")
    return ttl_ms
