"""Records as asset events: what is announced, when it is announced again, and what a killed triggerer loses."""

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.observation import observe
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.operators.consuming import CommitOffsetsOperator
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.queues import LogyardMessageQueueProvider
from logyard.operators.triggers import arrivals
from logyard.operators.triggers.arrivals import RecordsArrivedEvent
from tests.support.airflow_tasks import context, remade, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


class World:
    """A topic `t` with two partitions, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = MemoryCluster({1: None})
        self.client = MemoryClient(self.cluster)
        self.client.create_topic(NewTopic("t", assignment={0: (1,), 1: (1,)}))
        self.client.snapshot()
        self.now = 1000.0
        use(monkeypatch, self.cluster)
        monkeypatch.setattr(arrivals, "monotonic", lambda: self.now)

    def write(self, partition: int, count: int) -> None:
        tp = TopicPartition("t", partition)
        self.cluster.end_offsets[tp] = self.client.offsets([tp])[tp] + count

    def look(self, trigger: RecordsArrivedEvent) -> list[dict[str, Any]]:
        return trigger.changes(observe(self.client, trigger.wants()), None)

    def commit(self, offsets: dict[str, Any]) -> None:
        run(CommitOffsetsOperator(task_id="c", group="g", offsets=offsets), context())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def trigger(**more: Any) -> RecordsArrivedEvent:
    made: RecordsArrivedEvent = remade(RecordsArrivedEvent(topics=["t"], group="g", **more))
    return made


def test_new_records_are_announced_once(world: World) -> None:
    made = trigger()
    assert world.look(made) == []
    world.write(0, 5)
    (event,) = world.look(made)
    assert event == {"group": "g", "topics": ["t"], "records": 5, "offsets": {"t-0": {"start": 0, "end": 5}}}
    assert world.look(made) == []
    world.write(1, 2)
    (more,) = world.look(made)
    assert more["offsets"] == {"t-0": {"start": 0, "end": 5}, "t-1": {"start": 0, "end": 2}}
    world.commit(more["offsets"])
    assert world.look(made) == []


def test_a_triggerer_that_starts_again_announces_what_is_not_committed(world: World) -> None:
    """Killed before the event was kept, or while the run works on it: the commits are all that counts."""
    world.write(0, 5)
    (event,) = world.look(trigger())
    (again,) = world.look(trigger())
    assert event == again
    world.commit(event["offsets"])
    assert world.look(trigger()) == []


def test_few_records_wait_for_more_but_not_for_ever(world: World) -> None:
    made = trigger(records_min=10, wait_max_s=60)
    world.write(0, 5)
    assert world.look(made) == []
    world.now += 59
    assert world.look(made) == []
    world.write(1, 5)
    (event,) = world.look(made)
    assert event["records"] == 10
    world.write(0, 1)
    assert world.look(made) == []
    world.now += 60
    assert len(world.look(made)) == 1


def test_records_that_stay_uncommitted_are_announced_again(world: World) -> None:
    made = trigger(remind_after_s=100)
    world.write(0, 5)
    assert len(world.look(made)) == 1
    world.now += 99
    assert world.look(made) == []
    # A run that reads a part is alive: the reminder counts from its commit on.
    world.commit({"t-0": {"start": 0, "end": 2}})
    assert world.look(made) == []
    world.now += 99
    assert world.look(made) == []
    world.now += 1
    (event,) = world.look(made)
    assert event["offsets"] == {"t-0": {"start": 2, "end": 5}}
    assert world.look(made) == []


def test_what_is_not_known_now_is_not_taken_for_nothing(world: World) -> None:
    made = trigger()
    world.write(0, 5)
    assert made.changes(None, RuntimeError("no broker answers")) == []
    seen = observe(world.client, made.wants())
    assert made.changes(replace(seen, committed={}), None) == []
    assert made.changes(replace(seen, ends={}), None) == []
    assert len(made.changes(seen, None)) == 1


def test_a_topic_made_anew_is_announced(world: World) -> None:
    made = trigger()
    world.write(0, 5)
    assert len(world.look(made)) == 1
    world.cluster.end_offsets[TopicPartition("t", 0)] = 2
    (event,) = world.look(made)
    assert event["offsets"] == {"t-0": {"start": 0, "end": 2}}


def test_it_is_said_once_why_nothing_is_announced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is misspelt, the login may not see the group's commits, or a leader is away: no DAG runs."""
    made, said = trigger(), []
    monkeypatch.setattr(made.log, "warning", lambda text, *args: said.append(text % args))
    made.topics = ["t", "unknown"]
    for _ in range(2):
        world.look(made)
    assert said == ["group g: topics unknown do not exist, or this login may not see them"]
    made.topics = ["t"]
    with monkeypatch.context() as patched:
        refused = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g: no right")
        patched.setattr(world.client, "group_offsets", Mock(side_effect=refused))
        for _ in range(2):
            world.look(made)
    assert said[1:] == [f"group g: its commits are not known now ({refused})"]
    world.look(made)
    world.cluster.hung = {1}
    for _ in range(2):
        world.look(made)
    assert len(said) == 3
    assert said[2].startswith("group g: the ends of t-0, t-1 are not known now (broker 1: ")


