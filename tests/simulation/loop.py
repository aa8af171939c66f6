"""An asyncio event loop on virtual time: nothing blocks, sleeping costs nothing, and one seed gives one history.

Connections go through a `Network` in memory; blocking work runs inline, a random moment later, as if a thread had
done it. Callbacks of a dead process are dropped, those of a paused one held.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any

from tests.simulation.network import Network
from tests.simulation.process import NOBODY, PROCESS

THREAD_DELAY_S = 0.001


class _NoFiles(selectors.BaseSelector):
    """A selector that watches nothing and, asked to wait, moves the clock on."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing is scheduled and somebody waits")
        self._loop.now += max(timeout, 0.0)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._map


def _may_run(handle: Any) -> bool:
    process = handle._context.get(PROCESS)
    if process is None:
        return True
    if process.alive and process.paused:
        process.held.append(handle)
    return process.alive and not process.paused


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()  # type: ignore[misc]


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()  # type: ignore[misc]


class SimLoop(asyncio.SelectorEventLoop):
    """See the head of this file. `now` is virtual seconds."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.now = 1000.0
        super().__init__(_NoFiles(self))
        self._clock_resolution = 1e-9
        self._network = network
        self._chance = chance
        network.loop = self

    def time(self) -> float:
        return self.now

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        timer.__class__ = _Timer  # the loop's own bookkeeping is as it was; only running it asks whose it is
        return timer

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coro: Any, **kwargs: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **kwargs)
        process = kwargs["context"].get(PROCESS) if kwargs.get("context") is not None else PROCESS.get()
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None), context=NOBODY)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._chance.random() * THREAD_DELAY_S, run)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self._network.connect(protocol_factory, str(host), int(port))
