"""Logs that move between two log directories, on one disk in memory.

    house = House()
    store, log = await house.filled()  # a replica in the first directory
    new = await moved(store)  # it lies in the second one
    house.disk.restart()  # as after kill -9
    again = await house.start()

`copy` fills a future log, `state` is what must be the same after a move.
"""

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.flush import FlushPlan
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.logs import content, produced

ONE, TWO = "/disks/one", "/disks/two"
A0 = TopicPartition("a", 0)
TOPIC_ID = uuid.UUID(int=5)
CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=10_000)


class House:
    """Two log directories on one disk in memory, and a store on them. Flushes wait for `syncs`."""

    def __init__(self) -> None:
        self.directories: tuple[str, ...] = (ONE, TWO)
        self.syncs = asyncio.Event()
        self.syncs.set()
        self.disk = MemoryDisk(choose=random.Random(3).randrange)
        self.disk.make_directory("/disks")
        self.disk.sync_directory("/")
        self.notes: list[str] = []
        self.ids = itertools.count(1)

    async def start(self) -> LogStore:
        store = LogStore(
            StoreSettings(self.directories),
            self.disk,
            ManualClock(),
            self.run,
            topic_config=lambda topic: CONFIG,
            new_uuid=lambda: uuid.UUID(int=next(self.ids)),
            note=self.notes.append,
        )
        await store.load()
        return store

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        if isinstance(getattr(work, "__self__", None), FlushPlan):
            await self.syncs.wait()
        return work()

    async def filled(self) -> tuple[LogStore, PartitionLog]:
        """A store with a replica in the first directory."""
        store = await self.start()
        log = store.logs.get_or_create(A0, TOPIC_ID, CONFIG, is_new=True, directory=ONE)
        for number in range(12):
            write(log, number)
        log.set_high_watermark(log.log_end_offset)
        log.advance_log_start(3)
        log.flush(20)
        await store.checkpoints.write_everywhere(layout.LOG_STARTS)
        return store, log


def write(log: PartitionLog, number: int) -> None:
    data = produced([b"v%d" % number] * 2, producer_id=8, producer_epoch=0, base_sequence=2 * number)
    log.append_as_leader(data, number // 4, now_ms=0)


def copy(log: PartitionLog, future: PartitionLog) -> None:
    """Fill a future log up to the log's end."""
    while future.log_end_offset < log.log_end_offset:
        piece = log.read(future.log_end_offset, 150, limit_offset=log.log_end_offset, min_one=True)
        future.append_as_follower(memoryview(bytearray(piece.load())))
    future.set_high_watermark(log.high_watermark)
    future.advance_log_start(log.log_start_offset)


async def copied(store: LogStore) -> PartitionLog:
    """Fill a copy in the second directory, ready to take the log's place."""
    log = store.logs.get(A0)
    future = store.logs.begin_move(A0, TWO)
    assert log is not None
    assert future is not None
    copy(log, future)
    await store.prepare_promotion(A0)
    return future


async def moved(store: LogStore) -> PartitionLog:
    """Move the replica to the second directory."""
    await copied(store)
    return store.promote(A0)


async def settled(store: LogStore) -> None:
    """Let the threads do the work that is due at once."""
    for _ in range(50):
        await asyncio.sleep(0)


def state(log: PartitionLog) -> tuple[Any, ...]:
    producers = {pid: (e.epoch, e.last_sequence, e.last_offset) for pid, e in log.producers.entries.items()}
    return content(log), log.log_start_offset, log.log_end_offset, log.epochs.entries, log.topic_id, producers
