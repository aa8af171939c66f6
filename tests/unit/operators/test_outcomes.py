"""What tasks say at their end: `run` checks for every operator that there is an outcome; here is what they say."""

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.operators import job_outcomes
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.batches import BatchTopicsOperator
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.outcome import Outcome
from logyard.operators.spark import ExportSegmentsOperator
from logyard.operators.topics import (
    AddPartitionsOperator,
    CreateTopicOperator,
    DeleteRecordsOperator,
    DeleteTopicOperator,
)
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", assignment={0: (1, 2)}))
    client.snapshot()  # time passes: the topic is led
    use(monkeypatch, made)
    return made


def told(operator: Any) -> dict[str, Any]:
    ctx = context()
    run(operator, ctx)
    found: dict[str, Any] = ctx["ti"].values["outcome"]
    return found


def test_a_task_tells_what_it_made(cluster: MemoryCluster) -> None:
    outcome = told(CreateTopicOperator(task_id="c", topic="u", partitions=2, replication_factor=2))
    assert outcome["sentence"] == "Topic u was created with 2 partitions"
    assert outcome["columns"] == ["partition", "leader", "replicas"]
    assert [row[0] for row in outcome["rows"]] == [0, 1]
    again = told(CreateTopicOperator(task_id="c", topic="u", partitions=2, if_exists="reconcile"))
    assert again["sentence"] == "Topic u was as wanted already, nothing changed"
    more = told(AddPartitionsOperator(task_id="a", topic="u", partitions=3))
    assert more["sentence"] == "Topic u: 2 → 3 partitions"


def test_a_topic_whose_leaders_another_task_waits_for_was_created(cluster: MemoryCluster) -> None:
    checked = told(CreateTopicOperator(task_id="c", topic="u", partitions=2, dry_run=True))
    assert checked["sentence"] == "Topic u does not exist, it would be created"
    made = told(CreateTopicOperator(task_id="c", topic="u", partitions=2, wait_for_leaders=False))
    assert made["sentence"] == "Topic u was created"


def test_a_dry_run_tells_what_it_found(cluster: MemoryCluster) -> None:
    outcome = told(RecoverControllerOperator(task_id="r", dry_run=True))
    assert outcome["sentence"] == "Nothing was done: the controller answers; controller 1, 1 of 1 partition led"
    nothing = told(ElectLeadersOperator(task_id="e", dry_run=True))
    assert nothing["sentence"] == "0 leaders to elect"


def test_a_dry_run_does_not_tell_that_it_was_done(cluster: MemoryCluster) -> None:
    cluster.end_offsets[TopicPartition("t", 0)] = 5
    deleted = DeleteTopicOperator(task_id="d", topic="t", dry_run=True, must_be_empty=False)
    assert told(deleted)["sentence"] == "Topic t would be deleted"
    emptied = told(DeleteRecordsOperator(task_id="r", topic="t", before={"0": 3}, dry_run=True))
    assert emptied["sentence"] == "Topic t: 3 records of 1 partition would be deleted"
    more = told(AddPartitionsOperator(task_id="a", topic="t", partitions=3, dry_run=True))
    assert more["sentence"] == "Topic t has 1 partition, and would have 3"
    assert told(DeleteTopicOperator(task_id="d", topic="none", dry_run=True))["sentence"] == "Topic none was not there"


def test_a_task_that_wants_no_xcom_pushes_none(cluster: MemoryCluster) -> None:
    ctx = context()
    CreateTopicOperator(task_id="c", topic="u", do_xcom_push=False, wait_for_leaders=False).execute(ctx)
    assert ctx["ti"].values == {}


def test_a_task_that_skips_itself_tells_why(cluster: MemoryCluster) -> None:
    for made in (
        BatchTopicsOperator(task_id="b", topics="[]", skip_without=True),
        ExportSegmentsOperator(task_id="e", topics="[]", destination="", skip_without=True),
    ):
        ctx = context()
        with pytest.raises(AirflowSkipException):
            made.execute(ctx)
        sentence = ctx["ti"].values["outcome"]["sentence"]
        assert sentence.startswith("Nothing was done: no topics")
        assert sentence.endswith("are given, neither by the factory nor by the form")


