"""Delta Lake and Iceberg as what an export writes, with their own jars: every row once, whenever the driver dies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import dying_export
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition
from tests.support.table_jars import jars_or_skip, python_or_skip

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

HOUR_MS = 3_600_000
READ = {
    "delta": """
rows = [(r["date"], r["at"], r.offset, bytes(r.key).decode(), r.value.asDict(True)) for r in
        spark.read.format("delta").load(table).orderBy("offset").collect()]
""",
    "iceberg": """
java = spark._jvm.org.apache.iceberg
found = java.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).load(table)
def ids(entries, above=""):
    found = {}
    for entry in entries:
        name = above + entry["names"][0]
        found |= {name: entry.get("field-id"), **ids(entry.get("fields", []), name + ".")}
    return found
wanted = java.mapping.NameMappingParser.toJson(java.mapping.MappingUtil.create(found.schema()))
mapped = ids(json.loads(found.properties().get("schema.name-mapping.default")))
assert mapped == ids(json.loads(wanted)), (mapped, wanted)
assert {"value.id", "value.more", "value.gate.rank", "value.tags.element", "headers.element.key"} <= set(mapped)
rows = [found.operations().current().metadataFileLocation()]
""",
}
PYICEBERG = """
import json, sys
from pyiceberg.table import StaticTable
rows = StaticTable.from_metadata(sys.argv[1]).scan().to_arrow().to_pylist()
rows = [(r["date"], r["at"], r["offset"], r["key"].decode(), r["value"]) for r in rows]
print(json.dumps(sorted(rows, key=lambda row: row[2])))
"""
READER = """
import json, sys
from pyspark.sql import SparkSession
table, settings = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
{read}
print(json.dumps(rows))
"""
FIRST_SCHEMA = "id BIGINT, tags ARRAY<STRING>, gate STRUCT<name: STRING, rank: INT>"


def value_of(number: int) -> dict[str, Any]:
    """A nested value; each part of it is missing in some."""
    gate = {"name": f"g{number % 4}", "rank": number} if number % 3 else None
    return {"id": number, "tags": ["a", f"t{number}"] if number % 7 else None, "gate": gate}


def write_log(root: Path, count: int) -> None:
    records = [
        Rec(i, b"k%d" % i, json.dumps(value_of(i)).encode() if i % 10 else b"no json", i * HOUR_MS, (("h", b"x"),))
        for i in range(count)
    ]
    batches = [batch(records[i : i + 10]) for i in range(0, count, 10)]
    write_partition(root, "t-0", [batches[i : i + 5] for i in range(0, len(batches), 5)])


def finish(running: "subprocess.Popen[str]", status: int = 0) -> dict[str, Any]:
    out, err = running.communicate(timeout=400)
    assert running.returncode == status, f"{out[-1000:]}\n{err[-4000:]}"
    return dict(json.loads(out.strip().splitlines()[-1])) if status == 0 else {"error": err.strip().splitlines()[-1]}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("delta", "after the manifest's link"),
        ("delta", "after Delta's append"),
        ("iceberg", "after the manifest's link"),
        ("iceberg", "after Iceberg's append"),
    ],
)
def test_every_row_once_wherever_the_driver_dies(kind: str, place: str, tmp_path: Path) -> None:
    jars = jars_or_skip(kind)
    reader = python_or_skip("pyiceberg") if kind == "iceberg" else None
    target, schema = tmp_path / "export", tmp_path / "value.ddl"
    schema.write_text(FIRST_SCHEMA)
    words = ["--format", kind, "--partition-by", "date,at=%H:%M"]
    words += ["--value-format", "json", "--value-schema", str(schema)]
    write_log(tmp_path / "1", 100)
    finish(dying_export.start(place, target, [*words, "--log-dir", str(tmp_path / "1")], jars), -9)
    write_log(tmp_path / "2", 200)
    schema.write_text(f"{FIRST_SCHEMA}, more STRING")
    said = finish(dying_export.start("nowhere", target, [*words, "--log-dir", str(tmp_path / "2")], jars))
    assert (said["rows"], said["dead_letters"], said["manifest_version"]) == (90, 10, 2)

    from logyard.spark_jobs.tables.table_formats import settings

    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"{dying_export.SPARK} --jars {jars} pyspark-shell",
    }
    code = READER.format(read=READ[kind])
    command = [sys.executable, "-c", code, str(target / "data"), json.dumps(settings(kind))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    if reader:
        command = [reader, "-c", PYICEBERG, *rows]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        rows = json.loads(done.stdout)
    wanted = [i for i in range(200) if i % 10]
    assert rows == [
        [f"1970-01-{1 + i // 24:02}", f"{i % 24:02}:00", i, f"k{i}", {**value_of(i), "more": None}] for i in wanted
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_is_newer_than_its_manifests_is_said(kind: str, tmp_path: Path) -> None:
    """Put back from a copy: the table takes a version once, and would pass over the rows of another that has its
    number."""
    jars, target = jars_or_skip(kind), tmp_path / "export"

    def run(log: str, status: int = 0) -> dict[str, Any]:
        words = ["--format", kind, "--log-dir", str(tmp_path / log)]
        return finish(dying_export.start("nowhere", target, words, jars), status)

    for name, count in (("1", 20), ("2", 40), ("3", 60)):
        write_log(tmp_path / name, count)
    run("1")
    shutil.copytree(target / "_manifest", tmp_path / "copy")
    assert run("2")["rows"] == 20
    shutil.rmtree(target / "_manifest")
    shutil.copytree(tmp_path / "copy", target / "_manifest")
    said = run("3", 1)["error"]
    assert "has a version 2 of run export-" in said
    assert said.endswith("the manifests are older than the table; export to another --destination")


@pytest.mark.parametrize(("kind", "package"), [("delta", "io.delta:delta-spark"), ("iceberg", "iceberg-spark-runtime")])
def test_a_missing_package_is_named_in_one_line(kind: str, package: str, tmp_path: Path) -> None:
    write_log(tmp_path / "log", 20)
    said = finish(
        dying_export.start("nowhere", tmp_path / "export", ["--format", kind, "--log-dir", str(tmp_path / "log")]), 1
    )
    assert package in said["error"]
    assert said["error"].endswith("is not on Spark's class path: give spark-submit --packages or --jars")
