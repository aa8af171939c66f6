"""Which partitions exist no more: only ZooKeeper knows, as a broker that has just started has not heard of all."""

from collections.abc import Sequence

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import topics
from logyard.broker.znodes.ops import Znode, ZooKeeper


async def find_deleted(zk: ZooKeeper, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return those that no topic has. Raises SessionExpired."""
    names = list(dict.fromkeys(tp.topic for tp in partitions))
    found = dict(zip(names, await zk.read([topics.topic_path(name) for name in names]), strict=True))
    return [tp for tp in partitions if _is_missing(tp, found[tp.topic])]


def _is_missing(tp: TopicPartition, znode: Znode | None) -> bool:
    if znode is None:
        return True
    try:
        return tp.partition not in topics.decode(znode.data, topics.topic_path(tp.topic)).partitions
    except CorruptData:
        return False  # a topic that cannot be read is not a topic that was deleted
