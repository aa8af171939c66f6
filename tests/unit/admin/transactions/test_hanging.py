"""Which open transactions hang: those that no coordinator will end."""

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.transactions import hanging
from logyard.admin.transactions.transactions import (
    AbortMarker,
    BadTransactions,
    OpenTransaction,
    Producer,
    Transaction,
    TransactionListing,
    hanging_table,
    listing_table,
    producers_table,
    transaction_table,
)
from logyard.broker.errors import ApiError
from logyard.broker.model import TRANSACTIONS_TOPIC, TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 100_000_000
OLD = NOW - 20 * 60_000


def producer(number: int, start: int | None = 5, last_ms: int = OLD, coordinator_epoch: int = -1) -> Producer:
    return Producer(number, 0, coordinator_epoch, 7, last_ms, start)


def transaction(name: str, number: int, *partitions: TopicPartition, state: str = "Ongoing") -> Transaction:
    return Transaction(name, 1, number, 0, state, 60_000, OLD, partitions)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None})
    MemoryClient(made).create_topic(NewTopic("t", 2, 1))
    made.tick()
    return made


def find(cluster: MemoryCluster, broker: int | None = None) -> list[OpenTransaction]:
    client = MemoryClient(cluster)
    searched = hanging.partitions_to_search(client, ["t"], broker)
    return hanging.find_hanging(client, searched, now_ms=NOW, idle_ms=15 * 60_000, broker=broker)


def test_a_partition_that_one_broker_has_not_heard_of_is_searched_too(cluster: MemoryCluster) -> None:
    before = MemoryClient(cluster).snapshot().topics["t"]
    MemoryClient(cluster).add_partitions("t", 3)
    cluster.tick()
    cluster.outdated = {"t": before}
    cluster.producers = {TopicPartition("t", 2): [producer(1)]}
    assert [one.tp for one in find(cluster)] == [TopicPartition("t", 2)]


def test_only_what_nobody_will_end(cluster: MemoryCluster) -> None:
    cluster.producers = {
        T0: [
            producer(1),  # no coordinator knows it
            producer(2),  # its coordinator has this partition
            producer(3, start=None),  # no transaction is open
            producer(4, last_ms=NOW - 15 * 60_000),  # young enough to be ended by its time-out
            producer(5),  # its coordinator knows it, and not this partition
        ],
        T1: [producer(2), producer(6)],
    }
    cluster.transactions = {
        "two": transaction("two", 2, T0),
        "five": transaction("five", 5, T1, state="PrepareAbort"),
        "six": transaction("six", 6, state="Empty"),
    }
    found = [(one.tp, one.producer.producer_id) for one in find(cluster)]
    assert found == [(T0, 1), (T0, 5), (T1, 2), (T1, 6)]


def test_where_is_searched(cluster: MemoryCluster) -> None:
    cluster.producers = {T0: [producer(1)], T1: [producer(1)]}
    (on_one,) = cluster.assignments[T0].replicas
    assert [one.tp for one in find(cluster, on_one)] == [
        tp for tp in (T0, T1) if cluster.assignments[tp].replicas == (on_one,)
    ]
    client = MemoryClient(cluster)
    assert hanging.partitions_to_search(client, None, None) == [T0, T1]
    with pytest.raises(BadTransactions, match="there is no topic none"):
        hanging.partitions_to_search(client, ["none"], None)
    with pytest.raises(ApiError, match="there is no partition t-9"):
        hanging.open_transactions(client, [T0, TopicPartition("t", 9)])


def test_a_topic_of_which_nobody_can_tell_is_not_said_to_be_gone(cluster: MemoryCluster) -> None:
    cluster.unheard, cluster.electing = {"t"}, False
    client = MemoryClient(cluster)
    assert hanging.partitions_to_search(client, ["t"], None) == [T0, T1]
    cluster.controller = None
    with pytest.raises(ApiError, match="no controller"):
        hanging.partitions_to_search(client, ["t"], None)


