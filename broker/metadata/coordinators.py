"""The partition of an internal topic that holds a group or transactional id, and the broker that leads it."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import BrokerInfo, TopicPartition

# Of longer names only a few are kept: what strangers send does not fill the memory.
_KEPT_CHARACTERS = 128


def partition_for(name: str, partitions: int) -> int:
    """Return the partition, out of `partitions`, of an internal topic that holds a group or transactional id.

    The absolute value of Java's String.hashCode, modulo `partitions`; the one hash without an absolute value counts as
    0 (facts §16).
    """
    hashed = _kept_magnitude(name) if len(name) <= _KEPT_CHARACTERS else _kept_long_magnitude(name)
    return hashed % partitions


def _magnitude(name: str) -> int:
    hashed = 0
    raw = name.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        hashed = (31 * hashed + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return hashed if hashed < 0x80000000 else 0x100000000 - hashed


# Each request asks for that of its group or id, some several times, and there is no hash of Java's in C.
_kept_magnitude = lru_cache(maxsize=4096)(_magnitude)
_kept_long_magnitude = lru_cache(maxsize=16)(_magnitude)


class Partitioning:
    """Which partition of an internal topic holds a group or transactional id, and which broker coordinates it.

    The number of partitions is that of the first metadata with the topic, until the topic is deleted; Kafka's is that
    of a broker's start. Another number would move names to partitions where nothing is known of them (facts §17.1).
    """

    def __init__(self, metadata: MetadataCache, topic: str, default_count: Callable[[], int]) -> None:
        self._metadata = metadata
        self._topic = topic
        self._default_count = default_count
        self._seen_count = len(metadata.partitions(topic))
        metadata.subscribe(self._see)

    def _see(self, changed: Sequence[str], deleted: Sequence[TopicPartition]) -> None:
        if self._topic not in changed:
            return
        count = len(self._metadata.partitions(self._topic))
        if not self._seen_count or not count:
            self._seen_count = count

    @property
    def partition_count(self) -> int:
        """The topic's partitions; before it is known to exist, how many it would be made with here."""
        return self._seen_count or self._default_count()

    def partition_for(self, name: str) -> int:
        """The partition that holds the group or id."""
        return partition_for(name, self.partition_count)

    def coordinator_of(self, name: str) -> BrokerInfo | None:
        """The broker that coordinates the group or id, None while there is no topic or no living leader."""
        return living_leader(self._metadata, TopicPartition(self._topic, self.partition_for(name)))


def living_leader(metadata: MetadataCache, tp: TopicPartition) -> BrokerInfo | None:
    """Return the broker that leads the partition; None if there is no such partition, no leader, or a dead one."""
    known = metadata.partition(tp)
    return metadata.brokers.get(known.leader) if known is not None else None
