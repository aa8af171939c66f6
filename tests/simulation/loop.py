"""An asyncio event loop on virtual time: nothing blocks, sleeping costs nothing, and one seed gives one history.

Connections go through a `Network` in memory; blocking work runs a random moment later, as if a thread did it, in pieces
(blocking.py). Callbacks of a dead process are dropped, those of a paused one held.
"""

import asyncio
import contextvars
import itertools
import random
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, TypeVarTuple

from tests.simulation.blocking import BlockingWork
from tests.simulation.network import Network
from tests.simulation.process import NOBODY, PROCESS
from tests.simulation.trace import Trace

Ts = TypeVarTuple("Ts")

# asyncio's own: with so many timers, and such a part of them cancelled, the heap is made anew.
TIMERS_MIN = 100
CANCELLED_MAX = 0.5


class _NoFiles(selectors.BaseSelector):
    """A selector that watches nothing: the loop never asks it."""

    def __init__(self) -> None:
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise AssertionError("a simulated loop waits for no file")

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._map


class _Handle(asyncio.Handle):
    """asyncio's, made without asking whether the loop is in debug mode."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: "SimLoop", context: contextvars.Context | None) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback, self._args = callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """As `_Handle`. `_scheduled` is what asyncio counts cancelled timers by."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: Any, loop: "SimLoop", context: contextvars.Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback, self._args = callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True


class SimLoop(asyncio.SelectorEventLoop):
    """See the head of this file. `now` is virtual seconds."""

    def __init__(self, network: Network, chance: random.Random, trace: Trace) -> None:
        self.now = 1000.0
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[tuple[float, int, _Timer]]
        self._numbers = itertools.count()
        self._timer_cancelled_count: int
        self._closed: bool
        self._stopping: bool
        super().__init__(_NoFiles())
        self._clock_resolution = 1e-9
        self._network = network
        self._chance, self._trace = chance, trace
        network.loop = self

    def time(self) -> float:
        return self.now

    # What asyncio does in the same places, in the same order, without debugging, files and checks for threads: most of
    # a history's time would go there. The heap holds (when, number, timer): asyncio leaves open which comes first of
    # those due at one time, but the bytes of a connection must not overtake each other.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = _Timer(when, callback, args, self, context)
        heappush(self._scheduled, (when, next(self._numbers), timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def go_on(self, held: Iterable[asyncio.Handle]) -> None:
        """Take what a paused process kept, in its order."""
        self._ready.extend(held)

    def _run_once(self) -> None:
        """Turn after turn, until the loop is told to stop."""
        ready = self._ready
        while True:
            scheduled = self._without_cancelled()
            if not ready and not self._stopping:
                if not scheduled:
                    raise RuntimeError("the simulation stands still: nothing is scheduled and somebody waits")
                self.now += max(0.0, scheduled[0][0] - self.now)
            end = self.now + self._clock_resolution
            while scheduled and scheduled[0][0] < end:
                timer = heappop(scheduled)[2]
                timer._scheduled = False
                ready.append(timer)
            for _ in range(len(ready)):
                handle: Any = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle._context.get(PROCESS)
                if process is not None and not process.runs:
                    process.hold(handle)
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    trouble = {"message": "Exception in callback", "exception": error, "handle": handle}
                    self.call_exception_handler(trouble)
            if self._stopping:
                return

    def _without_cancelled(self) -> "list[tuple[float, int, _Timer]]":
        """The timers, none that was cancelled at their head; all such are gone where they are too many."""
        scheduled = self._scheduled
        if len(scheduled) > TIMERS_MIN and self._timer_cancelled_count / len(scheduled) > CANCELLED_MAX:
            kept = []
            for entry in scheduled:
                entry[2]._scheduled = not entry[2]._cancelled
                if entry[2]._scheduled:
                    kept.append(entry)
            heapify(kept)
            self._scheduled = scheduled = kept
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)[2]._scheduled = False
        return scheduled

    def create_task(self, coro: Any, **kwargs: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **kwargs)
        process = kwargs["context"].get(PROCESS) if kwargs.get("context") is not None else PROCESS.get()
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None), context=NOBODY)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        future = self.create_future()
        BlockingWork(self, self._chance, self._trace, future, func if not args else partial(func, *args)).begin()
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self._network.connect(protocol_factory, str(host), int(port))
