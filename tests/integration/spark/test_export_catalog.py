"""Exports by processes and by Spark into a table of an Iceberg catalog (SQLite), with files in a real S3 server; their
writers die. Afterwards PyIceberg reads every offset once."""

import argparse
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog

from logyard.spark_jobs.maintenance import job
from logyard.spark_jobs.objects.store import ObjectStore
from tests.support import dying_export
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers
from tests.support.object_servers import SECRET, ObjectServer, running_s3
from tests.support.store_exports import StoreExports

pytestmark = pytest.mark.timeout(600)

HOUR_MS, DAY = 3_600_000, 24


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Lake:
    """A log of two days, its exports into one table, and that table."""

    def __init__(self, root: Path, server: ObjectServer) -> None:
        self.flights = Flights(root)
        self.flights.grow(pairs(2 * DAY), HOUR_MS)
        self.exports = StoreExports(self.flights, server.url(root.name), server.settings)
        self._uri = f"sqlite:///{root}/catalog.db"
        self._server = server.settings
        file = root / "catalog.json"
        file.write_text(json.dumps({"type": "sql", "uri": self._uri}))
        self.words = ("--format", "iceberg", "--catalog", str(file), "--table", "lake.t", "--partition-by", "date")

    def offsets(self, where: str = "offset >= 0") -> list[int]:
        """The offsets that a reader of the catalog sees."""
        return sorted(self.table().scan(where).to_arrow().column("offset").to_pylist())

    def maintain(self, *words: str) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        given = ["--destination", self.exports.url, "--store", str(self.exports.settings_file()), *self.words[2:6]]
        given += ["--merge-files", "2", "--older-than-hours", "0", *words]
        status, summary = job.maintain(parser.parse_args(given), HereWorkers())
        assert status == 0
        return summary

    def table(self) -> Any:
        names = {"s3.access-key-id": "access_key_id", "s3.secret-access-key": "secret_access_key"}
        names |= {"s3.endpoint": "endpoint", "s3.region": "region"}
        catalog = SqlCatalog("default", uri=self._uri, **{name: self._server[ours] for name, ours in names.items()})
        return catalog.load_table("lake.t")


@pytest.fixture
def lake(tmp_path: Path, s3: ObjectServer) -> Lake:
    return Lake(tmp_path, s3)


def test_the_tables_files_may_be_in_an_object_store(lake: Lake) -> None:
    lake.exports.run(*lake.words)
    lake.flights.grow(pairs(5), HOUR_MS)
    lake.exports.run(*lake.words)
    lake.exports.run(*lake.words)
    assert lake.offsets() == list(range(2 * DAY + 5))
    assert lake.offsets("timestamp < '1970-01-02T00:00:00+00:00'") == list(range(DAY))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_maintenance_in_an_object_store(lake: Lake, mode: str) -> None:
    if mode == "upsert":
        lake.words = (*lake.words[:-2], "--mode", mode)
    for _ in range(3):
        lake.exports.run(*lake.words)
        lake.flights.grow(pairs(3), HOUR_MS)
    before = lake.offsets()
    told = lake.maintain()
    assert told["snapshots_left"] == 1
    assert (told["files_made"] > 0) == (mode == "append")
    assert told["files_deleted"] > 3
    assert lake.offsets() == before
    assert mode == "upsert" or before == list(range(2 * DAY + 6))
    store = ObjectStore(lake.exports.url, lake.exports.settings)
    there = {f"{store.url}/{found.key}" for found in store.list("data") if found.key.endswith(".parquet")}
    assert there == {task.file.file_path for task in lake.table().scan().plan_files()}
    assert list(store.list("_expired")) == []
    assert lake.maintain()["files_deleted"] == 0


def test_several_at_once(lake: Lake) -> None:
    running = [lake.exports.start(*lake.words) for _ in range(4)]
    for one in running:
        one.join(120)
    assert {one.exitcode for one in running} <= {0, 1}
    lake.exports.run(*lake.words)
    assert lake.offsets() == list(range(2 * DAY))


def export_by_spark(lake: Lake, place: str, status: int) -> None:
    """Export, with a driver that dies at that place, to end with that status."""
    given = ["--log-dir", str(lake.flights.log), "--destination", lake.exports.url]
    given += ["--store", str(lake.exports.settings_file()), *lake.words]
    process = dying_export.start(place, lake.flights.target, given)
    out, err = process.communicate(timeout=400)
    assert process.returncode == status, err[-3000:]
    assert SECRET not in out + err


@pytest.mark.spark
def test_sparks_tasks_write(lake: Lake) -> None:
    export_by_spark(lake, "nowhere", 0)
    assert lake.offsets() == list(range(2 * DAY))


@pytest.mark.long
@pytest.mark.spark
def test_a_driver_that_died_costs_nothing(lake: Lake) -> None:
    """Of other writers that die in make test, see test_export_stores.py."""
    export_by_spark(lake, "before the manifest", -signal.SIGKILL)
    export_by_spark(lake, "nowhere", 0)
    assert lake.offsets() == list(range(2 * DAY))
