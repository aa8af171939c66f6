"""The DAG `maintain_table` in a real Airflow, on a table that another DAG exports into an Iceberg catalog."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)]

# So many neighbours are merged, and no fewer.
EXPORTS = 8
LOT = 100
TABLE = "lake.flights"
OWN_DAGS = '''
"""An export into the catalog: airflow finds the dag objects by name."""

from logyard.dags.factories.export_segments import export_segments_dag

exported = export_segments_dag("lake_", table="lake.flights", catalog_conn_id="lake", schedule=None)
'''


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def catalog(lake: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, catalog: dict[str, str]) -> Iterator[Yard]:
    settings = {"AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "generic", "extra": catalog})}
    awaited = ["lake_export_segments", "logyard_maintain_table"]
    with running_yard(tmp_path_factory.mktemp("yard"), CONFIG, awaited, OWN_DAGS, settings=settings) as running:
        yield running


def test_a_nightly_run_leaves_few_files_one_state_and_every_row(
    yard: Yard, lake: Path, catalog: dict[str, str]
) -> None:
    yard.cluster.create("flights", 1, 3)
    destination, sent = str(lake / "flights"), set()
    for first in range(0, EXPORTS * LOT, LOT):
        records = [(b"k%d" % number, b"v%d" % number) for number in range(first, first + LOT)]
        acknowledged = yard.cluster.produce("flights", records)
        sent |= {(partition, offset, value) for (partition, value), offset in acknowledged.items()}
        yard.api.run_dag("lake_export_segments", {"topics": ["flights"], "destination": destination}, 300)
    assert (len(files(table_of(catalog))), len(table_of(catalog).snapshots())) == (EXPORTS, EXPORTS)

    done = maintained(yard, destination)
    assert (done["files_merged"], done["files_made"]) == (EXPORTS, 1)
    assert done["files_deleted"] >= EXPORTS
    assert (done["snapshots_left"], done["not_deleted"]) == (1, 0)
    table = table_of(catalog)
    rows = table.scan().to_arrow().select(["partition", "offset", "value"]).to_pylist()
    assert len(rows) == len(sent)
    assert {(row["partition"], row["offset"], row["value"]) for row in rows} == sent
    assert set(files(table)) == {str(path) for path in (lake / "flights" / "data").rglob("*.parquet")}

    again = maintained(yard, destination)
    assert (again["files_merged"], again["snapshots_expired"], again["files_deleted"]) == (0, 0, 0)


def maintained(yard: Yard, destination: str) -> dict[str, Any]:
    form = {"destination": destination, "table": TABLE, "catalog": "lake", "older_than_hours": 0}
    run = yard.api.run_dag("logyard_maintain_table", form, 300)
    return dict(yard.result(run, "maintain"))


def table_of(catalog: dict[str, str]) -> Table:
    """The table as a reader finds it now."""
    return SqlCatalog("default", uri=catalog["uri"]).load_table(TABLE)


def files(table: Table) -> list[str]:
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
