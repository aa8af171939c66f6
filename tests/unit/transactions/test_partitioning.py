"""Which broker coordinates a transactional id."""

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import LEADER_DURING_DELETE, TRANSACTIONS_TOPIC, BrokerInfo, TopicPartition
from logyard.broker.transactions.partitioning import Partitioning

BROKERS = tuple(BrokerInfo(number, ()) for number in (1, 2))


def update(*leaders: int) -> UpdateMetadata:
    """Partition n is led by the n-th of these."""
    partitions = tuple(
        PartitionUpdate(TopicPartition(TRANSACTIONS_TOPIC, number), leader, 0, (1,), (1, 2), 0, ())
        for number, leader in enumerate(leaders)
    )
    return UpdateMetadata(1, 1, 1, partitions, BROKERS)


def test_the_first_count_stays() -> None:
    metadata = MetadataCache()
    partitioning = Partitioning(metadata, lambda: 50)
    assert (partitioning.partition_count, partitioning.partition_for("hello")) == (50, 22)
    assert partitioning.coordinator_of("hello") is None
    metadata.apply_update(update(1, 2, 1))
    metadata.apply_update(update(1, 2, 1, 1, 1))
    assert (partitioning.partition_count, partitioning.partition_for("hello")) == (3, 99162322 % 3)
    assert Partitioning(metadata, lambda: 50).partition_count == 5
    metadata.apply_update(update(*[LEADER_DURING_DELETE] * 5))
    assert partitioning.partition_count == 50


def test_the_coordinator_is_the_living_leader() -> None:
    metadata = MetadataCache()
    partitioning = Partitioning(metadata, lambda: 50)
    metadata.apply_update(update(2))
    assert partitioning.coordinator_of("x") == BROKERS[1]
    metadata.apply_update(update(-1))
    assert partitioning.coordinator_of("x") is None
    metadata.apply_update(update(9))
    assert partitioning.coordinator_of("x") is None, "dead"
