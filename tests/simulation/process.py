"""A simulated process: everything it runs stops with it at once, and pauses while it is paused.

Everything a process starts (tasks, timers, callbacks) inherits its context, so the loop knows the owner of each
callback (loop.py).
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tests.simulation.blocking import BlockingWork
    from tests.simulation.loop import SimLoop
    from tests.simulation.network import SimTransport

PROCESS: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)
NOBODY = contextvars.Context()
"""The context of what belongs to no process: the network, ZooKeeper's servers, the simulator itself."""


class Process:
    """One life of a broker or client, named as its host is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.runs = True  # alive and not paused
        self.held: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.failures: list[BaseException] = []
        self.transports: dict[SimTransport, None] = {}
        self.standing: dict[BlockingWork, None] = {}  # what its threads are in the midst of
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin something of its own; what it raises is kept in `failures`."""
        task = asyncio.get_running_loop().create_task(work, context=self.context)
        task.add_done_callback(self._ended, context=NOBODY)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs, what comes for it waits."""
        self.paused, self.runs = True, False

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep what was due while it does not run, for `resume`."""
        if self.alive:
            self.held.append(handle)

    def resume(self) -> None:
        self.paused, self.runs = False, self.alive
        held, self.held = self.held, []
        cast("SimLoop", asyncio.get_running_loop()).go_on(held)

    def die(self) -> None:
        """SIGKILL: nothing of it ever runs again, `finally` included."""
        self.alive = self.runs = False
        self.held.clear()

    def bury(self) -> None:
        """Release what it left unfinished; called when it is no longer needed."""
        self.alive = self.runs = False
        while self.tasks:
            left, self.tasks = self.tasks, {}
            for task in left:
                # asyncio complains of a task that never ends, and its stubs do not know how to tell it not to.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # In its own context: what a `finally` begins is its task too, and closed in its turn.
                with contextlib.suppress(BaseException):
                    self.context.run(task.get_coro().close)
        for work in list(self.standing):
            work.throw()
        self.standing.clear()
