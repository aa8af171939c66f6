"""Waits until topics appear in, or leave, this broker's metadata: for CreateTopics, DeleteTopics, ElectLeaders."""

import asyncio
from collections.abc import Callable

from logyard.broker.metadata.cache import MetadataCache


def led_partitions(metadata: MetadataCache, topic: str) -> int:
    """Return how many partitions of the topic have a live leader, as far as this broker knows."""
    return sum(metadata.is_alive(partition.leader) for partition in metadata.partitions(topic).values())


class TopicWaits:
    """Conditions that are checked again whenever the metadata has changed."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._waiting: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        metadata.subscribe(lambda *_: self._look())

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Return True as soon as the condition holds, False after `timeout_ms` (at once if that is not positive)."""
        if condition():
            return True
        if timeout_ms <= 0:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            return condition()
        finally:
            self._waiting.pop(future, None)

    def _look(self) -> None:
        for future, condition in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if condition():
                    future.set_result(True)
            except Exception as error:  # of one request; the others wait for their own
                future.set_exception(error)
