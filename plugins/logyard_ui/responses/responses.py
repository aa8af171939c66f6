"""HTTP responses: 304 and an empty body where nothing has changed, and errors of one line."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from logyard.plugins.logyard_ui.cache.cache import Cached
from logyard.plugins.logyard_ui.cache.worker import Busy
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.optional_parts import error_line

T = TypeVar("T")

HEADERS = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}


def respond(request: Request, document: Document, media_type: str = "application/json") -> Response:
    """The document, compressed where the client accepts gzip; 304 where the client has this version."""
    headers = HEADERS | {"ETag": f'W/"{document.version}"'}
    if document.version in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    compressed = document.compressed if "gzip" in request.headers.get("accept-encoding", "") else None
    if compressed is not None:
        return Response(compressed, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(document.body, media_type=media_type, headers=headers)


def respond_json(request: Request, content: Mapping[str, Any]) -> Response:
    return respond(request, Document.plain(content))


async def respond_in_thread(request: Request, build: Callable[[], Mapping[str, Any]]) -> Response:
    """The same for content that may be long: it is built, encoded and compressed in a thread, off the event loop."""

    def document() -> Document:
        made = Document.plain(build())
        _ = made.compressed
        return made

    return respond(request, await asyncio.to_thread(document))


def required(cached: Cached[T]) -> T:
    """The value of a part that the answer needs. Raises HTTPException: 502 its read failed, 504 it is not read yet."""
    if cached.problem is not None:
        raise HTTPException(502, error_line(cached.problem))
    if cached.value is None:
        raise HTTPException(504, "not read yet: ask again in a moment")
    return cached.value


def add_handlers(app: FastAPI) -> None:
    """Answer every error with `{"detail": "one line"}`."""

    @app.exception_handler(Busy)
    def busy(request: Request, problem: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(problem)}, 503, headers={"Retry-After": "2"})

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, problem: Exception) -> JSONResponse:
        errors = problem.errors() if isinstance(problem, RequestValidationError) else []
        text = "; ".join(f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in errors[:3])
        return JSONResponse({"detail": text[:1000] or "a parameter is wrong"}, 422)
