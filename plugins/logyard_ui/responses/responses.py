"""Answers that cost nothing when nothing has changed, and errors of one line."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from logyard.plugins.logyard_ui.cache.cache import Found
from logyard.plugins.logyard_ui.cache.worker import Busy
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.optional_parts import told

T = TypeVar("T")

HEADERS = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}


def answer(request: Request, document: Document, media_type: str = "application/json") -> Response:
    """The document, packed where that is understood; 304 where the caller has it already."""
    headers = HEADERS | {"ETag": f'W/"{document.version}"'}
    if document.version in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    packed = document.packed if "gzip" in request.headers.get("accept-encoding", "") else None
    if packed is not None:
        return Response(packed, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(document.body, media_type=media_type, headers=headers)


def answer_json(request: Request, content: Mapping[str, Any]) -> Response:
    return answer(request, Document.plain(content))


async def answer_large(request: Request, build: Callable[[], Mapping[str, Any]]) -> Response:
    """The same for what may be long: built, written out and packed in a thread, while others are served."""

    def document() -> Document:
        made = Document.plain(build())
        _ = made.packed
        return made

    return answer(request, await asyncio.to_thread(document))


def settled(found: Found[T]) -> T:
    """The value of a part without which there is no answer. Raises HTTPException: 502 it failed, 504 not there yet."""
    if found.problem is not None:
        raise HTTPException(502, told(found.problem))
    if found.value is None:
        raise HTTPException(504, "still looking: ask again in a moment")
    return found.value


def add_handlers(app: FastAPI) -> None:
    """Errors as `{"detail": "one line"}`, whatever they are."""

    @app.exception_handler(Busy)
    def busy(request: Request, problem: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(problem)}, 503, headers={"Retry-After": "2"})

    @app.exception_handler(RequestValidationError)
    def refused(request: Request, problem: Exception) -> JSONResponse:
        errors = problem.errors() if isinstance(problem, RequestValidationError) else []
        said = "; ".join(f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in errors[:3])
        return JSONResponse({"detail": said[:1000] or "a parameter is wrong"}, 422)
