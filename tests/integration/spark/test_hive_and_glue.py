"""Exports into tables of a Hive metastore (its own, over Derby) and of AWS Glue (moto's server), and their maintenance.

Other Glues may differ from moto's; what is asked of it is PyIceberg's own code.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog

from logyard.spark_jobs.export.manifest_store import Fenced
from logyard.spark_jobs.maintenance import job
from logyard.spark_jobs.tables.catalog import CatalogFailed
from tests.support import faulty_proxy
from tests.support.catalog_servers import clients_or_skip, running_glue, running_hive
from tests.support.export_runs import Flights, pairs
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.here_workers import HereWorkers

pytestmark = pytest.mark.timeout(900)

HOUR_MS, DAY = 3_600_000, 24
SECRET = "the-keys-own-secret"
REQUESTS_MAX = 60


@pytest.fixture(scope="module")
def _clients() -> Iterator[None]:
    """The libraries of PyIceberg's extras, behind everything that is installed."""
    sys.path.append(clients_or_skip())
    yield
    sys.path.pop()


@pytest.fixture(scope="module")
def hive(_clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_hive(tmp_path_factory.mktemp("hive")) as uri:
        yield {"type": "hive", "uri": uri}


@pytest.fixture(scope="module")
def glue(_clients: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_glue(tmp_path_factory.mktemp("glue")) as endpoint:
        keys = {"glue.access-key-id": "AKIATEST", "glue.secret-access-key": SECRET}
        yield {"type": "glue", "glue.endpoint": endpoint, "glue.region": "us-east-1", **keys}


@pytest.fixture(params=["hive", "glue"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.getfixturevalue(request.param)
    return found


class Lake:
    """A log, its exports into one table, and that table."""

    def __init__(self, root: Path, settings: Mapping[str, str], table: str, *words: str) -> None:
        self.flights, self._root, self._settings, self._table = Flights(root), root, dict(settings), f"lake.{table}"
        self._words = words

    def _where(self, changed: Mapping[str, str]) -> list[str]:
        file = self._root / f"catalog{threading.get_ident()}.json"
        file.write_text(json.dumps(self._settings | dict(changed)))
        return ["--catalog", str(file), "--table", self._table]

    def run(self, **changed: str) -> None:
        self.flights.run("--format", "iceberg", *self._where(changed), *self._words)

    def maintain(self, **changed: str) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        given = ["--destination", str(self.flights.target), *self._where(changed)]
        given += ["--merge-files", "2", "--older-than-hours", "0"]
        status, summary = job.maintain(parser.parse_args(given), HereWorkers())
        assert status == 0
        return summary

    def read(self) -> Any:
        return load_catalog("reader", **self._settings).load_table(self._table)

    def offsets(self) -> list[int]:
        return sorted(self.read().scan().to_arrow().column("offset").to_pylist())


def test_every_record_once_and_small_files_merged(tmp_path: Path, settings: dict[str, str]) -> None:
    lake = Lake(tmp_path, settings, "once", "--partition-by", "date")
    for _ in range(2):
        lake.flights.grow(pairs(DAY // 2), HOUR_MS)
        lake.run()
        lake.run()
    assert lake.offsets() == list(range(DAY))
    told = lake.maintain()
    assert (told["files_merged"], told["files_made"], told["snapshots_left"]) == (2, 1, 1)
    assert lake.offsets() == list(range(DAY))
    lake.flights.grow(pairs(3), HOUR_MS)
    lake.run()
    assert lake.offsets() == list(range(DAY + 3))


def test_the_latest_of_each_key(tmp_path: Path, settings: dict[str, str]) -> None:
    lake = Lake(tmp_path, settings, "latest", "--mode", "upsert")
    lake.flights.grow(pairs(12))
    lake.run()
    lake.flights.grow([*pairs(8), (b"k4", None)])
    lake.run()
    assert lake.offsets() == [15, 17, 18, 19]
    assert lake.maintain()["snapshots_left"] == 1
    assert lake.offsets() == [15, 17, 18, 19]


def test_two_writers(tmp_path: Path, settings: dict[str, str]) -> None:
    lake = Lake(tmp_path, settings, "two")
    lake.flights.grow(pairs(3))
    lake.run()
    for number in range(3):
        lake.flights.grow(pairs(3))

        def run() -> None:
            with suppress(Fenced, CatalogFailed):
                lake.run()

        threads = [threading.Thread(target=run) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        lake.run()
        assert lake.offsets() == list(range(6 + 3 * number))


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [faulty_proxy.DROP_ANSWER, faulty_proxy.NEVER_SEND, faulty_proxy.REPEAT, faulty_proxy.DELAY],
    ids=lambda fault: fault.__name__.lower(),
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_glue_with_a_fault_at_each_request(tmp_path: Path, glue: dict[str, str], fault: Fault, mode: str) -> None:
    met = 0
    for number in range(REQUESTS_MAX):
        lake = Lake(tmp_path / str(number), glue, f"{mode}_{fault.__name__.lower()}_{number}", "--mode", mode)
        lake.flights.grow([(b"%d" % key, b"v") for key in range(6)])
        with FaultyProxy(glue["glue.endpoint"]) as proxy:
            proxy.at(number, fault)
            for _ in range(5):
                with suppress(CatalogFailed):
                    lake.run(**{"glue.endpoint": proxy.endpoint})
                    lake.flights.grow([(b"%d" % key, b"w") for key in range(6, 9)])
                    lake.run(**{"glue.endpoint": proxy.endpoint})
                    lake.maintain(**{"glue.endpoint": proxy.endpoint})
                    break
            if len(proxy.requests) <= number:
                break
            met += 1
        lake.run()
        assert lake.offsets() == list(range(len(lake.flights.records))), f"request {number}"
    assert 10 < met < REQUESTS_MAX


def test_what_is_said_has_no_secret(tmp_path: Path, glue: dict[str, str]) -> None:
    lake = Lake(tmp_path, glue, "absent")
    lake.flights.grow(pairs(3))
    with pytest.raises(CatalogFailed) as failed:
        lake.run(**{"glue.endpoint": "http://127.0.0.1:1", "glue.max-retries": "1"})
    assert SECRET not in str(failed.value)
