"""CheckpointWriter: what a directory's checkpoints are compared with, at each start."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logyard.broker import portions
from logyard.broker.log.checkpoint_writer import CheckpointWriter
from logyard.broker.log.directory import LogDirectories
from logyard.broker.log.layout import CHECKPOINTS, RECOVERY_POINTS
from logyard.broker.log.settings import StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.stores import CONFIG, ID, ONE, House, write


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


@pytest.mark.parametrize("behind", [None, 5])
async def test_loaded_logs_are_compared_a_portion_a_turn(
    house: House, monkeypatch: pytest.MonkeyPatch, behind: int | None
) -> None:
    """10,000 logs are compared with four checkpoints."""
    monkeypatch.setattr(portions, "AT_ONCE", 2)
    store = await house.loaded(StoreSettings((ONE,)))
    logs = [store.logs.get_or_create(TopicPartition("a", n), ID, CONFIG, is_new=True) for n in range(6)]
    for log in logs:
        write(store, log.tp, 3)
        await store.flusher.flush(log)
    for name in CHECKPOINTS:
        await store.checkpoints.write_everywhere(name)
    directories = LogDirectories(house.disk, (ONE,), house.notes.append)
    (directory,) = directories.all
    directory.begin()
    if behind is not None:
        logs[behind].flush_state.recovery_point = 2  # as recovery left it
    settling = asyncio.ensure_future(CheckpointWriter(directories, lambda: logs, at_once).settle_loaded(directory))
    turns = 0
    while not settling.done():
        turns += 1
        await asyncio.sleep(0)
    await settling
    assert turns > len(CHECKPOINTS) * 2
    assert directory.offsets[RECOVERY_POINTS] == {log.tp: log.recovery_point for log in logs}
