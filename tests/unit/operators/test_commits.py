"""Offsets committed after what follows a reading: never back, never over records unread, never of another topic."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.consuming import CommitOffsetsOperator, Unfinished, as_ranges
from logyard.operators.hooks.records import RecordsFailed, RecordsHook
from logyard.operators.sensors.records import AwaitRecordSensor
from logyard.operators.triggers.base import DONE, WaitEvent
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None}, end_offsets={ONE: 10, TWO: 10})
    use(monkeypatch, made)
    return made


@pytest.fixture
def client(cluster: MemoryCluster) -> MemoryClient:
    found = MemoryClient(cluster)
    found.create_topic(NewTopic("t", assignment={0: (1,), 1: (1,)}))
    found.snapshot()
    return found


def commits(**ranges: tuple[int, int]) -> dict[str, Any]:
    offsets: dict[str, Any] = {f"t-{p[1:]}": {"start": start, "end": end} for p, (start, end) in ranges.items()}
    if len(ranges) > 1:  # the whole result of the reader is taken too
        offsets = {"group": "g", "offsets": offsets}
    found: dict[str, Any] = run(CommitOffsetsOperator(task_id="c", group="g", offsets=offsets), context())[0]
    return found


def test_offsets_are_committed_once_and_never_back(client: MemoryClient) -> None:
    assert commits(p0=(0, 5), p1=(0, 2))["committed"] == {"t-0": 5, "t-1": 2}
    again = commits(p0=(0, 5), p1=(1, 4))
    assert (again["committed"], again["already"]) == ({"t-1": 4}, {"t-0": 5})
    assert client.group_offsets("g") == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 4}


def test_records_of_an_unfinished_run_are_not_committed_over(client: MemoryClient) -> None:
    commits(p0=(0, 5))
    with pytest.raises(Unfinished, match="t-0 from 5 to 7"):
        commits(p0=(7, 9), p1=(0, 1))
    assert client.group_offsets("g") == {TopicPartition("t", 0): 5}
    with pytest.raises(Unfinished, match="t-1 from 0 to 3"):
        commits(p1=(3, 4))


@pytest.mark.parametrize(
    "wrong", [{"t": {"start": 0, "end": 1}}, {"t-0": 5}, {"t-0": {"start": 4, "end": 1}}, {"-0": {}}]
)
def test_what_is_no_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        as_ranges(wrong)


def read_of(client: MemoryClient) -> dict[str, Any]:
    """What a task has read of `t`, and of which topic of that name."""
    known = client.witnessed(["t"]).topics["t"].topic_id
    return {"group": "g", "offsets": {"t-0": {"start": 0, "end": 5}}, "topic_ids": {"t": known}}


def made_anew(client: MemoryClient) -> None:
    client.delete_topic("t")
    client.create_topic(NewTopic("t", assignment={0: (1,), 1: (1,)}))
    client.snapshot()


def test_nothing_is_committed_for_another_topic_of_the_name(client: MemoryClient) -> None:
    """It has as many records as the first one had: who goes by the name would never read them."""
    read = read_of(client)
    made_anew(client)
    with pytest.raises(AirflowFailException, match="group g: topic t was made anew since its records were read"):
        run(CommitOffsetsOperator(task_id="c", group="g", offsets=read), context())
    assert client.group_offsets("g") == {}
    run(CommitOffsetsOperator(task_id="c", group="g", offsets=read_of(client)), context())
    assert client.group_offsets("g") == {ONE: 5}


def test_nothing_is_committed_behind_the_end_of_a_log(client: MemoryClient, cluster: MemoryCluster) -> None:
    """Where topics have no ids, or an event named the offsets, a shorter log tells of another topic."""
    cluster.end_offsets[ONE] = 4
    with pytest.raises(RecordsFailed, match="t-0 was read up to 5, and ends at 4: it lost records"):
        commits(p0=(0, 5), p1=(0, 2))
    assert client.group_offsets("g") == {}


def test_nothing_is_committed_in_another_cluster(client: MemoryClient, cluster: MemoryCluster) -> None:
    """The connection was edited between the two tasks; a topic without an id there tells nothing."""
    read = read_of(client) | {"cluster_id": "memory", "topic_ids": {}}
    cluster.cluster_id = "elsewhere"
    with pytest.raises(AirflowFailException, match=r"group g: the connection led to cluster memory .* elsewhere now"):
        run(CommitOffsetsOperator(task_id="c", group="g", offsets=read), context())
    assert client.group_offsets("g") == {}
    cluster.cluster_id = "memory"
    run(CommitOffsetsOperator(task_id="c", group="g", offsets=read), context())
    assert client.group_offsets("g") == {ONE: 5}


def test_a_sensor_commits_only_where_it_has_waited(
    client: MemoryClient, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has waited for days, and meanwhile the topic was made anew, or the connection led elsewhere."""
    cluster_of = SimpleNamespace(cluster_id="memory")
    consumer = SimpleNamespace(close=lambda: None, list_topics=lambda *_, **__: cluster_of)
    monkeypatch.setattr(RecordsHook, "consumer", lambda *_: consumer)
    monkeypatch.setattr("logyard.operators.sensors.records.first_offsets", lambda *_, **__: {"t-0": 0, "t-1": 0})
    event = WaitEvent(DONE, values={"record": {}, "result": True, "offsets": {"t-0": 3, "t-1": 0}}).as_json()

    def resumed(*, anew: bool, cluster_id: str = "memory") -> None:
        sensor = AwaitRecordSensor(task_id="s", topics=["t"], group="g", deferrable=True, timeout=60)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(context())
        if anew:
            made_anew(client)
        cluster.cluster_id = cluster_id
        kwargs = json.loads(json.dumps(deferred.value.kwargs))
        getattr(sensor, deferred.value.method_name)(context(), event=event, **kwargs)

    with pytest.raises(AirflowFailException, match="group g: topic t was made anew since its records were read"):
        resumed(anew=True)
    with pytest.raises(AirflowFailException, match=r"the connection led to cluster memory .* leads to elsewhere now"):
        resumed(anew=False, cluster_id="elsewhere")
    assert client.group_offsets("g") == {}
    resumed(anew=False)
    assert client.group_offsets("g") == {ONE: 3, TWO: 0}
