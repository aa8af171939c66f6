"""What tasks tell OpenLineage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("airflow.sdk")

from logyard.operators import lineages
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.lineage import Lineage, Touched, as_openlineage, columns, named_place, split_offsets
from logyard.operators.spark import ExportSegmentsOperator
from logyard.operators.topics import CreateTopicOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

EXPORTED: dict[str, Any] = {
    "topics": ["a-b"],
    "rows": 6,
    "bytes": 600,
    "files": 2,
    "offsets": {"a-b-0": {"start": 5, "end": 9, "rows": 4}, "a-b-10": {"start": 0, "end": 2, "rows": 2}},
}


def test_an_export_reads_topics_and_writes_a_place() -> None:
    operator = ExportSegmentsOperator(task_id="e", topics=["a-b"], destination="/out", value_schema="id BIGINT")
    made = lineages.exported(operator, EXPORTED)
    assert made.inputs == [Touched("a-b", rows=6, offsets=split_offsets(EXPORTED["offsets"])["a-b"])]
    assert made.outputs == [Touched("/out", is_topic=False, rows=6, size=600, files=2, schema=[("id", "BIGINT")])]


def test_a_compaction_reads_and_writes_its_topics() -> None:
    done = {"outcome": "compacted", "records_before": 9, "records_after": 3, "bytes_before": 90, "bytes_after": 30}
    skipped = done | {"outcome": "skipped"}
    made = lineages.compacted(None, {"details": {"t-0": done, "t-1": done, "u-0": skipped}})
    assert made == Lineage([Touched("t", rows=18, size=180)], [Touched("t", rows=6, size=60)])


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("/data/out", ("file", "/data/out")),
        ("file:///data/out", ("file", "/data/out")),
        ("s3a://bucket/a/b/", ("s3a://bucket", "a/b")),
        ("s3://bucket", ("s3://bucket", "/")),
    ],
)
def test_places_have_openlineages_names(place: str, named: tuple[str, str]) -> None:
    assert named_place(place) == named


def test_schemas_are_read_from_sparks_ddl() -> None:
    ddl = "id BIGINT NOT NULL, `name` STRING COMMENT 'x', tags ARRAY<STRUCT<a: INT, b: STRING>>, d DECIMAL(10, 2)"
    ddl += """, e INT COMMENT 'one, two or it\\'s "three"' NOT NULL, f ARRAY<INT> comment "a < b, c d", g DATE"""
    assert columns(ddl) == [
        ("id", "BIGINT"),
        ("name", "STRING"),
        ("tags", "ARRAY<STRUCT<a: INT, b: STRING>>"),
        ("d", "DECIMAL(10, 2)"),
        ("e", "INT"),
        ("f", "ARRAY<INT>"),
        ("g", "DATE"),
    ]
    assert columns(None) == columns("") == columns("id: INT, oops")[1:] == []


@given(st.text(alphabet="ab <>(),:`", max_size=30))
def test_any_schema_is_read(text: str) -> None:
    assert all(name is not None and kind is not None for name, kind in columns(text))


def test_a_task_tells_nothing_before_its_end_and_its_datasets_after(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.openlineage")
    use(monkeypatch, MemoryCluster({1: None, 2: None, 3: None}))
    operator: Any = CreateTopicOperator(task_id="c", topic="u", partitions=1)
    assert operator.get_openlineage_facets_on_complete(None) is None
    run(operator, context())
    (written,) = operator.get_openlineage_facets_on_complete(None).outputs
    assert (written.namespace, written.name) == ("kafka://memory:1", "u")
    assert ElectLeadersOperator(task_id="e").get_openlineage_facets_on_complete(None) is None


def test_datasets_carry_counts_offsets_and_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.openlineage")
    from openlineage.client.serde import Serde

    use(monkeypatch, MemoryCluster({1: None}))
    operator = ExportSegmentsOperator(task_id="e", topics=["a-b"], destination="s3://x/y", key_schema="k INT")
    told = Serde.to_dict(as_openlineage(lineages.exported(operator, EXPORTED), "logyard_default"))
    (read,), (written,) = told["inputs"], told["outputs"]
    assert (read["namespace"], read["name"]) == ("kafka://memory:1", "a-b")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 6
    assert read["inputFacets"]["logyard_offsets"]["partitions"] == [
        {"partition": 0, "start": 5, "end": 9},
        {"partition": 10, "start": 0, "end": 2},
    ]
    assert read["inputFacets"]["logyard_offsets"]["_schemaURL"] == "urn:logyard:facets:offsets:1"
    assert (written["namespace"], written["name"]) == ("s3://x", "y")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 6
    assert written["outputFacets"]["outputStatistics"]["fileCount"] == 2
    assert written["facets"]["schema"]["fields"][0]["name"] == "k"