def test_ending_one(cluster: MemoryCluster) -> None:
    cluster.producers = {T0: [producer(1, start=5), producer(2, start=9, coordinator_epoch=3)]}
    client = MemoryClient(cluster)
    assert AbortMarker.of(hanging.find_open(client, T0, 5)) == AbortMarker(T0, 1, 0, 0)
    marker = AbortMarker.of(hanging.find_open(client, T0, 9))
    assert marker == AbortMarker(T0, 2, 0, 3)
    client.write_abort_marker(marker)
    with pytest.raises(BadTransactions, match="Could not find any open transactions starting at offset 9"):
        hanging.find_open(client, T0, 9)


def test_tables_as_kafkas_tool_prints_them() -> None:
    one = OpenTransaction(T0, producer(1))
    assert hanging_table([one], NOW)[1].split("\t")[-2:] == ["20           ", ""]
    assert hanging_table([], NOW) == [
        "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t"
    ]
    assert [cell.strip() for cell in producers_table([producer(1, start=None)])[1].split("\t")] == [
        "1", "0", "-1", "7", str(OLD), "None", "",
    ]  # fmt: skip
    described = transaction_table(transaction("id", 1, T0, T1), NOW)
    assert [cell.strip() for cell in described[1].split("\t")] == [
        "1", "id", "1", "0", "Ongoing", "60000", str(OLD), "1200000", "t-0,t-1", "",
    ]  # fmt: skip
    empty = Transaction("id", 1, 1, 0, "Empty", 60_000, None)
    assert [cell.strip() for cell in transaction_table(empty, NOW)[1].split("\t")][6:] == ["None", "None", "", ""]
    assert listing_table([])[0].split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]


def test_while_a_coordinator_is_away_nobody_knows_what_hangs(cluster: MemoryCluster) -> None:
    """It may have decided to commit: an abort of the rest would tear the transaction."""
    MemoryClient(cluster).create_topic(NewTopic(TRANSACTIONS_TOPIC, 2, 1))
    cluster.tick()
    cluster.producers = {T0: [producer(1)]}
    assert [one.tp for one in find(cluster)] == [T0]
    (coordinator,) = cluster.assignments[TopicPartition(TRANSACTIONS_TOPIC, 1)].replicas
    cluster.stop(coordinator)
    while coordinator in cluster.live():
        cluster.tick()
    with pytest.raises(ApiError, match=f"partition 1 of {TRANSACTIONS_TOPIC} has no leader"):
        find(cluster)
    cluster.producers = {T0: [producer(1, last_ms=NOW)]}
    assert find(cluster) == []


def test_a_coordinator_that_moves_while_it_is_asked_for_is_asked_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one has it no more, and the new one had it not yet when it was asked."""
    MemoryClient(cluster).create_topic(NewTopic(TRANSACTIONS_TOPIC, 1, 1))
    cluster.tick()
    cluster.producers = {T0: [producer(1)]}
    listed: list[list[TransactionListing]] = [[], [TransactionListing("one", 1, 1, "PrepareCommit")]]
    cluster.transactions = {"one": transaction("one", 1, T0, state="PrepareCommit")}

    def moves(client: MemoryClient, producer_ids: object, duration_ms: int | None = None) -> list[TransactionListing]:
        if len(listed) == 2:
            of_id = TopicPartition(TRANSACTIONS_TOPIC, 0)
            state = cluster.states[of_id]
            cluster.states[of_id] = state._replace(leader_epoch=state.leader_epoch + 1)
        return listed.pop(0)

    monkeypatch.setattr(MemoryClient, "list_transactions", moves)
    assert find(cluster) == []
    assert listed == []


def test_what_has_ended_while_coordinators_were_asked_does_not_hang(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer has begun another, which is not to be aborted."""
    cluster.producers = {T0: [producer(1, start=5)]}

    def ends(client: MemoryClient, producer_ids: object, duration_ms: int | None = None) -> list[TransactionListing]:
        cluster.producers = {T0: [producer(1, start=99, last_ms=NOW)]}
        return []

    monkeypatch.setattr(MemoryClient, "list_transactions", ends)
    assert find(cluster) == []
