"""Work on the event loop that nobody waits for: periodic, delayed, or immediate."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from logyard.broker import tasks
from logyard.broker.errors import LogyardError, StorageError
from logyard.broker.event_loop import RunBlocking

NAME = "upkeep of the logs"
AGAIN_MS = 10_000


class BackgroundWork:
    """Tasks and timers of one owner, ended together. An expected error (LogyardError) is passed to `note` as text."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work now."""
        self._hold(tasks.spawn(NAME, self._noting(work)))

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]], first_ms: int | None = None) -> None:
        """Repeat the work; the first run is after `first_ms` (default: the interval)."""
        first_s = None if first_ms is None else first_ms / 1000
        self._hold(tasks.every(NAME, interval_ms / 1000, lambda: self._noting(work()), first_s))

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start work that goes on until it returns; after an error, which `tasks` logs, it is started again."""
        self._hold(tasks.keep(NAME, work))

    def later(self, delay_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work once, after `delay_ms`; not at all if `stop` comes first."""

        def begin() -> None:
            self._timers.discard(timer)
            self.spawn(work())

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, begin)
        self._timers.add(timer)

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        for timer in list(self._timers):
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hold(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _noting(self, work: Awaitable[None]) -> None:
        """Pass an expected error to `note`; `tasks` logs the others."""
        try:
            await work
        except LogyardError as error:
            self._note(str(error))


class DiskWork:
    """What threads do for the logs that nobody waits for; if the store closes first, the next start does it.

    What lacks a file descriptor is done again after AGAIN_MS. Other StorageErrors are passed to the background's
    `note`.
    """

    def __init__(self, background: BackgroundWork, run_blocking: RunBlocking) -> None:
        self._background, self._run = background, run_blocking
        self._removing = asyncio.Lock()

    def soon(self, work: Callable[[], object]) -> None:
        """Do the work after this turn of the loop."""
        self._later(0, work, nullcontext())

    def remove_later(self, delay_ms: int, remove: Callable[[], object]) -> None:
        """Remove files after a delay. All removals occupy one thread: the others are for who waits for the disk."""
        self._later(delay_ms, remove, self._removing)

    def _later(self, delay_ms: int, work: Callable[[], object], turn: AbstractAsyncContextManager[None]) -> None:
        async def run() -> None:
            try:
                async with turn:
                    await self._run(work)
            except StorageError as error:
                if not error.is_passing:
                    raise
                self._later(AGAIN_MS, work, turn)

        self._background.later(delay_ms, run)
