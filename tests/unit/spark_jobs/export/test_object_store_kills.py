"""An export into an object store that dies, is not answered, or is overtaken, at every request: afterwards every
offset is there once."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export import manifest_store
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest_store import Fenced, ManifestStore
from logyard.spark_jobs.export.places import bucket
from logyard.spark_jobs.export.staged_files import NotShared
from tests.support import memory_objects
from tests.support.export_runs import Flights, pairs
from tests.support.lengths import IS_PROOF, some
from tests.support.memory_objects import URL, KilledRun, MemoryObjects

APPEND, UPSERT = ("--commit-mib", "1", "--merge-files", "2"), ("--mode", "upsert")


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


def offsets() -> list[int]:
    """The offsets of all rows that versions name."""
    store = ManifestStore(URL)
    tables = (pq.ParquetFile(store.open(str(file["path"]))).read() for file in store.live_files())
    return sorted(offset for table in tables for offset in table.column("offset").to_pylist())


def wanted(flights: Flights, words: tuple[str, ...]) -> list[int]:
    """Of an upsert, the last record of each key (pairs has five)."""
    count = len(flights.records)
    return list(range(count))[-5:] if words is UPSERT else list(range(count))


def run(flights: Flights, words: tuple[str, ...]) -> dict[str, Any]:
    return flights.run("--destination", URL, *words)


KILLS = [memory_objects.kill_before, memory_objects.kill_after]
LOSSES = [memory_objects.lose_answer, memory_objects.never_arrive]


def requests_of(flights: Flights, objects: MemoryObjects, words: tuple[str, ...]) -> int:
    """Run once on a copy of the store; returns how many requests that takes."""
    before, objects.requests = dict(objects.objects), 0
    run(flights, words)
    assert offsets() == wanted(flights, words)
    count, objects.objects = objects.requests, before
    return count


@pytest.mark.slow
@pytest.mark.parametrize("words", [APPEND, UPSERT])
@pytest.mark.parametrize("how", KILLS)
def test_killed_at_any_request_and_run_again(
    how: Callable[[], None], words: tuple[str, ...], flights: Flights, objects: MemoryObjects
) -> None:
    run(flights, words)
    flights.grow(pairs(12))
    begun = dict(objects.objects)
    count = requests_of(flights, objects, words)
    assert count > 12
    for request in some(range(count), KILLS.index(how)):
        objects.objects = dict(begun)
        objects.at(request, how)
        try:
            run(flights, words)
        except KilledRun:
            assert offsets() in (wanted(flights, words)[:12], wanted(flights, words)) or words is UPSERT
        objects.quiet()
        run(flights, words)
        assert offsets() == wanted(flights, words), request


@pytest.mark.parametrize("words", [APPEND, pytest.param(UPSERT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_answer_at_any_request_costs_nothing(
    how: Callable[[], None], words: tuple[str, ...], flights: Flights, objects: MemoryObjects
) -> None:
    for request in some(range(requests_of(flights, objects, words)), LOSSES.index(how)):
        objects.objects = {}
        objects.at(request, how)
        assert run(flights, words)["rows"] == 12, request
        objects.quiet()
        assert offsets() == wanted(flights, words), request
        assert run(flights, words)["rows"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [APPEND, UPSERT])
def test_overtaken_at_any_request_one_of_two_wins(
    words: tuple[str, ...], flights: Flights, objects: MemoryObjects
) -> None:
    """The other run comes two days later, and cleans up: the first process stood still as long."""
    run(flights, words)
    flights.grow(pairs(12))
    begun, fenced = dict(objects.objects), 0
    start = objects.now

    def other() -> None:
        objects.quiet()
        objects.pass_time(timedelta(days=2))
        run(flights, words)
        objects.pass_time(timedelta(days=2))
        run(flights, words)

    for request in some(range(requests_of(flights, objects, words))):
        objects.objects, objects.now = dict(begun), start
        objects.at(request, other)
        try:
            run(flights, words)
        except Fenced:
            fenced += 1
        except (NotShared, ExportRefused):
            pass  # the other has deleted what this one wrote, or read, two days ago
        objects.quiet()
        assert offsets() == wanted(flights, words), request
        run(flights, words)
        assert offsets() == wanted(flights, words), request
    assert fenced > (3 if IS_PROOF else 0)


# --- what dead runs leave


def orphans(objects: MemoryObjects) -> set[str]:
    named = {str(file["path"]) for file in ManifestStore(URL).live_files()}
    return {key for key in objects.objects if key.startswith(("data/", "dead_letters/"))} - named


def die_after_writing(flights: Flights) -> None:
    """Die when the data is written, before its version."""

    def dying(*_: Any) -> None:
        raise KilledRun

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ManifestStore, "commit", dying)
        with pytest.raises(KilledRun):
            run(flights, APPEND)


def test_objects_that_no_version_names_go_after_a_day(flights: Flights, objects: MemoryObjects) -> None:
    die_after_writing(flights)
    assert orphans(objects)
    left = orphans(objects)
    objects.pass_time(timedelta(days=30))
    run(flights, APPEND)
    assert left <= orphans(objects), "when this run began there was no version that said that they are lost"
    objects.pass_time(timedelta(hours=2))
    run(flights, APPEND)
    assert left <= orphans(objects), "cleaned once a day"
    objects.pass_time(timedelta(days=2))
    run(flights, APPEND)
    assert not orphans(objects)
    assert offsets() == list(range(12))


def test_what_others_wrote_stays(flights: Flights, objects: MemoryObjects) -> None:
    run(flights, APPEND)
    mine = ["data/part-0-1234.parquet", "data/_delta_log/0.json", "elsewhere/x.parquet"]
    for key in mine:
        objects.put(key, b"")
    for _ in range(3):
        objects.pass_time(timedelta(days=3))
        run(flights, APPEND)
    assert set(mine) <= set(objects.objects)


def test_a_reader_has_an_hour_for_what_a_version_removed(flights: Flights, objects: MemoryObjects) -> None:
    run(flights, UPSERT)
    (old,) = (str(file["path"]) for file in ManifestStore(URL).live_files())
    objects.pass_time(timedelta(days=3))
    flights.grow(pairs(5))
    run(flights, UPSERT)
    del objects.objects[bucket.CLEANED]
    run(flights, UPSERT)
    assert old in objects.objects
    objects.pass_time(timedelta(hours=2))
    del objects.objects[bucket.CLEANED]
    run(flights, UPSERT)
    assert old not in objects.objects
    assert offsets() == wanted(flights, UPSERT)


def test_an_upsert_leaves_nothing_of_its_steps(flights: Flights, objects: MemoryObjects) -> None:
    run(flights, UPSERT)
    assert not [key for key in objects.objects if key.startswith("_staging/")]
