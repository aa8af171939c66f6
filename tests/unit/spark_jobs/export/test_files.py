import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export.files import OpenFile, Output, open_parquet
from logyard.spark_jobs.export.partition_columns import parse
from logyard.spark_jobs.export.places import folder
from logyard.spark_jobs.export.schema.formats import Formats, SideFormat
from logyard.spark_jobs.segments.arrow import HEADER_TYPE
from logyard.spark_jobs.segments.splits import COLUMNS
from logyard.spark_jobs.tables.iceberg import schema_json

ROWS = 1000


def written(tmp_path: Path, values: list[bytes | None], keys: list[bytes]) -> dict[str, Any]:
    """How each column of a file was written."""
    table = pa.table(
        {
            "topic": pa.array(["t"] * ROWS),
            "offset": pa.array(range(ROWS), pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}]] * ROWS, HEADER_TYPE),
        }
    )
    path = str(tmp_path / "x.parquet")
    with open_parquet(path, table) as writer:
        writer.write_table(table)
    assert pq.read_table(path) == table
    group = pq.ParquetFile(path).metadata.row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


def test_each_column_is_written_as_it_pays(tmp_path: Path) -> None:
    noise = [os.urandom(50) for _ in range(ROWS)]
    names = [b"key-%05d" % i for i in range(ROWS)]
    found = written(tmp_path, [*noise[:-1], None], names)
    assert found["offset"].encodings == ("RLE", "DELTA_BINARY_PACKED")
    assert found["topic"].has_dictionary_page
    assert not found["value"].has_dictionary_page
    assert (found["value"].compression, found["key"].compression) == ("UNCOMPRESSED", "ZSTD")
    assert (found["value"].is_stats_set, found["key"].statistics.max) == (False, names[-1])
    assert found["headers.list.element.key"].has_dictionary_page

    few: list[bytes | None] = [random.Random(i % 7).randbytes(50) for i in range(ROWS)]
    assert written(tmp_path, few, names)["value"].has_dictionary_page


def test_a_disk_that_is_full_when_a_file_is_made_durable_keeps_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems say so only then; Spark tries again, and each try would leave its file."""

    def full(path: str) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(folder, "sync", full)
    rows = pa.record_batch({"offset": pa.array(range(ROWS), pa.int64())})
    file = OpenFile("data", "data/t/0/x.parquet", folder.FolderRun(str(tmp_path), str(tmp_path / "run")), rows.schema)
    file.add(rows, np.int64(0))
    with pytest.raises(OSError, match="No space left"):
        file.finish()
    file.drop()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_decoded_is_what_is_written_or_may_be_a_dead_letter() -> None:
    assert Output(COLUMNS).needed == COLUMNS
    assert Output(("offset",), partition_by=parse(["date"])).needed == ("offset", "timestamp")
    text = Formats(value=SideFormat("value", "string"))
    assert Output(("offset",), text).needed == ("offset",), "values are not written: they need not be text"
    assert set(Output(("offset", "value"), text).needed) == set(COLUMNS)
    assert Output(("topic", "offset"), partition_by=parse(["topic"])).schema.names == ["offset"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int16(), "int"),
        (pa.timestamp("ms", tz="UTC"), "timestamptz"),
        (pa.decimal128(10, 2), "decimal(10, 2)"),
    ],
)
def test_icebergs_schema(kind: pa.DataType, name: str) -> None:
    schema = pa.schema([pa.field("a", kind, nullable=False), ("tags", pa.list_(pa.struct([("x", pa.string())])))])
    assert schema_json(schema, ["date"])["fields"] == [
        {"id": 1, "name": "a", "required": True, "type": name},
        {
            "id": 2,
            "name": "tags",
            "required": False,
            "type": {
                "type": "list",
                "element-id": 3,
                "element-required": False,
                "element": {"type": "struct", "fields": [{"id": 4, "name": "x", "required": False, "type": "string"}]},
            },
        },
        {"id": 5, "name": "date", "required": False, "type": "string"},
    ]
