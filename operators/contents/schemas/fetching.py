"""Asks a schema registry for schemas, as Confluent's REST interface has them: bounded in bytes, time and references.

It never goes where a record, a schema or an answer points: redirects are not followed.
"""

import json
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from logyard.admin.schema_registry import SchemaRegistry
from logyard.operators.contents.schemas.problems import RegistryAway, Undecoded

SCHEMA_BYTES = 1024 * 1024
REFERENCES_MAX = 50
DEPTH_MAX = 10
# Of one request, and of a schema with all that it refers to.
REQUEST_S, SCHEMA_S = 2.0, 3.0
_REFUSED = (401, 403)
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind`: AVRO, PROTOBUF or JSON; `references`: the name by which each is meant, and the schema."""

    kind: str
    text: str
    references: tuple[tuple[str, "Schema"], ...] = ()


class Registry:
    """A registry and the user who asks it; one thread uses it."""

    def __init__(self, where: SchemaRegistry) -> None:
        self._where = where
        login = (where.username, where.password or "") if where.username is not None else None
        verify: ssl.SSLContext | bool = True
        if where.cafile is not None:
            verify = ssl.create_default_context(cafile=where.cafile)
        # Without what the environment has: proxies, .netrc.
        self._client = httpx.Client(
            auth=login, verify=verify, timeout=REQUEST_S, follow_redirects=False, trust_env=False,
            headers={"Accept": _ACCEPT},
        )  # fmt: skip

    def close(self) -> None:
        self._client.close()

    def schema(self, number: int) -> Schema:
        """The schema with that id. Raises Undecoded, RegistryAway."""
        fetch = _Fetch(self._client, self._where.url)
        return fetch.whole(fetch.get(f"/schemas/ids/{number}", f"schema {number}"), 0)


class _Fetch:
    """One schema with what it refers to."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client, self._url = client, url
        self._deadline = time.monotonic() + SCHEMA_S
        self._left = REFERENCES_MAX

    def whole(self, answer: dict[str, Any], depth: int) -> Schema:
        text, kind = answer.get("schema"), answer.get("schemaType") or "AVRO"
        if not isinstance(text, str) or not isinstance(kind, str):
            raise RegistryAway("the registry's answer is no schema: is schema_registry_url right?")
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise Undecoded("its schema's references cannot be read")
        if depth >= DEPTH_MAX:
            raise Undecoded(f"its schema's references go deeper than {DEPTH_MAX}")
        found = [self._referred(one, depth) for one in references]
        return Schema(kind.upper(), text, tuple(found))

    def _referred(self, reference: Any, depth: int) -> tuple[str, Schema]:
        self._left -= 1
        if self._left < 0:
            raise Undecoded(f"its schema has more than {REFERENCES_MAX} references")
        try:
            name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
        except (TypeError, KeyError, ValueError):
            raise Undecoded("its schema's references cannot be read") from None
        if subject in (".", ".."):
            raise Undecoded("its schema's references cannot be read")
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return name, self.whole(self.get(path, f"{subject} version {version}, which its schema refers to,"), depth + 1)

    def get(self, path: str, what: str) -> dict[str, Any]:
        if time.monotonic() >= self._deadline:
            raise RegistryAway("the registry does not answer in time")
        try:
            with self._client.stream("GET", self._url + path) as answer:
                content = self._content(answer)
        except httpx.TimeoutException:
            raise RegistryAway("the registry does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as problem:  # the last for a host's name that is none
            raise RegistryAway(f"the registry does not answer: {_why(problem)}") from None
        if answer.status_code == 404 and _is_its_own(content):
            raise Undecoded(f"{what} is not there")
        if answer.status_code in _REFUSED:
            raise RegistryAway(f"the registry refuses this user (status {answer.status_code})")
        if answer.status_code != 200:
            raise RegistryAway(f"the registry answers with status {answer.status_code}")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryAway("the registry's answer is no schema: is schema_registry_url right?")
        return found

    def _content(self, answer: httpx.Response) -> bytes:
        content = bytearray()
        for part in answer.iter_bytes(65536):
            content += part
            if len(content) > SCHEMA_BYTES:
                raise Undecoded("its schema is larger than 1 MiB")
            if time.monotonic() >= self._deadline:
                raise RegistryAway("the registry does not answer in time")
        return bytes(content)


def _is_its_own(content: bytes) -> bool:
    """Whether an answer 404 is a registry's, which has a code: any other server has this status for a wrong path."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("error_code")).startswith("404")


def _why(problem: Exception) -> str:
    """One line, without the request."""
    return (str(problem).splitlines() or [type(problem).__name__])[0][:200] or type(problem).__name__
