"""Records copied into a topic of another cluster: two of librdkafka's clusters in memory."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk.exceptions import ParamValidationError

from logyard.dags.factories.copy_records import copy_records_dag
from logyard.operators import lineages
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.assets import written_connection
from logyard.operators.copying import CopyRecordsOperator
from logyard.operators.lineage import as_openlineage
from tests.support.airflow_tasks import CONNECTION, context, run, said_outcome, use
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow

MASKED = '[{"topics": "orders", "fields": ["email"]}]'


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[MockKafka, MockKafka]]:
    with MockKafka() as here, MockKafka() as there:
        here.write("orders", [(f"k{n}", f"value {n}") for n in range(5)])
        for name in ("orders", "bare"):
            there.write(name, [(None, "first")])
        yield here, there


@pytest.fixture(autouse=True)
def connections(clusters: tuple[MockKafka, MockKafka], monkeypatch: pytest.MonkeyPatch) -> None:
    """`kafka_west` is the other cluster, `again` leads to the first one by another name."""
    use(monkeypatch, MemoryCluster({1: None}))
    here, there = clusters
    for name, cluster in (("logyard_default", here), ("again", here), ("kafka_west", there)):
        text = json.dumps({**CONNECTION, "host": cluster.bootstrap})
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", text)


def made(**fields: Any) -> CopyRecordsOperator:
    arguments = {"topic": "orders", "to_topic": "orders", "to_logyard_conn_id": "kafka_west", "wait_timeout_s": 20}
    return CopyRecordsOperator(task_id="c", **{**arguments, **fields})


def test_a_topic_is_copied_to_its_namesake_elsewhere(clusters: tuple[MockKafka, MockKafka]) -> None:
    operator, ctx = made(), context()
    result, _ = run(operator, ctx)
    assert (result["records"], result["to_cluster"]) == (5, "kafka_west")
    here, there = clusters
    assert sorted(value for _, _, value, _ in there.read("orders")) == [b"first", *(b"value %d" % n for n in range(5))]
    assert len(here.read("orders")) == 5
    assert "copied from orders to orders of kafka_west" in said_outcome(operator, ctx)
    # What was written is on the other cluster, for events and lineage too.
    assert written_connection(operator) == "kafka_west"
    told = as_openlineage(lineages.copied(operator, result), "logyard_default")
    named = [[(one.namespace, one.name) for one in side] for side in (told.inputs, told.outputs)]
    assert named == [[(f"kafka://{one.bootstrap}", "orders")] for one in (here, there)]


@pytest.mark.parametrize("empty", [None, "", "None", " "])
def test_no_other_cluster_is_the_same_one(empty: str | None) -> None:
    operator = made(to_logyard_conn_id=empty)
    assert written_connection(operator) == "logyard_default"
    with pytest.raises(AirflowFailException, match="into itself"):
        run(operator, context())


def test_a_topic_is_not_copied_into_itself_by_another_name_of_its_cluster(
    clusters: tuple[MockKafka, MockKafka],
) -> None:
    with pytest.raises(AirflowFailException, match="both connections lead to one cluster"):
        run(made(to_logyard_conn_id="again"), context())
    assert len(clusters[0].read("orders")) == 5


def test_what_is_hidden_stays_hidden_there(
    clusters: tuple[MockKafka, MockKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", MASKED)
    with pytest.raises(AirflowFailException, match="email: hidden in orders"):
        run(made(to_topic="bare"), context())
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", "")
    for shown in ("kafka_west", "*,-", "x, kafka_west"):
        monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORDS", shown)
        refused = shown != "*,-"  # there the records of both are shown to everybody
        if refused:
            with pytest.raises(AirflowFailException, match="to every user of the page"):
                run(made(to_topic="bare"), context())
            assert [value for _, _, value, _ in clusters[1].read("bare")] == [b"first"]
        else:
            assert run(made(to_topic="bare", dry_run=True), context())[0]["records"] == 5


def test_a_topic_that_is_only_here_is_missing_there(clusters: tuple[MockKafka, MockKafka]) -> None:
    clusters[0].write("only-here", [(None, "x")])
    with pytest.raises(Exception, match="only-here"):
        run(made(to_topic="only-here"), context())


def test_the_form_chooses_among_what_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "to_cluster" not in copy_records_dag().params
    monkeypatch.setenv("AIRFLOW__LOGYARD__DAG_CONNECTIONS", "logyard_default,kafka_west")
    dag = copy_records_dag()
    field = dag.params.get_param("to_cluster")
    assert (field.value, field.resolve("kafka_west")) == (None, "kafka_west")
    with pytest.raises(ParamValidationError):
        field.resolve("somewhere")
    (task,) = dag.tasks
    assert vars(task)["to_logyard_conn_id"] == "{{ params.to_cluster or '' }}"
