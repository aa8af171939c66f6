"""One folder of an object store: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.

The only module that knows the library (obstore). Data is written with the library's retries. A conditional create and
its read-back are tried once here, because a client that repeats a create is refused for its own first attempt;
`deciding.py` repeats them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO

from logyard.broker.errors import LogyardError
from logyard.broker.extras import how_to_install
from logyard.spark_jobs.objects import urls

try:
    import obstore
    from obstore import exceptions as problems
    from obstore.store import from_url
except ModuleNotFoundError as _problem:
    _lacking: str | None = how_to_install(_problem, "stores")
    if _lacking is None:
        raise
else:
    _lacking = None

# Larger files go in parts of this size.
PART_BYTES = 16 * 1024 * 1024
PARTS_AT_ONCE = 4
# How many keys go to the library at once. Azure says that one is gone, and the library ends there, so each call is one
# request of Azure's, and what has to be asked for again is not more than that.
DELETED_AT_ONCE, DELETED_AT_ONCE_BY_AZURE = 1000, 256
DELETIONS_SIDE_BY_SIDE = 16
# How long the library repeats requests for data, and how long one request may take.
RETRY_S, REQUEST_S, ONCE_S = 120, 300, 30
# The library's words for an answer that says: this request will never succeed. Not so 408 (slow), 429 (too many).
_REFUSED = re.compile(r"status code: 4(?!08|09|12|29)\d\d")
_CLIENT = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


class StoreFailed(LogyardError):
    """An object store refused a request, or does not answer; the text has no secret."""


class Unclear(StoreFailed):
    """There is no answer, or one that does not tell whether the request was carried out (a time-out, 5xx)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A listed object: its key below the folder, its size, and when it was written by the store's clock."""

    key: str
    bytes: int
    modified: datetime


@dataclass(frozen=True)
class ObjectStore:
    """A folder of a store. It goes to executors inside tasks, with its settings.

    :param url: as `urls.parse` takes it.
    :param settings: the library's names (`access_key_id`, `endpoint`, …) and those of its client (`timeout`, …). What
        they do not say, the environment of each process does.
    """

    url: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.url, dict(self.settings))

    # --- data ----------------------------------------------------------------------------------------------------

    def put(self, key: str, content: bytes | BinaryIO) -> None:
        """Write an object, whatever is there; raises StoreFailed."""
        with self._telling(key):
            obstore.put(self._patient, key, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def get(self, key: str) -> bytes:
        """Return an object's bytes; raises FileNotFoundError, StoreFailed."""
        with self._telling(key):
            return bytes(obstore.get(self._patient, key).bytes())

    def head(self, key: str) -> Found:
        """Return an object's size and time; raises FileNotFoundError, StoreFailed."""
        with self._telling(key):
            return _found(obstore.head(self._patient, key))

    def list(self, prefix: str, after: str = "") -> Iterator[Found]:
        """Yield the objects whose keys are below `prefix` (a folder) and, if given, sort after `after`; raises
        StoreFailed."""
        with self._telling(prefix):
            for chunk in obstore.list(self._patient, prefix, offset=after or None):
                yield from map(_found, chunk)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, of which some may be gone; raises StoreFailed.

        The library asks for as many by one request as the store takes: S3 1,000, Azure 256, Google Cloud Storage one,
        ten side by side.
        """
        for some in self._portions(keys):
            try:
                self._delete_at_once(some)
            except FileNotFoundError:
                # Not S3, but others say that one was gone; the library asks for no more then.
                for error in self._delete_one_by_one(some).values():
                    raise error from None

    def delete_each(self, keys: Iterable[str]) -> dict[str, str]:
        """Delete objects, of which some may be gone, as `delete` does, also those after one that cannot be deleted;
        returns the keys of such, and why. Raises Unclear if of many not one can be."""
        failed: dict[str, str] = {}
        for some in self._portions(keys):
            try:
                self._delete_at_once(some)
            except (FileNotFoundError, StoreFailed):
                # It ended at the first that was gone or refused, and does not tell of the others.
                errors = self._delete_one_by_one(some)
                failed |= {key: str(error) for key, error in errors.items()}
                if len(errors) == len(some) > DELETIONS_SIDE_BY_SIDE and isinstance(errors[some[-1]], Unclear):
                    raise errors[some[-1]] from None
        return failed

    def _portions(self, keys: Iterable[str]) -> Iterator[Sequence[str]]:
        left = iter(keys)
        at_once = DELETED_AT_ONCE_BY_AZURE if urls.parse(self.url).kind == "Azure" else DELETED_AT_ONCE
        while some := list(islice(left, at_once)):
            yield some

    def _delete_at_once(self, keys: Sequence[str]) -> None:
        with self._telling(keys[0]):
            obstore.delete(self._patient, keys)

    def _delete_one_by_one(self, keys: Iterable[str]) -> dict[str, StoreFailed]:
        """Delete objects, some side by side; returns the keys of those that cannot be deleted, and the errors.

        After as many errors that do not tell why, the store is asked no more: the rest has the last of these.
        """
        store = self._patient
        unclear: list[Unclear] = []

        def delete(key: str) -> tuple[str, StoreFailed | None]:
            if len(unclear) >= DELETIONS_SIDE_BY_SIDE:
                return key, unclear[-1]
            try:
                with suppress(FileNotFoundError), self._telling(key):
                    obstore.delete(store, key)
            except StoreFailed as error:
                if isinstance(error, Unclear):
                    unclear.append(error)
                return key, error
            return key, None

        with ThreadPoolExecutor(DELETIONS_SIDE_BY_SIDE, "deletions") as pool:
            return {key: error for key, error in pool.map(delete, keys) if error is not None}

    # --- what decides, each tried once -------------------------------------------------------------------------------

    def create(self, key: str, content: bytes) -> bool:
        """Write a small object if there is none; returns False if the store says that there is one (S3's answer to two
        creates at the same moment is reported so too). Raises Unclear, StoreFailed."""
        try:
            with self._telling(key):
                obstore.put(self._once, key, content, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise StoreFailed(f"{self.url}: the bucket does not exist") from None
        return True

    def read_once(self, key: str) -> bytes | None:
        """Return a small object's bytes, None if there is none; raises Unclear, StoreFailed."""
        try:
            with self._telling(key):
                return bytes(obstore.get(self._once, key).bytes())
        except FileNotFoundError:
            return None

    # --- the library -------------------------------------------------------------------------------------------------

    @cached_property
    def _patient(self) -> Any:
        return self._connected(retries=10, request_s=REQUEST_S)

    @cached_property
    def _once(self) -> Any:
        return self._connected(retries=0, request_s=ONCE_S)

    def _connected(self, retries: int, request_s: int) -> Any:
        if _lacking is not None:
            raise StoreFailed(_lacking)
        client: dict[str, Any] = {"timeout": f"{request_s}s"}
        client |= {k: _flag(v) for k, v in self.settings.items() if k in _CLIENT}
        config = {k: v for k, v in self.settings.items() if k not in _CLIENT}
        if config.get("endpoint", config.get("aws_endpoint", "")).startswith("http://"):
            client.setdefault("allow_http", True)
        with self._telling(""):
            return from_url(
                urls.parse(self.url).url,
                config=config,
                client_options=client,
                retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=RETRY_S)},
            )

    def _telling(self, key: str) -> "_Telling":
        return _Telling(f"{self.url}/{key}".rstrip("/"), self.settings)


