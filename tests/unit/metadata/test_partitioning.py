"""Which broker coordinates a group or a transactional id."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import (
    INTERNAL_TOPICS,
    LEADER_DURING_DELETE,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerInfo,
    Endpoint,
    TopicPartition,
)
from logyard.broker.server.handlers import find_coordinator
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns

BROKERS = tuple(BrokerInfo(number, (Endpoint("L", "PLAINTEXT", "h", 9000 + number),)) for number in (1, 2))


def update(topic: str, *leaders: int) -> UpdateMetadata:
    """Partition n is led by the n-th of these."""
    partitions = tuple(
        PartitionUpdate(TopicPartition(topic, number), leader, 0, (1,), (1, 2), 0, ())
        for number, leader in enumerate(leaders)
    )
    return UpdateMetadata(1, 1, 1, partitions, BROKERS)


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_the_first_count_stays(topic: str) -> None:
    metadata = MetadataCache()
    partitioning = Partitioning(metadata, topic, lambda: 50)
    assert (partitioning.partition_count, partitioning.partition_for("hello")) == (50, 22)
    assert partitioning.coordinator_of("hello") is None
    metadata.apply_update(update(topic, 1, 2, 1))
    metadata.apply_update(update(topic, 1, 2, 1, 1, 1))
    assert (partitioning.partition_count, partitioning.partition_for("hello")) == (3, 99162322 % 3)
    assert Partitioning(metadata, topic, lambda: 50).partition_count == 5
    metadata.apply_update(update(topic, *[LEADER_DURING_DELETE] * 5))
    assert partitioning.partition_count == 50


@pytest.mark.parametrize(("key_type", "topic"), [(0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)])
async def test_partitions_that_are_added_move_nobody(key_type: int, topic: str) -> None:
    """Members of a group would go to a broker that knows nothing of its offsets."""
    metadata = MetadataCache()
    partitioning = Partitioning(metadata, topic, lambda: 50)
    metadata.apply_update(update(topic, 1))
    metadata.apply_update(update(topic, 1, 2, 2, 2, 2))
    services = SimpleNamespace(
        turns=Turns(),
        rights=EverythingAllowed(),
        metadata=metadata,
        group_partitions=partitioning,
        transaction_partitions=partitioning,
    )
    message = SimpleNamespace(key_type=key_type, coordinator_keys=[f"g{number}" for number in range(10)])
    request = SimpleNamespace(api_version=4, api_key=10, session=SimpleNamespace(listener="L"))
    answer = cast(Any, await find_coordinator.handle(cast(Any, services), cast(Any, request), message))
    assert {(found["error_code"], found["node_id"]) for found in answer["coordinators"]} == {(ErrorCode.NONE, 1)}


def test_the_coordinator_is_the_living_leader() -> None:
    metadata = MetadataCache()
    partitioning = Partitioning(metadata, TRANSACTIONS_TOPIC, lambda: 50)
    metadata.apply_update(update(TRANSACTIONS_TOPIC, 2))
    assert partitioning.coordinator_of("x") == BROKERS[1]
    metadata.apply_update(update(TRANSACTIONS_TOPIC, -1))
    assert partitioning.coordinator_of("x") is None
    metadata.apply_update(update(TRANSACTIONS_TOPIC, 9))
    assert partitioning.coordinator_of("x") is None, "dead"
