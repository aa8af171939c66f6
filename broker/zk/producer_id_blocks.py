"""Blocks of producer ids below inter.broker.protocol.version 3.0: each broker takes its own out of ZooKeeper.

Rule 1: a block is this broker's once /latest_producer_id_block was written on the version that was read with it, so
        none is ever given twice; one whose write was refused, or nobody knows of, is left to nobody.
Rule 2: as Kafka's ZkProducerIdManager: the block behind the last one, 1000 ids, both ends in the znode.
From 3.0 on the controller hands them out (`controller/producer_ids.py`, KIP-730), and nobody else may write.
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
        """Take the next block; None where it could not be had now, which is said in the log."""
        try:
            return await self._allocate()
        except SessionExpired:
            log.info("no producer ids yet, asking again", error="the ZooKeeper session ended")
        except CorruptData as error:
            log.error("producer ids cannot be had", error=str(error))
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
        log.info("no producer ids yet, asking again", error="other brokers were faster each time")
        return None
