"""The one way to run tasks on the event loop: each has a name, and none ends in silence.

Whatever a task did not expect is logged with its traceback and counted (`failures`, the metric
`logyard_task_failures_total`). What has to go on goes on after a pause (`keep`, `every`); what is done once is not done
again (`spawn`). Nothing else creates tasks: tests/architecture looks for it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

PAUSE_S = 1.0

T = TypeVar("T")

log = structlog.get_logger("logyard.tasks")

failures: Counter[str] = Counter()
"""How often a task of each name has failed in this process."""

# The loop itself holds tasks weakly. (A table that held them by loop, weakly, would never let go of either: they know
# their loop.)
_running: set[asyncio.Task[Any]] = set()


def spawn(name: str, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Begin something that is done once; what goes wrong is logged and counted."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def keep(
    name: str, work: Callable[[], Coroutine[Any, Any, None]], pause_s: float | None = None
) -> "asyncio.Task[None]":
    """Begin something that goes on until it returns: begun again `pause_s` (a second) after an exception."""
    return spawn(name, _kept(name, work, PAUSE_S if pause_s is None else pause_s))


def every(
    name: str, interval_s: float, work: Callable[[], Awaitable[None]], first_s: float | None = None
) -> "asyncio.Task[None]":
    """Do something every `interval_s` seconds, first after `first_s` (the same); one bad turn does not end it."""

    async def repeat() -> None:
        await asyncio.sleep(interval_s if first_s is None else first_s)
        while True:
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                _raise_own_end(error)
                failed(name, error, interval_s)
            await asyncio.sleep(interval_s)

    return spawn(name, repeat())


def answering(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Begin something whose outcome, exceptions too, is taken by whoever is handed the task: an answer to a request."""
    return asyncio.get_running_loop().create_task(work)


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Let go of the tasks of a loop that was ended in their midst: they will not end any more."""
    _running.difference_update([task for task in _running if task.get_loop() is loop])


def failed(name: str, error: BaseException, again_in_s: float | None = None) -> None:
    """Log and count what a task did not expect."""
    failures[name] += 1
    again = {} if again_in_s is None else {"again_in_s": again_in_s}
    log.error("task failed", task=name, error=repr(error), exc_info=error, **again)


def uncaught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's exception handler: what a timer or another callback has raised."""
    error = context.get("exception")
    if error is not None:
        failed("callback", error)
    else:
        log.error("event loop", note=context.get("message", ""))


async def _kept(name: str, work: Callable[[], Coroutine[Any, Any, None]], pause_s: float) -> None:
    while True:
        try:
            await work()
        except (Exception, asyncio.CancelledError) as error:
            _raise_own_end(error)
            failed(name, error, pause_s)
        else:
            return
        await asyncio.sleep(pause_s)


def _raise_own_end(error: BaseException) -> None:
    """A future that was waited for and cancelled by somebody else is a failure like others, not this task's end."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
        raise error


def _ended(task: "asyncio.Task[Any]") -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        failed(task.get_name(), error)
