"""The routes that a broker serves over HTTP: /health and /metrics for monitoring, the others for jobs and brokers.

They only translate between HTTP and LeaseService; docs/leases.md is the contract of the lease routes. Who may use a
route is in rights_table.py; one without a row there is a KeyError at the start.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from logyard.broker.errors import StorageError
from logyard.broker.http.access import Access, Endpoint
from logyard.broker.http.bodies import read_body
from logyard.broker.http.rights_table import Route
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.service import LeaseService

log = structlog.get_logger("logyard.http")

# The digits of 2^63 - 1. Python refuses texts of numbers with thousands of digits by an error of its own.
DIGITS_MAX = 19


class NumberConvertor(IntegerConvertor):
    """A whole number in a path: the path of a longer one is unknown."""

    regex = f"[0-9]{{1,{DIGITS_MAX}}}"


register_url_convertor("number", NumberConvertor())

Health = Callable[[], tuple[bool, dict[str, Any]]]


def build(
    lease_service: LeaseService,
    access: Access,
    health: Health,
    metrics: Callable[[], Awaitable[bytes]],
    more: Sequence[tuple[Route, Endpoint]] = (),
) -> Starlette:
    """Return the ASGI application. `health` gives (ready, details), `metrics` Prometheus text.

    Raises KeyError if a route has no row in the table of rights.
    """
    routes = [
        *_monitoring_routes(health, metrics),
        *lease_routes(lease_service, access),
        *replica_routes(lease_service, access),
        *decision_routes(lease_service),
        *more,
    ]
    return Starlette(
        routes=[
            StarletteRoute(route.path, answered(access.guarded(route, endpoint)), methods=[route.method])
            for route, endpoint in routes
        ]
    )


def _monitoring_routes(health: Health, metrics: Callable[[], Awaitable[bytes]]) -> list[tuple[Route, Endpoint]]:
    async def show_health(request: Request) -> Response:
        ready, details = health()
        return JSONResponse(details, 200 if ready else 503)

    async def show_metrics(request: Request) -> Response:
        return PlainTextResponse(await metrics(), media_type="text/plain; version=0.0.4")

    return [(Route("GET", "/health"), show_health), (Route("GET", "/metrics"), show_metrics)]


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


def lease_routes(lease_service: LeaseService, access: Access) -> list[tuple[Route, Endpoint]]:
    """Return the routes of leases with their endpoints."""

    async def take(request: Request) -> Response:
        return _in_pieces(await lease_service.granted_json(await read_body(request)), 201)

    async def list_leases(request: Request) -> Response:
        sees = partial(access.sees, request)
        return _in_pieces(await lease_service.leases_json(request.query_params.get("run_id"), sees), 200)

    async def show(request: Request) -> Response:
        return JSONResponse(lease_service.show(request.path_params["lease_id"]))

    async def heartbeat(request: Request) -> Response:
        return JSONResponse(await lease_service.heartbeat(request.path_params["lease_id"], await read_body(request)))

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
        return JSONResponse(
            await lease_service.commit_of_job(request.path_params["lease_id"], await read_body(request))
        )

    async def abort(request: Request) -> Response:
        return JSONResponse(await lease_service.abort(request.path_params["lease_id"], await read_body(request)))

    return [
        (Route("POST", "/leases"), take),
        (Route("GET", "/leases"), list_leases),
        (Route("GET", "/leases/{lease_id}"), show),
        (Route("POST", "/leases/{lease_id}/heartbeat"), heartbeat),
        (Route("GET", "/leases/{lease_id}/segments/{base_offset:number}/{file}"), read),
        (Route("PUT", "/leases/{lease_id}/parts/{base_offset:number}"), put_part),
        (Route("POST", "/leases/{lease_id}/commit"), commit),
        (Route("POST", "/leases/{lease_id}/abort"), abort),
    ]


def replica_routes(lease_service: LeaseService, access: Access) -> list[tuple[Route, Endpoint]]:
    """Return the routes of replicas, without a lease, with their endpoints."""

    async def partitions(request: Request) -> Response:
        sees = partial(access.sees, request)
        return _in_pieces(await lease_service.partitions_json(sees, access.sees_cluster(request)), 200)

    async def partition(request: Request) -> Response:
        return JSONResponse(
            await lease_service.partition(request.path_params["topic"], request.path_params["partition"])
        )

    async def quarantine(request: Request) -> Response:
        params = request.path_params
        return JSONResponse(
            await lease_service.quarantine(params["topic"], params["partition"], await read_body(request))
        )

    return [
        (Route("POST", "/partitions/{topic}/{partition:number}/quarantine"), quarantine),
        (Route("GET", "/partitions"), partitions),
        (Route("GET", "/partitions/{topic}/{partition:number}"), partition),
    ]


def decision_routes(lease_service: LeaseService) -> list[tuple[Route, Endpoint]]:
    """Return the routes of what brokers ask each other, with their endpoints."""

    async def decisions(request: Request) -> Response:
        return _in_pieces(await lease_service.decisions_json(), 200)

    async def decision(request: Request) -> Response:
        data, sha256 = await lease_service.decision(request.path_params["topic"], request.path_params["partition"])
        return Response(data, media_type="application/octet-stream", headers={"x-content-sha256": sha256})

    return [
        (Route("GET", "/decisions"), decisions),
        (Route("GET", "/decisions/{topic}/{partition:number}"), decision),
    ]


def _in_pieces(pieces: Sequence[bytes], status: int) -> Response:
    headers = {"content-length": str(sum(map(len, pieces))), "content-type": "application/json"}
    return StreamingResponse(_each(pieces), status, headers)


async def _each(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _refusal(error: LeaseError) -> Response:
    headers = {}
    if error.status in (401, 429):
        headers = {"connection": "close"} | ({"www-authenticate": "Basic, Bearer"} if error.status == 401 else {})
    return JSONResponse({"error": error.code, "message": str(error), **error.extra}, error.status, headers)


def _whole_number(name: str, text: str | None) -> int:
    if text is None or not _is_number(text):
        raise LeaseError("invalid_request", 400, f"{name}: a whole number is needed, not {(text or '')[:99]!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX


def _byte_range(header: str | None) -> tuple[int, int | None] | None:
    """Read `bytes=A-B` or `bytes=A-` into (A, B+1 or None); None if there is no header."""
    if header is None:
        return None
    first, dash, last = header.removeprefix("bytes=").partition("-")
    if not header.startswith("bytes=") or not dash or not _is_number(first) or (last and not _is_number(last)):
        raise LeaseError("range_wanted", 416, f"Range {header[:99]!r}: only bytes=A-B and bytes=A- are supported")
    return int(first), int(last) + 1 if last else None
