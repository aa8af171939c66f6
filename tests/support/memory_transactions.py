"""Transactions of a `MemoryCluster`, for the client onto it (`memory_clients.py`)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from logyard.admin.transactions.transactions import AbortMarker, Producer, Transaction, TransactionListing
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from tests.support.memory_cluster import MemoryCluster


class MemoryTransactions:
    """The part of `ports.DescribingClient` that is about transactions."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def list_transactions(
        self, producer_ids: Iterable[int] = (), duration_ms: int | None = None
    ) -> list[TransactionListing]:
        wanted = set(producer_ids)
        found = [one for _, one in sorted(self._cluster.transactions.items())]
        return [
            TransactionListing(one.transactional_id, one.coordinator, one.producer_id, one.state)
            for one in found
            if not wanted or one.producer_id in wanted
        ]

    def describe_transaction(self, transactional_id: str) -> Transaction | None:
        return self._cluster.transactions.get(transactional_id)

    def describe_producers(
        self, partitions: Sequence[TopicPartition], broker: int | None = None
    ) -> dict[TopicPartition, tuple[Producer, ...] | ApiError]:
        c = self._cluster
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            tp: tuple(c.producers.get(tp, ()))
            if tp in c.assignments
            else ApiError(unknown, f"there is no partition {tp}")
            for tp in partitions
        }

    def write_abort_marker(self, marker: AbortMarker) -> None:
        for at, one in enumerate(self._cluster.producers.get(marker.tp, ())):
            if one.producer_id == marker.producer_id:
                ended = replace(one, start_offset=None, coordinator_epoch=marker.coordinator_epoch)
                self._cluster.producers[marker.tp][at] = ended
