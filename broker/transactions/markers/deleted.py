"""Which partitions exist no more: only ZooKeeper knows, as a broker that has just started has not heard of all."""

from collections.abc import Container, Sequence

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.portions import portions
from logyard.broker.znodes import topics
from logyard.broker.znodes.ops import Znode, ZooKeeper

# To decode so many bytes of a topic's znode takes as long as to look at a partition.
BYTES_PER_COST = 100


async def find_deleted(zk: ZooKeeper, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return those that no topic has. Raises SessionExpired."""
    asked: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        asked.setdefault(tp.topic, []).append(tp)
    znodes = await zk.read([topics.topic_path(name) for name in asked])
    deleted: list[TopicPartition] = []
    # A topic may have thousands of partitions: it is decoded once, whatever is asked of it.
    async for portion in portions(zip(asked, znodes, strict=True), _cost):
        for name, znode in portion:
            deleted += _missing(asked[name], name, znode)
    return deleted


def _cost(found: tuple[str, Znode | None]) -> int:
    _, znode = found
    return 1 if znode is None else 1 + len(znode.data) // BYTES_PER_COST


def _missing(asked: Sequence[TopicPartition], name: str, znode: Znode | None) -> Sequence[TopicPartition]:
    present: Container[int] = ()
    if znode is not None:
        try:
            present = topics.decode(znode.data, topics.topic_path(name)).partitions
        except CorruptData:
            return ()  # a topic that cannot be read is not a topic that was deleted
    return [tp for tp in asked if tp.partition not in present]
