"""The partition of an internal topic that holds a group or transactional id, and the broker that leads it."""

from functools import lru_cache

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import BrokerInfo, TopicPartition

# Longer names are hashed each time: what strangers send does not fill the memory.
_KEPT_CHARACTERS = 128


def partition_for(name: str, partitions: int) -> int:
    """Return the partition, out of `partitions`, of an internal topic that holds a group or transactional id.

    The absolute value of Java's String.hashCode, modulo `partitions`; the one hash without an absolute value counts as
    0 (facts §16).
    """
    hashed = _kept_magnitude(name) if len(name) <= _KEPT_CHARACTERS else _magnitude(name)
    return hashed % partitions


def _magnitude(name: str) -> int:
    hashed = 0
    raw = name.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        hashed = (31 * hashed + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return hashed if hashed < 0x80000000 else 0x100000000 - hashed


# Each request of a transaction asks for that of its id, and there is no hash of Java's in C.
_kept_magnitude = lru_cache(maxsize=4096)(_magnitude)


def living_leader(metadata: MetadataCache, tp: TopicPartition) -> BrokerInfo | None:
    """Return the broker that leads the partition; None if there is no such partition, no leader, or a dead one."""
    known = metadata.partition(tp)
    return metadata.brokers.get(known.leader) if known is not None else None
