"""The types of what the broker's parts need from the event loop: threads, timers, futures.

asyncio's loop provides them; tests and the simulator have their own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Pending(Awaitable[T], Protocol[T]):
    """A result that is not there yet, as an asyncio.Future is."""

    def set_result(self, result: T, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def done(self) -> bool: ...
    def result(self) -> T: ...
    def add_done_callback(self, callback: Callable[[Any], object], /) -> object: ...


class TimerHandle(Protocol):
    """A timer that `Timers.call_later` has started."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls functions later on the event loop, as `asyncio.AbstractEventLoop` does; `delay` is seconds."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> TimerHandle: ...


NewPending = Callable[[], Pending[Any]]
"""`loop.create_future`."""

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work in a thread, because it waits for the disk. Await it for the work's result or exception."""


class Client(Protocol):
    """The client that work is done for; `is_gone` once it is disconnected."""

    is_gone: bool


class SubmitForClient(Protocol):
    """`SubmitBlocking` for work whose length a client decides; it may be stopped when that client is gone."""

    def __call__(self, work: Callable[[], Any], client: Client | None = None, /) -> Pending[Any]: ...


SubmitBlocking = Callable[[Callable[[], Any]], Pending[Any]]
"""`RunBlocking` for callers that use callbacks: `partial(loop.run_in_executor, pool)`."""
