"""A disk in memory and the stores of logs that come and go on it.

    house = House()
    store = await house.loaded()  # two log directories, ONE and TWO; `house.store()` has not loaded
    write(store, A0, 3)
    house.disk.restart()  # as after kill -9; a choice given loses what was not synced
    again = await house.loaded()

`house.notes` is what stores said, `offline` which directories failed with which replicas, `cuts` which logs were
truncated. `until` waits for background work, `settled` lets what is ready run.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.logs import produced

ONE, TWO = "/disks/one", "/disks/two/"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = uuid.UUID(int=77)
SETTINGS = StoreSettings((ONE, TWO), initial_task_delay_ms=10, retention_check_interval_ms=10)
CONFIG = TopicConfig(segment_bytes=1000, file_delete_delay_ms=20)


class House:
    """A disk, and the stores that come and go on it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("/disks")
        self.disk.sync_directory("/")
        self.clock = ManualClock()
        self.notes: list[str] = []
        self.offline: list[tuple[str, list[TopicPartition]]] = []
        self.cuts: list[tuple[TopicPartition, int]] = []
        self.stores: list[LogStore] = []
        self.config = CONFIG

    def store(self, settings: StoreSettings = SETTINGS) -> LogStore:
        store = LogStore(
            settings,
            self.disk,
            self.clock,
            self.run,
            topic_config=lambda topic: self.config,
            new_uuid=lambda: ID,
            note=self.notes.append,
            on_offline=lambda path, replicas: self.offline.append((path, replicas)),
        )
        store.on_cut = lambda tp, offset: self.cuts.append((tp, offset))
        self.stores.append(store)
        return store

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        result = work()
        await asyncio.sleep(0)  # a thread's answer does not come at once
        return result

    async def loaded(self, settings: StoreSettings = SETTINGS) -> LogStore:
        store = self.store(settings)
        await store.load()
        return store

    def text(self, path: str) -> str:
        return read_whole(self.disk, path).decode()


def write(store: LogStore, tp: TopicPartition, count: int = 1) -> None:
    log = store.logs.get(tp)
    assert log is not None
    for _ in range(count):
        log.append_as_leader(produced([b"v"] * 2), 0, now_ms=ManualClock().now_ms())
    log.set_high_watermark(log.log_end_offset)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
