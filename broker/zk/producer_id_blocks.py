"""Allocates blocks of producer ids below inter.broker.protocol.version 3.0, where each broker does so in ZooKeeper.

Rule 1: a block belongs to this broker once /latest_producer_id_block was written on condition of the version that was
        read; so no block is allocated twice. If the outcome of a write is unknown, nobody uses the block.
Rule 2: as in Kafka's ZkProducerIdManager, the next block follows the last one, and has 1000 ids; the znode has both
        ends.
From 3.0 on only the controller allocates and writes (`controller/producer_ids.py`, KIP-730; facts §17).
"""

from collections.abc import Callable

import structlog

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import controller, producer_ids
from logyard.broker.znodes.ops import Create, SessionExpired, SetData, ZkOp, ZooKeeper

ROUNDS_MAX = 20

log = structlog.get_logger("logyard.producer-ids")


class ZooKeeperBlocks:
    """See the head of this file."""

    def __init__(self, zk: ZooKeeper, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._zk = zk
        self._now_ms = now_ms
        self._broker_id = broker_id

    async def allocate(self) -> range | None:
        """Allocate the next block; None if that fails, for a reason that is logged."""
        try:
            return await self._allocate()
        except SessionExpired:
            log.info("no producer ids yet, trying again", error="the ZooKeeper session ended")
        except CorruptData as error:
            log.error("cannot allocate producer ids", error=str(error))
        return None

    async def _allocate(self) -> range | None:
        path, mine = producer_ids.PATH, self._broker_id
        for _ in range(ROUNDS_MAX):
            found, epoch = await self._zk.read([path, controller.EPOCH_PATH])
            block = producer_ids.next_block(found, epoch, mine, self._now_ms())
            if block is None:
                log.error("all producer ids are used up")
                return None
            data = producer_ids.encode(block)
            write: ZkOp = Create(path, data) if found is None else SetData(path, data, found.version)
            (result,) = await self._zk.multi([write])
            if result.ok:
                return range(block.start, block.end + 1)
        log.info("no producer ids yet, trying again", error="other brokers wrote each time")
        return None