def test_the_log_has_the_sentence_and_the_table() -> None:
    lines = Outcome("2 of them", ("topic", "records"), [("orders", 12345), ("a", None)]).lines()
    assert lines == ["2 of them", "topic   records", "orders  12,345", "a       –"]
    many = Outcome("many", ("n",), [(n,) for n in range(60)])
    assert many.lines()[-1] == "… and 10 more"
    assert (len(many.as_json()["rows"]), many.as_json()["rows_in_all"]) == (50, 60)
    assert Outcome("x").lines() == ["x"]


def partition(reason: str, outcome: str = "skipped") -> dict[str, Any]:
    numbers = dict.fromkeys(("records_before", "records_after", "bytes_before", "bytes_after"), 0)
    return {"outcome": outcome, "reason": reason, **numbers}


def test_spark_jobs_tell_what_they_looked_at() -> None:
    nothing = {
        "job": "compact",
        "partitions": 4,
        "compacted": 0,
        "failed": 0,
        "details": {f"t-{p}": partition("dirty ratio 0.30 is not above 0.5") for p in range(4)},
    }
    none = "4 partitions looked at, none was due: dirty ratio 0.30 is not above 0.5"
    assert job_outcomes.of_job(nothing).sentence == none
    done = nothing | {
        "compacted": 1,
        "records_before": 60_000,
        "records_after": 1_000,
        "bytes_before": 6 << 20,
        "bytes_after": 100 << 10,
    }
    assert job_outcomes.of_job(done).sentence == (
        "4 partitions looked at, 1 compacted: 60,000 → 1,000 records, 6.0 MiB → 100 KiB"
    )
    audit = {
        "job": "audit",
        "records": 60_000,
        "replicas": 36,
        "findings": {"bad": 0, "warn": 0},
        "first_findings": [],
    }
    assert job_outcomes.of_job(audit).sentence == "60,000 records in 36 replicas: no finding"
    export = {
        "job": "export",
        "offsets": {"t-0": {"start": 5, "end": 5, "rows": 0}},
        "rows": 0,
        "dead_letters": 0,
    }
    assert job_outcomes.of_job(export).sentence == "1 partition looked at, nothing new to export"
    assert job_outcomes.of_job({"job": "mine"}).sentence == "Job mine ended"


def test_several_topics_are_told_by_topic_and_failed_ones_first() -> None:
    row = {"failed": None, "partitions": 2, "compacted": 1, "records_before": 9, "records_after": 5}
    row |= {"bytes_before": 2048, "bytes_after": 1024}
    summary = {
        "job": "compact",
        "partitions": 4,
        "compacted": 2,
        "failed": 1,
        "records_before": 18,
        "records_after": 10,
        "bytes_before": 4096,
        "bytes_after": 2048,
        "details": {f"a-{p}": partition("", "compacted") for p in range(4)},
        "by_topic": {"a": row, "b": row, "gone": {"failed": "it does not exist", "seconds": 0.1}},
        "topics_failed": {"gone": "it does not exist"},
        "topics_of_earlier_tries": ["b"],
    }
    told = job_outcomes.of_job(summary)
    assert told.sentence == (
        "3 topics: 4 partitions looked at, 2 compacted, 1 failed: 18 → 10 records, 4.0 KiB → 2.0 KiB; "
        "1 topic failed: gone; 1 topic done in an earlier try"
    )
    assert told.columns[0] == "topic"
    assert [list(row) for row in told.rows] == [
        ["gone", None, None, None, None, None, None, "it does not exist"],
        ["a", 2, 1, 9, 5, "2.0 KiB", "1.0 KiB", None],
        ["b", 2, 1, 9, 5, "2.0 KiB", "1.0 KiB", None],
    ]
    audit = {"job": "audit", "records": 5, "replicas": 3, "findings": {"bad": 1, "warn": 0}, "first_findings": []}
    topics = {"a": {"failed": None, "verdict": "bad", "records": 5, "replicas": 3, "bytes": 10}, "b": {"failed": "no"}}
    told = job_outcomes.of_job(audit | {"by_topic": topics, "topics_failed": {f"t{n}": "no" for n in range(7)}})
    assert told.sentence.endswith("; 7 topics failed: t0, t1, t2, t3, t4 and 2 more")
    assert [list(row) for row in told.rows] == [["b", None, None, None, None, "no"], ["a", "bad", 5, 3, "10 B", None]]
