"""The description of the routes: OpenAPI for programs, and a page without scripts for people."""

import html
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from logyard.plugins.logyard_ui.responses.responses import HEADERS, respond_json

router = APIRouter()

# The page needs no script, so none is allowed: a description cannot become one.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "code{font-family:ui-monospace,monospace}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;vertical-align:top;padding:.25rem .5rem;border-bottom:1px solid #8884}h2{margin-top:2rem}"
)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> Response:
    return respond_json(request, request.app.openapi())


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The routes as a page."""
    headers = HEADERS | {"Content-Security-Policy": _POLICY}
    return HTMLResponse(_page(request.app.openapi()), headers=headers)


def _page(description: dict[str, Any]) -> str:
    info = description["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(info['title'])}</h1><p>{html.escape(info.get('description', ''))}</p>",
        "<p>For programs: <a href=openapi.json><code>openapi.json</code></a>.</p>",
    ]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method, path, operation))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(p['name'])}</code><td>{'required' if p.get('required') else ''}"
        f"<td><code>{html.escape(_kind(p.get('schema', {})))}</code>"
        for p in operation.get("parameters", ())
        if p.get("in") in ("query", "path")
    )
    table = f"<table><tr><th>parameter<th><th>type{rows}</table>" if rows else ""
    text = html.escape(operation.get("description") or operation.get("summary") or "")
    return f"<h2><code>{html.escape(method.upper())} {html.escape(path)}</code></h2><p>{text}</p>{table}"


def _kind(schema: dict[str, Any]) -> str:
    """A parameter's type and bounds in a few words."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    kind = str(schema.get("type", ""))
    if kind == "array":
        kind = f"{_kind(schema.get('items', {}))}, may be repeated"
    bounds = [f"{name} {schema[name]}" for name in ("minimum", "maximum", "pattern", "default") if name in schema]
    return ", ".join([kind, *bounds])
