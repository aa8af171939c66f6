"""Elections of leaders: of which partitions, and whose list of topics they go by."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.reassignment.plan import StalePlan
from logyard.broker.model import TopicPartition
from logyard.dags.factories.reassign_replicas import reassign_replicas_dag
from logyard.operators.leadership import ElectLeadersOperator, elect_unclean
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Topics `t` and `u`; broker 2 was away, and leads nothing now."""
    made = MemoryCluster({1: None, 2: None}, ticks_to_expire=0)
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", assignment={0: (2, 1), 1: (2, 1)}))
    client.create_topic(NewTopic("u", assignment={0: (2, 1)}))
    client.snapshot()
    made.restart(2)
    use(monkeypatch, made)
    assert set(leaders(made).values()) == {1}
    return made


def leaders(cluster: MemoryCluster) -> dict[str, int]:
    return {str(tp): state.leader for tp, state in sorted(cluster.states.items())}


def elect(**fields: Any) -> list[str]:
    found: list[str] = run(ElectLeadersOperator(task_id="e", **fields), context())[0]["elected"]
    return found


def planned(*partitions: int, **more: Any) -> dict[str, Any]:
    return {"partitions": [{"topic": "t", "partition": p, "replicas": [2, 1]} for p in partitions], **more}


@pytest.mark.parametrize(
    ("form", "elected"),
    [
        ({"topics": [], "plan": planned(1)}, ["t-1"]),
        ({"topics": ["u"], "plan": {}}, ["u-0"]),
        ({"topics": [], "plan": None}, ["t-0", "t-1", "u-0"]),
    ],
)
def test_a_run_with_a_plan_elects_only_its_leaders(
    cluster: MemoryCluster, form: dict[str, Any], elected: list[str]
) -> None:
    """Who gives a plan of one partition has not asked for elections in the whole cluster."""
    dag = reassign_replicas_dag()
    task, told = dag.get_task("elect"), context() | {"params": form}
    task.render_template_fields(told)
    assert run(task, told)[0]["elected"] == elected
    assert [name for name, leader in leaders(cluster).items() if leader == 2] == elected


def test_a_plan_is_for_its_cluster_and_what_is_deleted_is_left_out(cluster: MemoryCluster) -> None:
    with pytest.raises(StalePlan, match="the plan is for cluster elsewhere"):
        elect(plan=planned(0, cluster_id="elsewhere"))
    gone = {"topic": "gone", "partition": 0, "replicas": [2, 1]}
    assert elect(plan={"partitions": [gone, *planned(0)["partitions"]]}) == ["t-0"]


@pytest.mark.parametrize("empty", [{}, "{}", {"partitions": []}, '{"partitions": []}'])
def test_an_empty_plan_elects_nobody(cluster: MemoryCluster, empty: Any) -> None:
    """The task before it has found nothing to move; who has no plan at all elects by topics."""
    for fields in ({}, {"dry_run": True}):
        task, told = ElectLeadersOperator(task_id="e", topics=["t"], plan=empty, **fields), context()
        assert run(task, told)[0] == {"elected": [], "kind": "preferred", "planned": 0} | (
            {"would_elect": []} if fields else {}
        )
        said = "0 leaders to elect" if fields else "The plan has no partitions, so no leader was elected"
        assert told["ti"].values["outcome"]["sentence"] == said
    assert set(leaders(cluster).values()) == {1}
    assert elect(topics=["t"], plan=None) == ["t-0", "t-1"]
    assert elect(plan="null") == ["u-0"]


def test_a_broker_that_has_not_heard_of_a_topic_keeps_it_from_no_election(cluster: MemoryCluster) -> None:
    cluster.unheard = {"u"}
    assert elect() == ["t-0", "t-1", "u-0"]


def test_leaders_are_those_that_the_controller_knows(cluster: MemoryCluster) -> None:
    """The broker that is asked may lag, and show the leaders of before."""
    before = MemoryClient(cluster).snapshot().topics["t"]
    cluster.outdated = {"t": replace(before, partitions=tuple(replace(p, leader=2) for p in before.partitions))}
    assert elect(topics=["t"]) == ["t-0", "t-1"]


def test_an_unclean_election_tells_what_was_elected(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old leader came back in the meantime: nobody lost a record."""
    back, unled = TopicPartition("t", 0), TopicPartition("t", 1)

    def answer(*_: object, unclean: bool) -> dict[TopicPartition, ApiError | None]:
        return {back: ApiError(ErrorCode.ELECTION_NOT_NEEDED, "it has a leader"), unled: None}

    monkeypatch.setattr(MemoryClient, "elect_leaders", answer)
    assert elect_unclean(MemoryClient(cluster), [back, unled]) == [unled]


@pytest.mark.parametrize(
    ("unclean", "said"),
    [
        ("False", "Every leader is the preferred one already, none was elected"),
        ("True", "Every partition has a leader already, none was elected"),
    ],
)
def test_an_election_with_nothing_to_do_says_what_it_looked_for(
    cluster: MemoryCluster, unclean: str, said: str
) -> None:
    if unclean == "False":
        elect()
    ctx = context()
    run(ElectLeadersOperator(task_id="e", unclean=unclean), ctx)
    assert ctx["ti"].values["outcome"]["sentence"] == said
