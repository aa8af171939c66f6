"""Exports into a table of Iceberg's own REST catalog, whose answers are lost, repeated and delayed on the way.

Whatever happens to a request, every record is in the table once when an export has come to its end; and nothing that is
said shows the catalog's credential.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from logyard.spark_jobs.tables import catalog
from logyard.spark_jobs.tables.catalog import CatalogFailed
from tests.support import faulty_proxy
from tests.support.catalog_servers import CREDENTIAL, running_rest
from tests.support.export_runs import pairs
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.lengths import IS_PROOF, some
from tests.support.rest_lakes import DAY, HOUR_MS, SECRET, RestLake
from tests.support.table_jars import jars_or_skip, python_or_skip
from tests.support.table_readers import DUCKDB, SPARK, read

pytestmark = pytest.mark.timeout(900)

REQUESTS_MAX = 40


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_rest(tmp_path_factory.mktemp("catalog")) as uri:
        yield uri


def test_every_record_is_in_the_table_once(tmp_path: Path, rest: str) -> None:
    lake = RestLake(tmp_path, rest, "once")
    lake.grown()
    lake.run()
    assert lake.offsets() == list(range(2 * DAY))
    assert lake.offsets("timestamp < '1970-01-02T00:00:00+00:00'") == list(range(DAY))


@pytest.mark.long
def test_duckdb_reads_the_same(tmp_path: Path, rest: str) -> None:
    lake = RestLake(tmp_path, rest, "duckdb")
    wanted = lake.grown()
    assert read([python_or_skip("duckdb"), "-c", DUCKDB, lake.metadata()]) == wanted


@pytest.mark.long
def test_spark_reads_the_same(tmp_path: Path, rest: str) -> None:
    lake = RestLake(tmp_path, rest, "spark")
    wanted = lake.grown()
    jars = jars_or_skip("iceberg")
    assert read([python_or_skip("spark"), "-c", SPARK, jars, rest, CREDENTIAL, "lake.spark"]) == wanted


@pytest.mark.parametrize(
    "fault",
    [
        faulty_proxy.DROP_ANSWER,
        pytest.param(faulty_proxy.NEVER_SEND, marks=pytest.mark.long),
        pytest.param(faulty_proxy.REPEAT, marks=pytest.mark.long),
        pytest.param(faulty_proxy.DELAY, marks=pytest.mark.long),
        pytest.param(faulty_proxy.BUSY, marks=pytest.mark.long),
    ],
    ids=lambda fault: fault.__name__.lower(),
)
def test_a_fault_at_each_request(tmp_path: Path, rest: str, fault: Fault) -> None:
    met = 0
    for number in some(range(REQUESTS_MAX)):
        lake = RestLake(tmp_path / str(number), rest, f"{fault.__name__.lower()}_{number}")
        with FaultyProxy(rest) as proxy:
            proxy.at(number, fault)
            lake.to_the_end(proxy.endpoint)
            if len(proxy.requests) <= number:
                break
            met += 1
        lake.flights.grow(pairs(3), HOUR_MS)
        lake.run()
        assert lake.offsets() == list(range(DAY + 3)), f"request {number}"
    assert (5 if IS_PROOF else 1) < met < REQUESTS_MAX


def test_a_catalog_that_does_not_answer_holds_no_export_up(
    tmp_path: Path, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "PATIENCE_S", 1.0)
    monkeypatch.setattr(catalog, "COMMIT_PATIENCE_S", 1.0)
    lake = RestLake(tmp_path, rest, "silent")
    with FaultyProxy(rest) as proxy:
        proxy.always(faulty_proxy.SILENT)
        begun = time.monotonic()
        with pytest.raises(CatalogFailed, match="no answer within 1 s"):
            lake.run(proxy.endpoint)
        assert time.monotonic() - begun < 20
        for number in some(range(3, 12)):
            proxy.at(number, faulty_proxy.SILENT)
            lake.to_the_end(proxy.endpoint)
            lake.flights.grow(pairs(1), HOUR_MS)
    lake.run()
    assert lake.offsets() == list(range(len(lake.flights.records)))


def test_who_may_not_is_told_without_the_credential(tmp_path: Path, rest: str) -> None:
    with FaultyProxy(rest) as proxy:
        proxy.always(lambda _, handler, __: faulty_proxy.answer(handler, (401, [], b'{"error":"invalid_client"}')))
        with pytest.raises(CatalogFailed) as caught:
            RestLake(tmp_path, rest, "refused").run(proxy.endpoint)
    assert SECRET not in str(caught.value)


def test_a_catalog_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CatalogFailed) as caught:
        RestLake(tmp_path, "http://127.0.0.1:1", "absent").run()
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
