"""By whom the files are deleted that an expiry has made unneeded, in an object store."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from logyard.spark_jobs.export import manifest_store
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.maintenance.expiry import Expiry
from logyard.spark_jobs.maintenance.notes import Notes
from tests.support.memory_objects import URL, MemoryObjects

OURS = {f"{URL}/data/{name}" for name in ("a.parquet", "b.parquet", "metadata/m.avro")}
ELSEWHERE = {"s3://warehouse/t/metadata/m.avro"}


class Table:
    """A table that names no file any more; what its library is asked to delete is noted."""

    location = "s3://warehouse/t"

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.snapshots: list[Any] = []
        self.refs: list[Any] = []

    def history(self, work: Callable[[Any], Any]) -> Any:
        return work(self)

    def unneeded(self, urls: Iterable[str]) -> frozenset[str]:
        return frozenset(urls)

    def delete(self, urls: Iterable[str]) -> dict[str, str]:
        self.deleted |= {*urls}
        return {}


class Publisher:
    def __init__(self, table: Table) -> None:
        self._table = table

    def caught_up(self, _store: Any) -> tuple[Any, None]:
        return self._table, None


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    made = MemoryObjects()
    monkeypatch.setattr(manifest_store, "ObjectStore", lambda url, settings: made)
    for url in OURS:
        made.put(url.removeprefix(f"{URL}/"), b"")
    return made


def expire(table: Table) -> Expiry:
    store = ManifestStore(URL)
    Notes(store.expired).add(OURS | ELSEWHERE)
    made = Expiry(Publisher(table), store, 0, 1)  # type: ignore[arg-type]  # of one table, which is ours
    made.all()
    return made


def test_the_exports_own_store_deletes_what_is_in_it(objects: MemoryObjects) -> None:
    table = Table()
    done = expire(table)
    assert table.deleted == ELSEWHERE
    assert objects.objects == {}, "the note is gone too"
    assert (done.deleted, done.not_deleted) == (4, {})


def test_what_the_store_does_not_delete_is_told_and_noted_still(objects: MemoryObjects) -> None:
    objects.kept = {"data/b.parquet"}
    done = expire(Table())
    assert (done.deleted, done.not_deleted) == (3, {f"{URL}/data/b.parquet": "403"})
    note, kept = sorted(objects.objects)
    assert (note.partition("/")[0], kept) == ("_expired", "data/b.parquet")
