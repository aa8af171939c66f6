"""The page's ES modules, from `static/`.

Airflow imports three of them by name. Under these names are a few lines that import the module, and all that it needs,
from an address with a hash over all files, which a browser keeps for good: whoever opens the page again asks for one
small file instead of sixty.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as InPath
from fastapi.responses import Response

from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.responses import respond

STATIC = Path(__file__).parent / "static"
_ENTRIES = ("page", "dashboard_tile", "run_tab")
_TYPE = "text/javascript; charset=utf-8"
_FOR_GOOD = "private, max-age=31536000, immutable"
_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?"\./([a-z0-9_/-]+)\.js"', re.MULTILINE)
# The browser asks for all at once, instead of for each when the one that imports it has arrived.
_ENTRY = """for (const name of {names}) {{
  const link = document.createElement("link");
  link.rel = "modulepreload";
  link.href = new URL(`./{version}/${{name}}.js`, import.meta.url).href;
  document.head.append(link);
}}
const {{ default: view }} = await import("./{version}/{entry}.js");
export default view;
"""

router = APIRouter()

ModuleName = Annotated[str, InPath(pattern=r"^[a-z0-9_-]{1,64}$")]
Version = Annotated[str, InPath(pattern=r"^[0-9a-f]{16}$")]
Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Edition:
    """All modules as they were at one moment: name without .js → text; those of others are `vendor/NAME`."""

    signature: Signature
    modules: dict[str, bytes]

    @cached_property
    def version(self) -> str:
        found = sha256()
        for name, text in sorted(self.modules.items()):
            found.update(f"{name} {len(text)} ".encode() + text)
        return found.hexdigest()[:16]

    @cached_property
    def documents(self) -> dict[str, Document]:
        return {name: Document.raw(text) for name, text in self.modules.items()}

    def entry(self, name: str) -> Document:
        """What Airflow imports under that name."""
        names = '["' + '", "'.join(self.needed(name)) + '"]'
        return Document.raw(_ENTRY.format(names=names, version=self.version, entry=name).encode())

    def needed(self, name: str) -> list[str]:
        """The module and all that it imports, directly or not, nearest first."""
        found = {name: None}
        for one in (waiting := [name]):
            imported = [next_one for next_one in _IMPORT.findall(self.modules[one].decode()) if next_one not in found]
            found |= dict.fromkeys(imported)
            waiting += imported
        return list(found)


class Editions:
    """The files of a folder, kept in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: Edition | None = None

    def now(self) -> Edition:
        """The files as they are now; read again where one has changed."""
        signature = tuple(sorted(self._signature()))
        if self._kept is None or self._kept.signature != signature:
            modules = {name: (self._folder / f"{name}.js").read_bytes() for name, *_ in signature}
            self._kept = Edition(signature, modules)
        return self._kept

    def kept(self) -> Edition:
        """The files as they were when `now` was asked last."""
        return self._kept or self.now()

    def _signature(self) -> Iterator[tuple[str, int, int]]:
        for below in ("", "vendor/"):
            for path in (self._folder / below).glob("*.js"):
                state = path.stat()
                yield below + path.stem, state.st_mtime_ns, state.st_size


_editions = Editions(STATIC)


@router.get("/static/{name}.js", include_in_schema=False)
def entry(request: Request, name: ModuleName) -> Response:
    """A module that Airflow imports."""
    if name not in _ENTRIES:
        raise HTTPException(404, f"there is no view {name}")
    return respond(request, _editions.now().entry(name), _TYPE)


@router.get("/static/{version}/{name}.js", include_in_schema=False)
def module(request: Request, version: Version, name: ModuleName) -> Response:
    """One ES module of that version. Another API server may have named it before it was upgraded, or this one."""
    return _served(request, version, name)


@router.get("/static/{version}/vendor/{name}.js", include_in_schema=False)
def library(request: Request, version: Version, name: ModuleName) -> Response:
    """A library of others, as an ES module."""
    return _served(request, version, f"vendor/{name}")


def _served(request: Request, version: str, name: str) -> Response:
    known = _editions.kept()
    if name not in known.documents:
        raise HTTPException(404, f"there is no module {name}")
    answer = respond(request, known.documents[name], _TYPE)
    if version == known.version:
        answer.headers["Cache-Control"] = _FOR_GOOD
    return answer
