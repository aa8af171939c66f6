"""Work on the event loop that nobody waits for: every so often, after a while, or now."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from logyard.broker.errors import LogyardError


class Chores:
    """Tasks and timers of one owner, ended together. What goes wrong in one is said through `note`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin now."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]], delay_ms: int = 0) -> None:
        """Do it again and again, first after delay and interval."""

        async def repeat() -> None:
            await asyncio.sleep(delay_ms / 1000)
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except Exception as error:
                    # One bad turn must not end what keeps every log in order.
                    self._note(_told(error))

        self.spawn(repeat())

    def later(self, delay_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it once, after a while; not at all if `stop` comes first."""

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

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(_told(error))


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, LogyardError) else f"upkeep of the logs: {error!r}"
