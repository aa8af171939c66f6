"""Which partition of an internal topic holds a group or transactional id, and which broker leads a partition."""

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import BrokerInfo, TopicPartition


def partition_for(name: str, partitions: int) -> int:
    """Return the partition of an internal topic with so many partitions that holds a group or transactional id.

    The absolute value of Java's String.hashCode, with 0 for the one hash that has none (facts §16).
    """
    hashed = 0
    raw = name.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        hashed = (31 * hashed + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return (hashed if hashed < 0x80000000 else 0x100000000 - hashed) % partitions


def living_leader(metadata: MetadataCache, tp: TopicPartition) -> BrokerInfo | None:
    """Return the broker that leads the partition, None where there is no partition, no leader, or a dead one."""
    known = metadata.partition(tp)
    return metadata.brokers.get(known.leader) if known is not None else None