async def test_a_connection_that_cannot_be_read_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted, say, or its name is misspelt in the DAG."""
    made, said = trigger(poll_interval_s=0.01, logyard_conn_id="misspelt"), []
    monkeypatch.setattr(made.log, "warning", lambda text, *args: said.append(text % args))
    monkeypatch.setattr(ClusterHook, "asettings", AsyncMock(side_effect=OSError("it isn't defined")))
    listening = asyncio.ensure_future(anext(aiter(made.run())))
    await asyncio.wait({listening}, timeout=0.5)
    listening.cancel()
    assert said == ["RecordsArrivedEvent: misspelt is not known now: connection misspelt: it isn't defined"]


def test_a_commit_beyond_the_end_is_warned_of_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader lost records: what is written up to the commit is never announced, and nobody would know."""
    made, said = trigger(), []
    monkeypatch.setattr(made.log, "warning", lambda text, *args: said.append(text % args))
    world.cluster.group_commits["g"] = {TopicPartition("t", 0): 10}
    for _ in range(2):
        world.write(0, 4)
        assert world.look(made) == []
    assert len(said) == 1
    assert said[0].startswith("group g: commits are beyond the end of the log (t-0 by 6)")
    world.write(0, 4)
    (event,) = world.look(made)
    assert event["offsets"] == {"t-0": {"start": 10, "end": 12}}


def test_what_was_deleted_does_not_wait(world: World) -> None:
    """Retention has cut the log: a partition counts from its first record, whatever was committed before that."""
    made, (t0, t1) = trigger(records_min=3), (TopicPartition("t", 0), TopicPartition("t", 1))
    world.cluster.start_offsets, world.cluster.end_offsets = {t0: 1000, t1: 500}, {t0: 1000, t1: 502}
    assert world.look(made) == []
    world.cluster.group_commits["g"] = {t0: 900}
    world.write(0, 1)
    (event,) = world.look(made)
    assert (event["records"], event["offsets"]) == (
        3,
        {"t-0": {"start": 1000, "end": 1001}, "t-1": {"start": 500, "end": 502}},
    )
    unknown = replace(observe(world.client, made.wants()), starts={})
    assert trigger().changes(unknown, None) == []
    world.commit(event["offsets"])
    assert world.look(made) == []


def test_the_trigger_runs_in_a_triggerer(world: World) -> None:
    world.write(0, 3)

    async def first() -> Any:
        async for event in trigger(poll_interval_s=0.01).run():
            return event.payload
        return None

    payload = asyncio.run(asyncio.wait_for(first(), 20))
    assert (payload["event"], payload["logyard_conn_id"]) == ("RecordsArrivedEvent", "logyard_default")
    assert payload["records"] == 3


def test_queues_of_the_common_provider_lead_to_it() -> None:
    provider = LogyardMessageQueueProvider()
    assert provider.scheme == "logyard"
    assert provider.queue_matches("logyard://kafka_west/a,b")
    assert not provider.queue_matches("kafka://a:1/t")
    named = provider.trigger_kwargs("logyard://kafka_west/a,b", group="g")
    assert named == {"logyard_conn_id": "kafka_west", "topics": ["a", "b"]}
    made = provider.trigger_class()(group="g", **named)
    assert made.topics == ["a", "b"]
