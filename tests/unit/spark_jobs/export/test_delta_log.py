"""A Delta table in an object store: every version is one commit, whoever dies or comes first."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export import manifest_store
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest_store import Fenced, ManifestStore
from logyard.spark_jobs.export.staged_files import NotShared
from logyard.spark_jobs.objects.store import Found
from logyard.spark_jobs.tables.publisher import TableFailed
from tests.support import memory_objects
from tests.support.export_runs import Flights, pairs
from tests.support.lengths import some
from tests.support.memory_objects import URL, KilledRun, MemoryObjects

LOG = "data/_delta_log"


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    made = MemoryObjects()
    monkeypatch.setattr(manifest_store, "ObjectStore", lambda url, settings: made)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return made


@pytest.fixture
def flights(tmp_path: Path, objects: MemoryObjects) -> Flights:
    made = Flights(tmp_path)
    made.grow(pairs(12))
    return made


def run(flights: Flights, *words: str) -> dict[str, Any]:
    return flights.run("--destination", URL, "--format", "delta", *words)


def commits(objects: MemoryObjects) -> list[list[dict[str, Any]]]:
    keys = sorted(key for key in objects.objects if key.startswith(LOG))
    assert keys == [f"{LOG}/{number:020d}.json" for number in range(len(keys))]
    return [[json.loads(line) for line in objects.objects[key][0].splitlines()] for key in keys]


def actions(objects: MemoryObjects, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for commit in commits(objects) for action in commit if kind in action]


def offsets(objects: MemoryObjects) -> list[int]:
    """The offsets of the table, as a reader of Delta sees it."""
    store = ManifestStore(URL)
    files = [f"data/{unquote(add['path'])}" for add in actions(objects, "add")]
    return sorted(o for path in files for o in pq.ParquetFile(store.open(path)).read().column("offset").to_pylist())


def test_a_version_is_a_commit(flights: Flights, objects: MemoryObjects) -> None:
    run(flights)
    first, *_ = commits(objects)
    assert [next(iter(action)) for action in first[:4]] == ["commitInfo", "txn", "protocol", "metaData"]
    schema = json.loads(first[3]["metaData"]["schemaString"])
    assert [field["name"] for field in schema["fields"]][:3] == ["topic", "partition", "offset"]
    flights.grow(pairs(8))
    run(flights)
    assert [t["version"] for t in actions(objects, "txn")] == [1, 2]
    assert len(actions(objects, "metaData")) == 1
    assert offsets(objects) == list(range(20))
    told = json.loads(actions(objects, "commitInfo")[1]["userMetadata"])
    assert told["offsets"] == {"t": {"0": 20}}


def test_partition_columns_are_values_of_the_log(flights: Flights, objects: MemoryObjects) -> None:
    run(flights, "--partition-by", "topic,hour=%Y-%m-%dT%H:00")
    (meta,) = actions(objects, "metaData")
    assert meta["partitionColumns"] == ["topic", "hour"]
    assert {tuple(add["partitionValues"].items()) for add in actions(objects, "add")} == {
        (("topic", "t"), ("hour", "1970-01-01T00:00"))
    }
    assert all(f"data/{unquote(add['path'])}" in objects.objects for add in actions(objects, "add"))


def test_a_time_that_no_date_has_is_null(flights: Flights, objects: MemoryObjects) -> None:
    """As in a table that Spark appends to: Delta itself takes the name of Hive's directory for a text."""
    flights.grow(pairs(4), 2**58)
    run(flights, "--partition-by", "date,topic")
    values = [add["partitionValues"] for add in actions(objects, "add")]
    assert sorted(values, key=str) == [{"date": "1970-01-01", "topic": "t"}, {"date": None, "topic": "t"}]


