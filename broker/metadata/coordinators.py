"""The partition of an internal topic that holds a group or transactional id, and the broker that leads it."""

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import BrokerInfo, TopicPartition


def partition_for(name: str, partitions: int) -> int:
    """Return the partition, out of `partitions`, of an internal topic that holds a group or transactional id.

    The absolute value of Java's String.hashCode, modulo `partitions`; the one hash without an absolute value counts as
    0 (facts §16).
    """
    hashed = 0
    raw = name.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        hashed = (31 * hashed + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return (hashed if hashed < 0x80000000 else 0x100000000 - hashed) % partitions


def living_leader(metadata: MetadataCache, tp: TopicPartition) -> BrokerInfo | None:
    """Return the broker that leads the partition; None if there is no such partition, no leader, or a dead one."""
    known = metadata.partition(tp)
    return metadata.brokers.get(known.leader) if known is not None else None
