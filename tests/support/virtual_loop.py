"""An asyncio loop on which waiting takes no time: when nothing is ready, its clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Polls without waiting, and moves the loop's time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.idle = 0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            self.idle += 1
            assert self.idle < 1000, "everything waits for something that will never come"
        elif not ready and timeout:
            self.now += timeout
            self.idle = 0
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only when everybody waits."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now

    def now_ms(self) -> int:
        return 1_600_000_000_000 + int(self.time() * 1000)

    def monotonic(self) -> float:
        return self.time()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