class _Telling:
    """Turns the library's errors into ours, without secrets."""

    def __init__(self, where: str, settings: Mapping[str, str]) -> None:
        self._where, self._settings = where, settings

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if error is None or not isinstance(error, (problems.BaseError, OSError, ValueError, TypeError)):
            return
        if isinstance(error, (problems.NotFoundError, FileNotFoundError)):
            raise FileNotFoundError(f"{self._where}: it is not there") from None
        if isinstance(error, (problems.AlreadyExistsError, problems.PreconditionError)):
            raise FileExistsError(f"{self._where}: it is there") from None
        text = f"{self._where}: {without_secrets(str(error), self._settings)}"
        unclear = isinstance(error, (problems.GenericError, problems.JoinError, OSError)) and not _REFUSED.search(text)
        raise (Unclear if unclear else StoreFailed)(text) from None


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """Return an error's first line without queries of URLs (Azure's signatures are in them) and settings' values."""
    line = " ".join(text.strip().partition("\n")[0].split())
    line = re.sub(r"(https?://[^\s?\"']*)\?\S*", r"\1", line)
    for value in sorted(settings.values(), key=len, reverse=True):
        if len(value) > 3 and not value.startswith("http"):
            line = line.replace(value, "…")
    return line[:500]


def settings_of(path: str) -> dict[str, str]:
    """Read a store's settings from a JSON file; raises StoreFailed, which tells nothing of its content."""
    try:
        with open(path, encoding="utf-8") as file:
            row = json.load(file)
    except (OSError, ValueError) as error:
        raise StoreFailed(f"--store {path}: a JSON file is expected ({type(error).__name__})") from None
    if not isinstance(row, dict) or not all(isinstance(value, (str, int, bool)) for value in row.values()):
        raise StoreFailed(f"--store {path}: a JSON object of texts, numbers and true or false is expected")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in row.items()}


def _flag(value: str) -> str | bool:
    return {"true": True, "false": False}.get(value, value)


def _found(meta: Mapping[str, Any]) -> Found:
    return Found(str(meta["path"]), int(meta["size"]), meta["last_modified"])
