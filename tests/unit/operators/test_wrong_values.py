"""What a form or a DAG gives that makes no sense ends a task at once, in one line that says what is expected."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.dags.factories.export_segments import export_segments_dag
from logyard.operators.access import SetQuotasOperator
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.approval import ApprovePlanOperator
from logyard.operators.callables import called
from logyard.operators.cancellation import CancelReassignmentOperator
from logyard.operators.consuming import CommitOffsetsOperator
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.fields import as_natural
from logyard.operators.groups import ResetOffsetsOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator
from logyard.operators.sensors.cluster import BrokerUpSensor
from logyard.operators.sensors.records import AwaitRecordSensor
from logyard.operators.topics import CreateTopicOperator, DeleteRecordsOperator, DeleteTopicOperator
from logyard.operators.transactions import AbortHangingTransactionsOperator
from logyard.operators.triggers.arrivals import RecordsArrivedEvent
from logyard.operators.triggers.events import UnderReplicationEvent
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    MemoryClient(made).create_topic(NewTopic("t", 1, 1))
    use(monkeypatch, made)
    return made


@pytest.mark.parametrize(
    ("operator", "field", "values"),
    [
        (DeleteRecordsOperator, "before", ({"zero": 5}, {"0": "all"}, {"0": -1}, {"0": None}, {"0": 1.5})),
        (CreateTopicOperator, "assignment", ({"first": [1]}, {"0": ["one"]}, {"0": [True]})),
        (BrokerUpSensor, "brokers", ("one, two", [1.5], [True])),
        (PlanReassignmentOperator, "drain", ("one", [-1])),
        (DecommissionBrokerOperator, "brokers", ("one", [-1])),
        (ResetOffsetsOperator, "offsets", ({"t": {"first": 1}}, {"t": {"0": None}}, {"t": {"0": "end"}})),
    ],
)
def test_what_is_no_number_is_refused(operator: Callable[..., Any], field: str, values: tuple[Any, ...]) -> None:
    more: dict[str, Any] = {"group": "g"} if operator is ResetOffsetsOperator else {}
    if operator in (DeleteRecordsOperator, CreateTopicOperator):
        more = {"topic": "t"}
    for value in values:
        with pytest.raises(AirflowFailException, match=f"{field}.*: expected a whole number from 0 on, found"):
            run(operator(task_id="o", **{field: value}, **more), context())


def test_numbers_and_their_texts_are_taken(cluster: MemoryCluster) -> None:
    assert [as_natural("n", value) for value in (0, "7", " 12 ", 2**63 - 1)] == [0, 7, 12, 2**63 - 1]
    for wrong in ("", "²", "1_0", 2**63, "9" * 5000):
        with pytest.raises(BadSettings):
            as_natural("n", wrong)


@pytest.mark.parametrize("plan", [{"topics": []}, {"partitions": [{"topic": "t"}]}, {"partitions": [{"replicas": 1}]}])
def test_what_is_no_plan_is_refused(plan: dict[str, Any]) -> None:
    for operator in (PlanReassignmentOperator, ExecuteReassignmentOperator):
        with pytest.raises(AirflowFailException, match="expected"):
            run(operator(task_id="o", plan=plan), context())


@pytest.mark.parametrize(
    ("operator", "plan"),
    [
        (ResetOffsetsOperator, {"group": "g", "changed": {"t": {"before": 1, "after": 2}}}),
        (ResetOffsetsOperator, {"group": "g", "changed": {"t-0": {"after": 2}}}),
        (ResetOffsetsOperator, {"group": "g", "changed": {"t-0": {"before": None, "after": "x"}}}),
        (ResetOffsetsOperator, {"group": "g", "changed": {"t-0": 5}}),
        (ResetOffsetsOperator, {"group": "g", "changed": [1]}),
        (AbortHangingTransactionsOperator, {"hanging": [{"topic": "t"}]}),
        (AbortHangingTransactionsOperator, {"hanging": [3]}),
        (ApprovePlanOperator, {"changed": {"t-0": {"after": 2}}}),
        (ApprovePlanOperator, {"changed": [1]}),
        (ApprovePlanOperator, {"cancelled": [{}]}),
        (ApprovePlanOperator, {"hanging": [{}]}),
        (ApprovePlanOperator, {"partitions": [{}]}),
        (ApprovePlanOperator, {"sentence": "6 replicas are to be moved", "rows": []}),
    ],
)
def test_what_is_not_quite_a_plan_is_refused(operator: Callable[..., Any], plan: dict[str, Any]) -> None:
    needed: dict[Any, dict[str, str]] = {ResetOffsetsOperator: {"group": "g"}, ApprovePlanOperator: {"subject": "s"}}
    with pytest.raises(
        AirflowFailException, match=r"^plan: (expected the result of a dry run|its '\w+' are none|it is none)"
    ):
        run(operator(task_id="go", plan=plan, **needed.get(operator, {})), context())


@pytest.mark.parametrize("brokers", ["12", {"1": 2}, [1.5], [True], 12])
def test_what_is_no_list_of_brokers_is_refused(cluster: MemoryCluster, brokers: Any) -> None:
    """Of the text "12", brokers 1 and 2 were made."""
    move = {"topic": "t", "partition": 0, "replicas": brokers}
    for operator in (PlanReassignmentOperator, ExecuteReassignmentOperator):
        for wrong in (move, move | {"replicas": [1], "from": brokers}):
            with pytest.raises(AirflowFailException, match="a list of brokers is expected"):
                run(operator(task_id="o", plan={"partitions": [wrong]}), context())
    planned = {"cancelled": [{**move, "target": [1]}]}
    with pytest.raises(AirflowFailException, match="expected the result of a dry run"):
        run(CancelReassignmentOperator(task_id="o", plan=planned), context())
    with pytest.raises(AirflowFailException, match="a JSON object with a list 'partitions' is expected"):
        run(PlanReassignmentOperator(task_id="o", plan={"partitions": "t-0"}), context())


@pytest.mark.parametrize("quotas", ["5", '{"user": "a"}', 5])
def test_what_is_no_list_of_quotas_is_refused(quotas: Any) -> None:
    with pytest.raises(AirflowFailException, match="quotas: a list of mappings is expected, not"):
        run(SetQuotasOperator(task_id="o", quotas=quotas), context())


def test_a_text_is_no_list_of_arguments() -> None:
    """What a template renders is a text, and each of its letters was an argument."""
    assert called("f", max, [1, 2])(0) == 2
    with pytest.raises(BadSettings, match="f_args: a list is expected, not the text 'ab'"):
        called("f", max, "ab")
    sensor = AwaitRecordSensor(task_id="o", topics=["t"], apply_function="builtins.max", apply_function_args="ab")
    with pytest.raises(AirflowFailException, match="apply_function_args: a list is expected"):
        sensor.execute(context())


def test_the_name_of_a_topic_is_a_list_of_one() -> None:
    """Its letters were the topics."""
    assert RecordsArrivedEvent(topics="orders", group="g").wants().topics == {"orders"}
    assert UnderReplicationEvent(topics="orders").topics == ["orders"]
    assert export_segments_dag(topics="orders").params.get_param("topics").value == ["orders"]


def test_a_setting_that_is_null_is_not_the_text_none(cluster: MemoryCluster) -> None:
    configs = '{"cleanup.policy": "compact", "retention.ms": null}'
    run(CreateTopicOperator(task_id="o", topic="new", configs=configs, wait_for_leaders=False), context())
    assert cluster.configs["new"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("nothing", ["null", "None", ""])
def test_a_plan_that_did_not_come_is_not_the_wish_to_do_everything(cluster: MemoryCluster, nothing: str) -> None:
    """A person marks the task that plans as successful: nothing is in its XCom."""
    template = "{{ ti.xcom_pull(task_ids='plan') | tojson }}"
    cluster.group_commits["g"] = {TopicPartition("t", 0): 5}
    for operator in (
        ApprovePlanOperator(task_id="o", subject="s", plan=template),
        CancelReassignmentOperator(task_id="o", plan=template),
        AbortHangingTransactionsOperator(task_id="o", plan=template),
        DecommissionBrokerOperator(task_id="o", brokers=[1], plan=template),
        ResetOffsetsOperator(task_id="o", group="g", to="earliest", plan=template),
    ):
        operator.plan = nothing  # as it is rendered
        with pytest.raises(AirflowFailException, match="plan: there is none: did the task that makes it fail"):
            run(operator, context())
    assert cluster.group_commits["g"] == {TopicPartition("t", 0): 5}


def test_a_plan_of_a_topic_that_does_not_exist_is_refused() -> None:
    plan = {"version": 1, "partitions": [{"topic": "nowhere", "partition": 0, "replicas": [1]}]}
    with pytest.raises(AirflowFailException, match="nowhere-0 does not exist"):
        run(PlanReassignmentOperator(task_id="o", plan=plan), context())


def test_what_is_no_regular_expression_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(AirflowFailException, match="must_match '\\(': a regular expression is expected"):
        run(DeleteTopicOperator(task_id="o", topic="t", must_match="("), context())
    assert "t" in cluster.configs


def test_no_group_is_named() -> None:
    """To Kafka "" is a group, whose offsets can be committed."""
    for operator in (
        ResetOffsetsOperator(task_id="t", group="", to="latest"),
        CommitOffsetsOperator(task_id="t", group="", offsets={}),
    ):
        with pytest.raises(AirflowFailException, match="group: name the group"):
            run(operator, context())
