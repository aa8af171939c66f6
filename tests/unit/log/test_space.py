"""The bytes of log directories: asked in threads, bounded, a disk that hangs or fails harms no other."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from logyard.broker.log import space
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.space import UNKNOWN, DirectorySpace
from tests.support.steady_loop import steady

ONE, TWO = "/one", "/two"


class Disk(MemoryDisk):
    """Says its bytes, or fails where a path is in `broken` or `removed`."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.removed: set[str] = set()
        self.asked: Counter[str] = Counter()

    def space(self, path: str) -> tuple[int, int]:
        self.asked[path] += 1
        if path in self.broken:
            raise DiskError(path, OSError(errno.EIO, "Input/output error"))
        if path in self.removed:
            raise FileNotFoundError(path)
        return {ONE: (100, 40), TWO: (2**64, 2**63)}[path]


class Threads:
    """Runs work at once, or, for paths in `stuck`, once they are not."""

    def __init__(self) -> None:
        self.free: dict[str, asyncio.Event] = {}

    async def __call__(self, work: Callable[[], Any]) -> Any:
        [path] = work.args  # type: ignore[attr-defined]
        if path in self.free:
            await self.free[path].wait()
        return work()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "WAIT_S", 0.05)


async def test_every_directory_is_asked_and_huge_ones_are_cut_to_kafkas_largest() -> None:
    found = await DirectorySpace(Disk(), Threads()).of([ONE, TWO])
    assert found == {ONE: (100, 40), TWO: (2**63 - 1, 2**63 - 1)}
    assert await DirectorySpace(Disk(), Threads()).of([]) == {}


async def test_a_directory_that_somebody_has_removed_is_unknown_and_the_others_are_not() -> None:
    disk = Disk()
    disk.removed.add(ONE)
    assert await DirectorySpace(disk, Threads()).of([ONE, TWO]) == {ONE: UNKNOWN, TWO: (2**63 - 1, 2**63 - 1)}


async def test_a_disk_that_fails_is_unknown_and_the_others_are_not() -> None:
    disk = Disk()
    disk.broken.add(ONE)
    asked = DirectorySpace(disk, Threads())
    assert await asked.of([ONE, TWO]) == {ONE: UNKNOWN, TWO: (2**63 - 1, 2**63 - 1)}
    disk.broken.clear()
    assert (await asked.of([ONE]))[ONE] == (100, 40)


async def test_a_disk_that_hangs_is_awaited_once_and_asked_once() -> None:
    disk, threads = Disk(), Threads()
    threads.free[ONE] = asyncio.Event()
    asked = DirectorySpace(disk, threads)
    both = await asyncio.gather(asked.of([ONE, TWO]), asked.of([ONE]))
    assert [found[ONE] for found in both] == [UNKNOWN, UNKNOWN]
    assert both[0][TWO] != UNKNOWN
    assert asked.late == {ONE}
    loop = asyncio.get_running_loop()
    steady(loop)
    begun = loop.time()
    for _ in range(20):
        assert await asked.of([ONE, TWO]) == {ONE: UNKNOWN, TWO: (2**63 - 1, 2**63 - 1)}
    assert loop.time() - begun < 20 * space.WAIT_S / 2, "a directory that is late is not awaited again"
    threads.free[ONE].set()
    while asked.late:
        await asyncio.sleep(0)
    assert (await asked.of([ONE]))[ONE] == (100, 40)
    assert disk.asked[ONE] == 2


async def test_who_asked_and_left_does_not_end_the_question_of_others() -> None:
    disk, threads = Disk(), Threads()
    threads.free[ONE] = asyncio.Event()
    asked = DirectorySpace(disk, threads)
    gone = asyncio.create_task(asked.of([ONE]))
    await asyncio.sleep(0)
    stays = asyncio.create_task(asked.of([ONE]))
    await asyncio.sleep(0)
    gone.cancel()
    threads.free[ONE].set()
    assert (await stays)[ONE] == (100, 40)
    assert disk.asked[ONE] == 1


async def test_a_question_that_a_stopping_broker_cancels_is_unknown() -> None:
    disk = Disk()

    async def cancelled(_: Callable[[], Any]) -> Any:
        raise asyncio.CancelledError  # as a future of a pool that was shut down

    asked = DirectorySpace(disk, cancelled)
    assert await asked.of([ONE]) == {ONE: UNKNOWN}
    assert asked.late == set()
