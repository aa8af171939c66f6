"""Runs tasks on the event loop: each has a name, and its failures are logged and counted.

An unexpected exception is logged with its traceback and counted (`failures`, the metric `logyard_task_failures_total`).
`keep` and `every` start work again after a pause; `spawn` does not. No other module creates tasks; tests/architecture
checks it.
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

# The loop has only weak references to tasks. (A weak dict of tasks by loop would keep both: tasks refer to their loop.)
_running: set[asyncio.Task[Any]] = set()


def spawn(name: str, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start work that runs once; a failure is logged and counted."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def keep(
    name: str, work: Callable[[], Coroutine[Any, Any, None]], pause_s: float | None = None
) -> "asyncio.Task[None]":
    """Start work that runs until it returns. After an exception it is started again, `pause_s` (PAUSE_S) later."""
    return spawn(name, _kept(name, work, PAUSE_S if pause_s is None else pause_s))


def every(
    name: str, interval_s: float, work: Callable[[], Awaitable[None]], first_s: float | None = None
) -> "asyncio.Task[None]":
    """Run work every `interval_s` seconds, first after `first_s` (default: `interval_s`). Failures do not end it."""

    async def repeat() -> None:
        await asyncio.sleep(interval_s if first_s is None else first_s)
        while True:
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                _raise_own_end(name, error)
                failed(name, error, interval_s)
            await asyncio.sleep(interval_s)

    return spawn(name, repeat())


def answering(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start work that answers a request; the caller takes the result or exception from the task."""
    return asyncio.get_running_loop().create_task(work)


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Forget the tasks of a loop that was stopped before they were done."""
    _running.difference_update([task for task in _running if task.get_loop() is loop])


def failed(name: str, error: BaseException, again_in_s: float | None = None) -> None:
    """Log and count a task's failure."""
    failures[name] += 1
    again = {} if again_in_s is None else {"again_in_s": again_in_s}
    log.error("task failed", task=name, error=repr(error), exc_info=error, **again)


def uncaught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what a timer or another callback has raised. This is the event loop's exception handler."""
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
            _raise_own_end(name, error)
            failed(name, error, pause_s)
        else:
            return
        await asyncio.sleep(pause_s)


def _raise_own_end(name: str, error: BaseException) -> None:
    """Raise CancelledError if this task was cancelled: it is not started again, whatever its own clean-up raised.

    If only a future that it awaits was cancelled, that is a failure.
    """
    task = asyncio.current_task()
    if task is not None and not task.cancelling():
        return
    if isinstance(error, asyncio.CancelledError):
        raise error
    failed(name, error)
    raise asyncio.CancelledError from error


def _ended(task: "asyncio.Task[Any]") -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        failed(task.get_name(), error)
