"""Makes a broker's group coordinator, and connects it to the leadership of `__consumer_offsets`."""

import uuid
from collections.abc import Callable

from logyard.broker.clock import Clock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.event_loop import SubmitBlocking
from logyard.broker.groups import membership
from logyard.broker.groups.offsets_log import ReplicatedOffsets
from logyard.broker.groups.ports import CallLater
from logyard.broker.groups.runner import GroupCoordinator
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.replication.replicas import Replicas


def coordinator_for(
    config: BrokerConfig,
    replicas: Replicas,
    metadata: MetadataCache,
    partitioning: Partitioning,
    clock: Clock,
    run_blocking: SubmitBlocking,
    call_later: CallLater,
    new_uuid: Callable[[], uuid.UUID],
) -> GroupCoordinator:
    """Make the coordinator, which stores groups in `__consumer_offsets`, and connect it to that topic's leadership."""
    offsets = ReplicatedOffsets(
        replicas,
        partitioning,
        clock,
        run_blocking,
        config.int("offsets.commit.timeout.ms"),
    )
    rules = membership.Rules(
        initial_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        size_max=config.int("group.max.size"),
        session_timeout_ms_min=config.int("group.min.session.timeout.ms"),
        session_timeout_ms_max=config.int("group.max.session.timeout.ms"),
    )
    coordinator = GroupCoordinator(
        offsets,
        clock,
        call_later,
        lambda: str(new_uuid()),
        rules,
        config.int("offsets.retention.minutes") * 60_000,
        config.int("offset.metadata.max.bytes"),
    )
    replicas.requests.add_listener(OffsetsLeadership(coordinator))
    # Committed offsets are deleted with their topic, but not when a replica moves away.
    metadata.subscribe(lambda topics, deleted: coordinator.commits.on_partitions_deleted(deleted))
    return coordinator


class OffsetsLeadership:
    """Tells the group coordinator which partitions of `__consumer_offsets` this broker leads."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp.topic == OFFSETS_TOPIC:
            self._coordinator.on_leader(tp.partition)

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp.topic == OFFSETS_TOPIC:
            self._coordinator.on_follower(tp.partition)

    def on_deleted(self, tp: TopicPartition) -> None:
        if tp.topic == OFFSETS_TOPIC:
            self._coordinator.on_follower(tp.partition)
