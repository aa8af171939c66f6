"""An export in an object store.

Rule 1: tasks write objects under names that nobody else uses: each has a write id. Nothing is moved, copied or renamed:
        an object belongs to the table as soon as a version names it.
Rule 2: a version is one conditional object (`objects/deciding.py`).
Rule 3: an object that no version names can never be named once a version was created half a day after it was written:
        its writer goes on only after versions that are younger than that (`following.py`), so it will find the number
        of its own version taken. Only such objects are deleted, a day later, and those that a version removed after an
        hour, for readers that are at work.
Rule 4: only names that a write id ends are deleted: other programs may write beside them.
"""

import json
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import pyarrow as pa

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export.places.place import NumberTaken, Stored
from logyard.spark_jobs.export.staged_files import NotShared
from logyard.spark_jobs.objects.deciding import PROBES, check_promise, create_once
from logyard.spark_jobs.objects.store import Found, ObjectStore, StoreFailed

MANIFESTS, EXPIRED, STAGING, CLEANED = "_manifest", "_expired", "_staging", "_cleaned"
TABLES = ("data", "dead_letters")
# An upsert's files between its two steps; no version names them.
SCATTERED = "_scattered"
STALE = timedelta(days=1)
# Of a run that died in its check. One that stands still in it must not find its key free.
STALE_PROBE = timedelta(days=30)
FOR_READERS = timedelta(hours=1)
# Clocks of a store's machines may differ by so much.
SKEW = timedelta(hours=1)
# A run may go on after another's version (`following.py`) if that was made less than this after its own files.
FOLLOWED = timedelta(hours=12)
HEADS_AT_ONCE = 16
WRITE_ID = "write_id"
_OURS = re.compile(r".*\.w[0-9a-f]{32}\.parquet")


class Bucket:
    """A folder in a bucket."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.manifests = ManifestObjects(store, MANIFESTS)
        self.expired = ManifestObjects(store, EXPIRED)
        self._probe = ""

    def check(self) -> None:
        """Raises BrokenPromise, StoreFailed."""
        self._probe = check_promise(self._store)

    def files(self, run_id: str) -> "BucketRun":
        return BucketRun(self._store, run_id)

    def staging(self, run_id: str) -> str:
        return f"{self._store.url}/{STAGING}/{run_id}"

    def confirm(self, files: Iterable[Mapping[str, Any]]) -> None:
        with ThreadPoolExecutor(HEADS_AT_ONCE) as pool:
            for problem in pool.map(self._difference, list(files)):
                if problem:
                    raise NotShared(f"an executor wrote {problem}: nothing was committed; run it again")

    def _difference(self, file: Mapping[str, Any]) -> str:
        key = str(file["path"])
        try:
            there = self._store.head(key).bytes
        except FileNotFoundError:
            return f"{self._store.url}/{key}, and for the driver it is not there"
        wanted = int(file["bytes"])
        return "" if there == wanted else f"{self._store.url}/{key}, and it has {there} bytes, not {wanted}"

    def is_unpublished(self, run_id: str, removed: Iterable[str]) -> bool:
        """Whether there is a version at all: nothing here tells whether a table has it, and publishing it twice does no
        harm."""
        return bool(run_id)

    def publish(
        self, files: Iterable[Mapping[str, Any]], removed: Iterable[str], is_newest: Callable[[], bool]
    ) -> None:
        pass

    def working(self, run_id: str) -> AbstractContextManager[None]:
        return self._dropping(run_id)

    @contextmanager
    def _dropping(self, run_id: str) -> Iterator[None]:
        try:
            yield
        finally:
            # What is left is deleted by the next cleaning: a failure here must not hide the run's own.
            with suppress(StoreFailed):
                self.drop_staging(run_id)

    def drop_staging(self, run_id: str) -> None:
        self._store.delete([found.key for found in self._store.list(f"{STAGING}/{run_id}")])

    def clean(self, newest_run: str, kept: Callable[[], Iterable[str]]) -> int:
        """Delete objects that no version can name any more, once a day; needs `check` first. Raises StoreFailed."""
        now = self._store.head(self._probe).modified
        self._store.delete([self._probe])
        if self._cleaned_since(now - STALE):
            return 0
        # Versions before files: what a later version names was written after the newest of these.
        versions = self.manifests.times()
        named = {*kept(), *self._removed_since(now - FOR_READERS, versions)}
        found = sum(self._drop([STAGING], now - STALE, lambda _: True))
        found += sum(self._drop([PROBES], now - STALE_PROBE, lambda _: True))
        if versions:
            bound = min(now - STALE, max(versions.values()) - SKEW - FOLLOWED)
            found += sum(self._drop(TABLES, bound, lambda key: key not in named and bool(_OURS.fullmatch(key))))
        self._store.put(CLEANED, b"{}")
        return found

    def _cleaned_since(self, time: datetime) -> bool:
        try:
            return self._store.head(CLEANED).modified > time
        except FileNotFoundError:
            return False

    def _removed_since(self, time: datetime, versions: Mapping[str, datetime]) -> Iterator[str]:
        for name, created in versions.items():
            if created > time:
                row = json.loads(self.manifests.read(name))
                yield from map(str, row.get("removed", ()))

    def _drop(self, folders: Iterable[str], before: datetime, goes: Callable[[str], bool]) -> Iterator[int]:
        for folder in folders:
            due = [found.key for found in self._store.list(folder) if found.modified < before and goes(found.key)]
            self._store.delete(due)
            yield len(due)


@dataclass(frozen=True, slots=True)
class BucketRun:
    """The objects of one run."""

    store: ObjectStore
    run_id: str

    @property
    def place(self) -> str:
        return self.store.url

    def create(self, path: str) -> "NewObject":
        return NewObject(self.store, self.key_of(path))

    def key_of(self, path: str) -> str:
        """Return a name for one attempt to write a file: `data/t/0/p-0-9.parquet` → `data/t/0/p-0-9.wID.parquet`."""
        key = f"{path.removesuffix('.parquet')}.w{uuid.uuid4().hex}.parquet"
        return f"{STAGING}/{self.run_id}/{key}" if path.startswith(f"{SCATTERED}/") else key

    def open(self, path: str) -> Any:
        """Read a file whole: an upsert goes over all of it twice, and a merge reads small ones."""
        return pa.BufferReader(self.store.get(path))

    def where(self, path: str) -> str:
        return f"{self.store.url}/{path}"


class NewObject:
    """A file on this machine's disk, without a name, that is uploaded when it is complete."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
        # It outlives this call: `finish` and `drop` close it.
        self.target = tempfile.TemporaryFile(prefix="logyard-export-")  # noqa: SIM115

    def finish(self) -> Stored:
        size = self.target.seek(0, 2)
        self.target.seek(0)
        self._store.put(self._key, cast(Any, self.target))
        self.target.close()
        return Stored(self._key, self._key, size)

    def drop(self) -> None:
        self.target.close()


