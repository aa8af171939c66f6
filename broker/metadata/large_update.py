"""A large UpdateMetadata, made in portions beside what is read meanwhile, and then put in its place at once.

Nothing of it is seen if it is given up in the middle: a newer controller has spoken, or this broker stops.
"""

from collections.abc import Iterable, Mapping

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.portions import portions


class LargeUpdate:
    """The topics as they will be. Until `put_in_place` nothing else may update the cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._after = self._unused = cache.known.copy()
        self._changed: dict[str, None] = {}
        self._deleted: list[TopicPartition] = []

    async def prepare(self, partitions: Iterable[PartitionUpdate], topic_ids: Mapping[str, TopicId]) -> None:
        """Merge the partitions and the ids of their topics; others have their turns meanwhile."""
        async for portion in portions(partitions):
            self._after.merge(portion, self._changed, self._deleted)
        async for topics in portions(self._changed):
            self._after.identify(topics, topic_ids)

    def put_in_place(self, update: UpdateMetadata) -> None:
        """Show it, with the brokers and the epoch of the request; the partitions of that are not looked at."""
        self._unused = self._cache.known
        self._cache.put_in_place(update, self._after, self._changed, self._deleted)

    async def let_go(self) -> None:
        """Free in portions what it has replaced, or itself if it was given up: at once that takes 20 ms."""
        unused = self._unused.partitions
        async for topics in portions(self._changed, lambda topic: 1 + len(unused.get(topic, ()))):
            for topic in topics:
                unused.pop(topic, None)
