"""The routes that a broker serves over HTTP: /health and /metrics for monitoring, /leases and /partitions for jobs.

They only translate between HTTP and LeaseService; docs/leases.md is the contract of the lease routes.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from logyard.broker.errors import StorageError
from logyard.broker.http.token import matches
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.service import LeaseService

JSON_BYTES_MAX = 4 * 1024 * 1024

log = structlog.get_logger("logyard.http")

Json = dict[str, Any]


Endpoint = Callable[[Request], Awaitable[Response]]


def build(
    lease_service: LeaseService, token: str, health: Callable[[], tuple[bool, Json]], metrics: Callable[[], bytes]
) -> Starlette:
    """Return the ASGI application. `health` gives (ready, details), `metrics` Prometheus text."""

    async def show_health(request: Request) -> Response:
        ready, details = health()
        return JSONResponse(details, 200 if ready else 503)

    async def show_metrics(request: Request) -> Response:
        return PlainTextResponse(metrics(), media_type="text/plain; version=0.0.4")

    routes = [Route("/health", show_health), Route("/metrics", show_metrics)]
    for path, method, endpoint in (*lease_routes(lease_service), *replica_routes(lease_service)):
        routes.append(Route(path, guarded(endpoint, token), methods=[method]))
    for path, method, endpoint in decision_routes(lease_service):
        routes.append(Route(path, answered(endpoint), methods=[method]))
    return Starlette(routes=routes)


def guarded(endpoint: Endpoint, token: str) -> Endpoint:
    """Return the endpoint with a check of the token before it."""
    answer = answered(endpoint)

    async def guard(request: Request) -> Response:
        if not matches(request.headers.get("authorization"), token):
            return _refusal(LeaseError("unauthorized", 401, "send the token of http.token as a bearer token"))
        return await answer(request)

    return guard


def answered(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with its errors as answers: LeaseError, StorageError and OSError."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except LeaseError as error:
            return _refusal(error)
        except StorageError as error:
            return _refusal(LeaseError("storage", 507, str(error)))
        except OSError as error:
            log.error("disk failed during a lease request", path=request.url.path, error=str(error))
            return _refusal(LeaseError("storage", 507, f"disk: {error.strerror}"))

    return answer


def lease_routes(lease_service: LeaseService) -> list[tuple[str, str, Endpoint]]:
    """Return (path, method, endpoint) of the routes of leases."""

    async def take(request: Request) -> Response:
        return JSONResponse(await lease_service.grant(await _body(request)), 201)

    async def list_leases(request: Request) -> Response:
        return JSONResponse(lease_service.list_leases(request.query_params.get("run_id")))

    async def show(request: Request) -> Response:
        return JSONResponse(lease_service.show(request.path_params["lease_id"]))

    async def heartbeat(request: Request) -> Response:
        return JSONResponse(await lease_service.heartbeat(request.path_params["lease_id"], await _body(request)))

    async def read(request: Request) -> Response:
        params = request.path_params
        wanted = _byte_range(request.headers.get("range"))
        start, end, size, chunks = lease_service.read(params["lease_id"], params["base_offset"], params["file"], wanted)
        headers = {"content-length": str(end - start), "content-type": "application/octet-stream"}
        if wanted is not None:
            headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
        return StreamingResponse(chunks, 200 if wanted is None else 206, headers)

    async def put_part(request: Request) -> Response:
        params = request.path_params
        size = _whole_number("Content-Length", request.headers.get("content-length"))
        generation = _whole_number("generation", request.query_params.get("generation"))
        digest = request.headers.get("x-content-sha256", "").lower()
        made, answer = await lease_service.put_part(
            params["lease_id"], params["base_offset"], generation, size, digest, request.stream()
        )
        return JSONResponse(answer, 201 if made else 200)

    async def commit(request: Request) -> Response:
        return JSONResponse(await lease_service.commit(request.path_params["lease_id"], await _body(request)))

    async def abort(request: Request) -> Response:
        return JSONResponse(await lease_service.abort(request.path_params["lease_id"], await _body(request)))

    return [
        ("/leases", "POST", take),
        ("/leases", "GET", list_leases),
        ("/leases/{lease_id}", "GET", show),
        ("/leases/{lease_id}/heartbeat", "POST", heartbeat),
        ("/leases/{lease_id}/segments/{base_offset:int}/{file}", "GET", read),
        ("/leases/{lease_id}/parts/{base_offset:int}", "PUT", put_part),
        ("/leases/{lease_id}/commit", "POST", commit),
        ("/leases/{lease_id}/abort", "POST", abort),
    ]


def replica_routes(lease_service: LeaseService) -> list[tuple[str, str, Endpoint]]:
    """Return (path, method, endpoint) of the routes of replicas, without a lease."""

    async def partitions(request: Request) -> Response:
        return JSONResponse(await lease_service.partitions())

    async def partition(request: Request) -> Response:
        return JSONResponse(
            await lease_service.partition(request.path_params["topic"], request.path_params["partition"])
        )

    async def quarantine(request: Request) -> Response:
        params = request.path_params
        return JSONResponse(await lease_service.quarantine(params["topic"], params["partition"], await _body(request)))

    return [
        ("/partitions/{topic}/{partition:int}/quarantine", "POST", quarantine),
        ("/partitions", "GET", partitions),
        ("/partitions/{topic}/{partition:int}", "GET", partition),
    ]


def decision_routes(lease_service: LeaseService) -> list[tuple[str, str, Endpoint]]:
    """Return (path, method, endpoint) of what brokers ask each other, without a token."""

    async def decisions(request: Request) -> Response:
        return JSONResponse(lease_service.decisions())

    async def decision(request: Request) -> Response:
        data, sha256 = await lease_service.decision(request.path_params["topic"], request.path_params["partition"])
        return Response(data, media_type="application/octet-stream", headers={"x-content-sha256": sha256})

    return [
        ("/decisions", "GET", decisions),
        ("/decisions/{topic}/{partition:int}", "GET", decision),
    ]


def _refusal(error: LeaseError) -> Response:
    return JSONResponse({"error": error.code, "message": str(error), **error.extra}, error.status)


async def _body(request: Request) -> Json:
    """Read a JSON object of at most 4 MiB; raises LeaseError."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > JSON_BYTES_MAX:
            raise LeaseError("too_large", 413, f"a JSON body may have at most {JSON_BYTES_MAX} bytes")
    try:
        body = json.loads(data)
    except ValueError as error:
        raise LeaseError("invalid_request", 400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise LeaseError("invalid_request", 400, "the body must be a JSON object")
    return body


def _whole_number(name: str, text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise LeaseError("invalid_request", 400, f"{name}: a whole number is needed, not {text!r}")
    return int(text)


def _byte_range(header: str | None) -> tuple[int, int | None] | None:
    """Read `bytes=A-B` or `bytes=A-` into (A, B+1 or None); None if there is no header."""
    if header is None:
        return None
    first, dash, last = header.removeprefix("bytes=").partition("-")
    if not header.startswith("bytes=") or not dash or not first.isdecimal() or (last and not last.isdecimal()):
        raise LeaseError("range_wanted", 416, f"Range {header!r}: only bytes=A-B and bytes=A- are supported")
    return int(first), int(last) + 1 if last else None