class ManifestObjects:
    """The objects of `_manifest`, or of another folder with such objects."""

    # Names are never freed, and small old objects cost little.
    trims = False

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def names(self) -> list[str]:
        return [_name(found) for found in self._store.list(self._folder)]

    def times(self) -> dict[str, datetime]:
        """Return when each version was created, by the store's clock."""
        found = {_name(one): one.modified for one in self._store.list(self._folder)}
        return {name: time for name, time in found.items() if name.removesuffix(".json").isdigit()}

    def where(self, name: str) -> str:
        return f"{self._store.url}/{self._folder}/{name}"

    def read(self, name: str) -> bytes:
        return self._store.get(f"{self._folder}/{name}")

    def create(self, name: str, row: Mapping[str, Any]) -> None:
        """Raises NumberTaken, Undecided, StoreFailed."""
        mine = uuid.uuid4().hex
        content = _json({**row, WRITE_ID: mine})

        def is_ours(there: bytes) -> bool:
            try:
                return bool(json.loads(there)[WRITE_ID] == mine)
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptData(f"{self.where(name)}: {error!r}") from error

        if not create_once(self._store, f"{self._folder}/{name}", content, is_ours):
            raise NumberTaken(f"{self.where(name)} exists")

    def replace(self, name: str, row: Mapping[str, Any]) -> None:
        self._store.put(f"{self._folder}/{name}", _json(row))

    def trim(self, name: str, note: Mapping[str, Any]) -> None:
        raise NotImplementedError("versions in an object store are not trimmed")

    def remove(self, name: str) -> None:
        self._store.delete([f"{self._folder}/{name}"])

    def sync(self) -> None:
        pass


def _name(found: Found) -> str:
    return found.key.rpartition("/")[2]


def _json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, indent=1, sort_keys=True).encode()
