"""Gives out producer ids from blocks, and fetches the next block in advance (facts §17).

The controller allocates the blocks (`controller_requests.py`); below inter.broker.protocol.version 3.0 each broker
does, in ZooKeeper (`zk/producer_id_blocks.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from logyard.broker import tasks
from logyard.broker.errors import ApiError, ErrorCode

# The next block is fetched when the last tenth of the current one begins (facts §17).
PREFETCH_AT_LAST = 10
RETRY_S = 0.2

AllocateBlock = Callable[[], Awaitable[range | None]]
"""Returns a new block; None if there is none now, for a reason that it has logged."""


class ProducerIds:
    """See the head of this file."""

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._ids = range(0)
        self._next_ids: range | None = None
        self._fetch_at = 0
        self._fetching: asyncio.Task[None] | None = None

    async def next(self, timeout_s: float = 5.0) -> int:
        """Return a new id. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS (no block within `timeout_s`)."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self._ids:
            if self._next_ids is not None:
                self._ids, self._next_ids = self._next_ids, None
                self._fetch_at = self._ids.stop - max(1, len(self._ids) // PREFETCH_AT_LAST)
                continue
            fetching = self._fetch()
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait([fetching], timeout=max(left, 0))
            if not fetching.done():
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there are no producer ids yet: try again")
        producer_id = self._ids[0]
        self._ids = self._ids[1:]
        if producer_id >= self._fetch_at and self._next_ids is None:
            self._fetch()
        return producer_id

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = tasks.keep("producer ids", self._fetch_block)
        return self._fetching

    async def _fetch_block(self) -> None:
        while (block := await self._allocate()) is None:
            await asyncio.sleep(RETRY_S)
        self._next_ids = block

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
