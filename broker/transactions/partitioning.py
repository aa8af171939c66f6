"""Which partition of `__transaction_state` holds a transactional id, and which broker coordinates it."""

from collections.abc import Callable, Sequence

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import living_leader, partition_for
from logyard.broker.model import TRANSACTIONS_TOPIC, BrokerInfo, TopicPartition


class Partitioning:
    """The number of partitions is that of the first metadata with the topic, until the topic is deleted.

    Another number would move ids to partitions where nothing is known of them (facts §17.1).
    """

    def __init__(self, metadata: MetadataCache, default_count: Callable[[], int]) -> None:
        self._metadata = metadata
        self._default_count = default_count
        self._seen_count = len(metadata.partitions(TRANSACTIONS_TOPIC))
        metadata.subscribe(self._see)

    def _see(self, changed: Sequence[str], deleted: Sequence[TopicPartition]) -> None:
        if TRANSACTIONS_TOPIC not in changed:
            return
        count = len(self._metadata.partitions(TRANSACTIONS_TOPIC))
        if not self._seen_count or not count:
            self._seen_count = count

    @property
    def partition_count(self) -> int:
        """The topic's partitions; before it is known to exist, how many it would be made with here."""
        return self._seen_count or self._default_count()

    def partition_for(self, transactional_id: str) -> int:
        """The partition that holds the id."""
        return partition_for(transactional_id, self.partition_count)

    def coordinator_of(self, transactional_id: str) -> BrokerInfo | None:
        """The broker that coordinates the id, None while there is no topic or no living leader."""
        tp = TopicPartition(TRANSACTIONS_TOPIC, self.partition_for(transactional_id))
        return living_leader(self._metadata, tp)