HOWS = [memory_objects.kill_before, memory_objects.kill_after, memory_objects.lose_answer]


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_killed_or_unanswered_at_any_request(how: Any, flights: Flights, objects: MemoryObjects) -> None:
    run(flights)
    flights.grow(pairs(8))
    begun, objects.requests = dict(objects.objects), 0
    run(flights)
    for request in some(range(objects.requests), HOWS.index(how)):
        objects.objects = dict(begun)
        objects.at(request, how)
        try:
            run(flights)
        except KilledRun:
            assert how is not memory_objects.lose_answer
        objects.quiet()
        run(flights)
        assert offsets(objects) == list(range(20)), request


@pytest.mark.slow
def test_overtaken_at_any_request(flights: Flights, objects: MemoryObjects) -> None:
    run(flights)
    flights.grow(pairs(8))
    begun, start, objects.requests = dict(objects.objects), objects.now, 0
    run(flights)

    def other() -> None:
        objects.quiet()
        objects.pass_time(timedelta(days=2))
        run(flights)

    for request in some(range(objects.requests)):
        objects.objects, objects.now = dict(begun), start
        objects.at(request, other)
        with suppress(Fenced, NotShared, ExportRefused):
            run(flights)
        objects.quiet()
        assert offsets(objects) == list(range(20)), request


def test_another_writer_may_take_a_number_first(flights: Flights, objects: MemoryObjects) -> None:
    run(flights)
    objects.put(f"{LOG}/{1:020d}.json", b'{"commitInfo":{"operation":"OPTIMIZE"}}\n')
    flights.grow(pairs(8))
    run(flights)
    assert [len(commit) for commit in commits(objects)][1] == 1
    assert offsets(objects) == list(range(20))


def test_texts_of_another_writer_may_have_any_letter(flights: Flights, objects: MemoryObjects) -> None:
    """Delta's own writers leave U+2028 and U+0085, which some take for ends of lines, as they are."""
    run(flights)
    told = {"commitInfo": {"operation": "OPTIMIZE", "userMetadata": "one\u2028two\x85three"}}
    objects.put(f"{LOG}/{1:020d}.json", f"{json.dumps(told, ensure_ascii=False)}\r\n".encode())
    flights.grow(pairs(8))
    run(flights)
    assert offsets(objects) == list(range(20))


def listed(flights: Flights, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many commits a run with something new is told of by listings."""
    found = 0

    def counting(prefix: str, after: str = "") -> Iterator[Found]:
        nonlocal found
        there = list(MemoryObjects.list(objects, prefix, after))
        found += len(there) if prefix == LOG else 0
        return iter(there)

    with monkeypatch.context() as patched:
        patched.setattr(objects, "list", counting)
        flights.grow(pairs(2))
        run(flights)
    return found


def test_the_log_is_not_listed_whole_by_each_run(
    flights: Flights, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        listed(flights, objects, monkeypatch)
    early = listed(flights, objects, monkeypatch)
    for _ in range(8):
        listed(flights, objects, monkeypatch)
    assert listed(flights, objects, monkeypatch) == early
    assert offsets(objects) == list(range(12 + 2 * 14))


def test_a_log_that_was_cleaned_is_listed_whole(
    flights: Flights, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        listed(flights, objects, monkeypatch)
    for number in range(2):
        del objects.objects[f"{LOG}/{number:020d}.json"]
    listed(flights, objects, monkeypatch)
    assert sorted(key for key in objects.objects if key.startswith(LOG))[-1] == f"{LOG}/{3:020d}.json"


def test_a_table_of_others_is_refused(flights: Flights, objects: MemoryObjects) -> None:
    objects.put(f"{LOG}/{0:020d}.json", b'{"protocol":{"minReaderVersion":3}}\n')
    with pytest.raises(TableFailed, match="another program made or changed this table"):
        run(flights)


def test_a_table_whose_manifests_were_deleted_is_refused(flights: Flights, objects: MemoryObjects) -> None:
    run(flights)
    for key in [key for key in objects.objects if key.startswith("_manifest/")]:
        del objects.objects[key]
    with pytest.raises(TableFailed, match="another export's: the manifests were deleted"):
        run(flights)
