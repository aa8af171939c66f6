"""Work on the disk that nobody waits for, and a process that is out of file descriptors."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from logyard.broker.log.background import BackgroundWork, DiskWork
from logyard.broker.log.disk.port import DiskError
from tests.support.virtual_loop import run_virtually


class Work:
    """Fails in its first `fails` tries with this errno."""

    def __init__(self, fails: int, code: int = errno.EMFILE) -> None:
        self.fails, self.code, self.tries = fails, code, 0

    def __call__(self) -> None:
        self.tries += 1
        if self.tries <= self.fails:
            raise DiskError("/data/t-0", OSError(self.code, "refused"))


async def now(work: Callable[[], Any]) -> Any:
    return work()


async def done(work: Work, *more: Work, seconds: float = 60) -> list[str]:
    """Have it removed, then the others; returns what was noted."""
    notes: list[str] = []
    background = BackgroundWork(notes.append)
    disk_work = DiskWork(background, now)
    disk_work.remove_later(1000, work)
    for each in more:
        disk_work.soon(each)
    await asyncio.sleep(seconds)
    await background.stop()
    return notes


def test_what_lacked_descriptors_is_done_once_there_are_some() -> None:
    removal, sync = Work(3), Work(2)
    assert run_virtually(done(removal, sync)) == []
    assert (removal.tries, sync.tries) == (4, 3)


def test_it_is_not_tried_at_once() -> None:
    removal = Work(1000)
    run_virtually(done(removal))
    assert removal.tries == 6


def test_what_a_disk_refuses_is_noted_once() -> None:
    removal = Work(1000, errno.EIO)
    (note,) = run_virtually(done(removal))
    assert "/data/t-0" in note
    assert removal.tries == 1
