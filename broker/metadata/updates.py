"""UpdateMetadata as plain values, independent of the version that carried them (facts §9)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from logyard.broker.model import BrokerInfo, TopicId, TopicPartition


class PartitionUpdate(NamedTuple):
    """One partition's state as the controller sends it to every broker; leader -2: it is deleted.

    A tuple, since a take-over makes one for each partition of the cluster, and a frozen dataclass takes four times as
    long.
    """

    tp: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    offline: tuple[int, ...] = ()
    controller_epoch: int = -1


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """One UpdateMetadata request. `brokers` replaces the live brokers; `partitions` are merged.

    A topic of `partitions` that is missing from `topic_ids` loses the id it had (facts §9).
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[PartitionUpdate, ...]
    brokers: tuple[BrokerInfo, ...]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
