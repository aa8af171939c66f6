"""Hanging transactions: waited for, found, approved, and ended exactly as planned."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.observation import EVERY_TOPIC, Observation, Wanted, observe
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.approval import hanging_markdown, is_empty
from logyard.operators.sensors.transactions import NoHangingTransactionsSensor
from logyard.operators.transactions import AbortHangingTransactionsOperator
from logyard.operators.triggers.transactions import NoHangingTransactionsTrigger
from logyard.operators.triggers.watch import ClusterWatch
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD = time.time_ns() // 1_000_000 - 20 * 60_000
WAITING: dict[str, Any] = {"logyard_conn_id": "logyard_default", "poll_interval_s": 0.01, "deadline_ms": 0}


def producer(number: int, start: int | None = 5) -> Producer:
    return Producer(number, 0, -1, 7, OLD, start)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    MemoryClient(made).create_topic(NewTopic("t", 2, 1))
    MemoryClient(made).create_topic(NewTopic("u", 1, 1))
    made.producers = {T0: [producer(1), producer(2)], T1: [producer(3, start=None)], U0: [producer(4, start=9)]}
    made.transactions = {"two": Transaction("two", 1, 2, 0, "Ongoing", 60_000, OLD, (T0,))}
    use(monkeypatch, made)
    return made


def abort(**fields: Any) -> AbortHangingTransactionsOperator:
    return AbortHangingTransactionsOperator(task_id="a", **fields)


def still_open(cluster: MemoryCluster) -> list[int]:
    return sorted(p.producer_id for found in cluster.producers.values() for p in found if p.start_offset is not None)


def test_what_hangs_is_ended_once(cluster: MemoryCluster) -> None:
    found, _ = run(abort(), context())
    assert [(one["topic"], one["partition"], one["producer_id"], one["start_offset"]) for one in found["hanging"]] == [
        ("t", 0, 1, 5),
        ("u", 0, 4, 9),
    ]
    assert still_open(cluster) == [2]
    assert run(abort(), context())[0] == {"hanging": [], "cluster_id": "memory", "dry_run": False}


def test_what_one_broker_has_not_heard_of_is_searched_too(cluster: MemoryCluster) -> None:
    """That nothing hangs would be said by the list of a broker that lacks the topic."""
    cluster.unheard = {"u"}
    seen = look(cluster, Wanted(hanging=frozenset({(EVERY_TOPIC, 15)})))
    assert [one.tp for one in seen.hanging or ()] == [T0, U0]
    assert [one["topic"] for one in run(abort(), context())[0]["hanging"]] == ["t", "u"]


def test_a_plan_is_carried_out_and_nothing_else(cluster: MemoryCluster) -> None:
    plan, _ = run(abort(topics=["t"], dry_run=True), context())
    assert (plan["dry_run"], still_open(cluster)) == (True, [1, 2, 4])
    assert not is_empty(plan)
    assert "| t-0 | 5 | 1 | 0 | 20" in hanging_markdown(plan)
    assert len(run(abort(plan=plan), context())[0]["hanging"]) == 1
    assert still_open(cluster) == [2, 4]
    # The same producer may have begun another transaction since: it is not in the plan.
    cluster.producers[T0][0] = producer(1, start=50)
    assert run(abort(plan=plan), context())[0]["hanging"] == []
    nothing, _ = run(abort(topics=["t"], idle_minutes="60", dry_run=True), context())
    assert is_empty(nothing)
    assert run(abort(plan=nothing), context())[0]["hanging"] == []
    with pytest.raises(AirflowFailException, match="expected the result of a dry run"):
        run(abort(plan={"changed": {}}), context())


@pytest.mark.parametrize("last_ms", [-(2**62), 2**62])
def test_a_time_in_no_year_that_has_a_name_keeps_nobody_from_approving(last_ms: int) -> None:
    """It is the time that the producer gave its last record."""
    one = {"topic": "t", "partition": 0, "start_offset": 5, "producer_id": 1, "producer_epoch": 0, "last_ms": last_ms}
    assert f"| t-0 | 5 | 1 | 0 | {last_ms} ms |" in hanging_markdown({"hanging": [one]})


def test_a_plan_ends_nothing_in_another_cluster(cluster: MemoryCluster) -> None:
    """Ids of producers are small numbers in each cluster."""
    plan, _ = run(abort(dry_run=True), context())
    cluster.cluster_id = "elsewhere"
    with pytest.raises(AirflowFailException, match=r"led to cluster memory when .* leads to elsewhere now"):
        run(abort(plan=plan), context())
    assert still_open(cluster) == [1, 2, 4]


@pytest.mark.parametrize("deferrable", [True, False])
def test_waiting_until_nothing_hangs(cluster: MemoryCluster, deferrable: bool) -> None:
    sensor = NoHangingTransactionsSensor(
        task_id="s", topics=["t"], deferrable=deferrable, poke_interval=0.01, timeout=5
    )
    cluster.producers[T0] = [producer(2)]
    assert run(sensor, context())[0] == {"topics": ["t"]}


def test_what_is_waited_for(cluster: MemoryCluster) -> None:
    trigger = NoHangingTransactionsTrigger(topics=None, idle_minutes=15, **WAITING)
    assert trigger.wants() == Wanted(hanging=frozenset({(EVERY_TOPIC, 15)}))
    seen = look(cluster, trigger.wants())
    assert trigger.look(seen) is None
    assert trigger.missing(seen) == "an end of 2 hanging transactions: t-0 from offset 5, u-0 from offset 9"
    # One observation for two that wait: each takes what it asked for.
    patient = NoHangingTransactionsTrigger(topics=["t"], idle_minutes=60, **WAITING)
    both = look(cluster, Wanted.of([trigger.wants(), patient.wants()]))
    assert patient.look(both) == {"topics": ["t"]}
    assert trigger.look(both) is None
    unknown = Observation(seen.snapshot, hanging_problem="no broker answered")
    assert trigger.look(unknown) is None
    assert trigger.missing(unknown) == "the transactions to be known (no broker answered)"


def test_in_a_topic_that_is_not_there_nothing_is_known_to_hang(cluster: MemoryCluster) -> None:
    """Its name is wrong, or the broker that was asked has not heard of it."""
    trigger = NoHangingTransactionsTrigger(topics=["absent"], idle_minutes=15, **WAITING)
    seen = look(cluster, trigger.wants())
    assert (trigger.look(seen), trigger.missing(seen)) == (None, "topics absent to appear")


def test_a_partition_that_one_broker_does_not_know_yet_is_searched(cluster: MemoryCluster) -> None:
    before = MemoryClient(cluster).snapshot().topics["t"]
    added = TopicPartition("t", len(before.partitions))
    MemoryClient(cluster).add_partitions("t", added.partition + 1)
    MemoryClient(cluster).snapshot()
    cluster.outdated = {"t": before}
    cluster.producers = {added: cluster.producers[T0]}
    trigger = NoHangingTransactionsTrigger(topics=["t"], idle_minutes=15, **WAITING)
    seen = look(cluster, trigger.wants())
    assert trigger.look(seen) is None
    assert f"{added} from offset" in trigger.missing(seen)


def test_a_cluster_that_does_not_tell(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise ClusterUnreachable("no answer")

    monkeypatch.setattr(MemoryClient, "describe_producers", silent)
    seen = observe(MemoryClient(cluster), Wanted(hanging=frozenset({("t", 15)})))
    assert (seen.hanging, seen.hanging_problem) == (None, "no answer")


def look(cluster: MemoryCluster, wants: Wanted) -> Observation:
    """An observation at the time of this machine: the cluster in memory has a clock of its own."""
    client = MemoryClient(cluster)
    snapshot = client.snapshot
    client.snapshot = lambda *a, **k: replace(snapshot(*a, **k), taken_at_ms=OLD + 20 * 60_000)  # type: ignore[method-assign]
    return observe(client, wants)


async def test_the_search_is_made_as_often_as_is_asked_and_not_with_every_look(cluster: MemoryCluster) -> None:
    """It asks the leaders of all partitions; who waits for something else looks every second, on the same watch."""
    watch = ClusterWatch.of("logyard_default")
    wants = Wanted(hanging=frozenset({(EVERY_TOPIC, 15)}))
    minute = asyncio.ensure_future(watch.next_look(60.0, wants))
    async with asyncio.timeout(10):
        for _ in range(3):
            seen = await watch.next_look(0.01)
            assert isinstance(seen, Observation)
            assert seen.hanging is None
        assert not minute.done()
        # Once it is made, all have it.
        assert await watch.next_look(0.01, wants) is await minute
