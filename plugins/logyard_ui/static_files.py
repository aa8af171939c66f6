"""The page's ES modules, from `static/`."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as InPath
from fastapi.responses import Response

from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.responses import respond

STATIC = Path(__file__).parent / "static"

router = APIRouter()

ModuleName = Annotated[str, InPath(pattern=r"^[a-z0-9_-]{1,64}$")]


@router.get("/static/{name}.js", include_in_schema=False)
def module(request: Request, name: ModuleName) -> Response:
    """One ES module."""
    return _served(request, STATIC / f"{name}.js")


@router.get("/static/vendor/{name}.js", include_in_schema=False)
def library(request: Request, name: ModuleName) -> Response:
    """A library of others, as an ES module."""
    return _served(request, STATIC / "vendor" / f"{name}.js")


def _served(request: Request, path: Path) -> Response:
    try:
        source = path.read_bytes()
    except OSError:
        raise HTTPException(404, f"there is no module {path.name}") from None
    return respond(request, Document.raw(source), "text/javascript; charset=utf-8")
