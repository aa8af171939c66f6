"""Upserts into a table of Iceberg's own REST catalog, and its maintenance, whose answers are lost, repeated and delayed
on the way: each key has its latest row once, and no row goes or comes twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from tests.support import faulty_proxy
from tests.support.catalog_servers import CREDENTIAL, running_rest
from tests.support.export_runs import pairs
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.lengths import IS_PROOF, some
from tests.support.rest_lakes import DAY, HOUR_MS, RestLake
from tests.support.table_jars import jars_or_skip, python_or_skip
from tests.support.table_readers import DUCKDB, SPARK, read

pytestmark = pytest.mark.timeout(900)

REQUESTS_MAX = 60
FAULTS = [
    faulty_proxy.DROP_ANSWER,
    pytest.param(faulty_proxy.NEVER_SEND, marks=pytest.mark.long),
    pytest.param(faulty_proxy.REPEAT, marks=pytest.mark.long),
    pytest.param(faulty_proxy.DELAY, marks=pytest.mark.long),
    pytest.param(faulty_proxy.BUSY, marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_rest(tmp_path_factory.mktemp("catalog")) as uri:
        yield uri


class Keyed(RestLake):
    """Upserts."""

    def __init__(self, root: Path, uri: str, table: str) -> None:
        super().__init__(root, uri, table, "--mode", "upsert")

    def latest(self) -> list[int]:
        """The offset of each key's last record, unless that deletes it."""
        last = {record.key: record for record in self.flights.records}
        return sorted(record.offset for record in last.values() if record.value is not None)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.lower())
def test_an_upsert_with_a_fault_at_each_request(tmp_path: Path, rest: str, fault: Fault) -> None:
    met = 0
    for number in some(range(REQUESTS_MAX), 1):
        lake = Keyed(tmp_path / str(number), rest, f"upsert_{fault.__name__.lower()}_{number}")
        lake.run()
        lake.flights.grow([*pairs(3), (b"k4", None)], HOUR_MS)
        with FaultyProxy(rest) as proxy:
            proxy.at(number, fault)
            lake.to_the_end(proxy.endpoint)
            if len(proxy.requests) <= number:
                break
            met += 1
        assert lake.offsets() == lake.latest() == [23, 24, 25, 26], f"request {number}"
        lake.flights.grow(pairs(1), HOUR_MS)
        lake.run()
        assert lake.offsets() == lake.latest(), f"request {number}"
    assert (3 if IS_PROOF else 0) < met < REQUESTS_MAX


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.lower())
def test_a_maintenance_with_a_fault_at_each_request(tmp_path: Path, rest: str, fault: Fault) -> None:
    met = 0
    for number in some(range(REQUESTS_MAX), 2):
        lake = RestLake(tmp_path / str(number), rest, f"kept_{fault.__name__.lower()}_{number}")
        lake.run()
        lake.flights.grow(pairs(3), HOUR_MS)
        lake.run()
        lake.flights.grow(pairs(3), HOUR_MS)
        lake.run()
        with FaultyProxy(rest) as proxy:
            proxy.at(number, fault)
            lake.to_the_end(proxy.endpoint, maintained=True)
            if len(proxy.requests) <= number:
                break
            met += 1
        assert lake.offsets() == list(range(DAY + 6)), f"request {number}"
        lake.maintain()
        table = lake.table()
        assert len(table.snapshots()) == 1, f"request {number}"
        named = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
        assert {str(path) for path in (lake.flights.target / "data").rglob("*.parquet")} == named, f"request {number}"
    assert (5 if IS_PROOF else 1) < met < REQUESTS_MAX


def wanted_of(lake: RestLake) -> list[list[Any]]:
    """What a reader has to see after an upsert, a merge and an expiry."""
    last = {record.key: record for record in lake.flights.records}
    return sorted(
        ([r.timestamp, r.offset, r.key.decode(), r.value.decode()] for r in last.values() if r.key and r.value),
        key=lambda row: row[1],
    )


def changed(tmp_path: Path, rest: str, table: str) -> Keyed:
    lake = Keyed(tmp_path, rest, table)
    lake.run()
    lake.flights.grow([*pairs(4), (b"k4", None)], HOUR_MS)
    lake.run()
    lake.maintain()
    return lake


def test_duckdb_reads_the_latest(tmp_path: Path, rest: str) -> None:
    lake = changed(tmp_path, rest, "duckdb_latest")
    assert read([python_or_skip("duckdb"), "-c", DUCKDB, lake.metadata()]) == wanted_of(lake)


@pytest.mark.long
def test_spark_reads_the_latest(tmp_path: Path, rest: str) -> None:
    lake = changed(tmp_path, rest, "spark_latest")
    command = [python_or_skip("spark"), "-c", SPARK, jars_or_skip("iceberg"), rest, CREDENTIAL, "lake.spark_latest"]
    assert read(command) == wanted_of(lake)
