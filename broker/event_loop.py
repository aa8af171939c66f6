"""What the broker's parts ask of the event loop, as types: threads, timers, and answers that are not there yet.

asyncio's loop gives all of it; tests and the simulator give what they like.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Pending(Awaitable[T], Protocol[T]):
    """An answer that is not there yet: asyncio.Future is one."""

    def set_result(self, result: T, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def done(self) -> bool: ...
    def result(self) -> T: ...
    def add_done_callback(self, callback: Callable[[Any], object], /) -> object: ...


class TimerHandle(Protocol):
    """What `Timers.call_later` hands out."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Later, on the event loop; `asyncio.AbstractEventLoop` is one."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> TimerHandle: ...


NewPending = Callable[[], Pending[Any]]
"""`loop.create_future`."""

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs in a thread what waits for the disk; awaited, it gives the work's result or raises what the work raised."""


class Client(Protocol):
    """Whom something is done for; `is_gone` where nobody takes the outcome any more."""

    is_gone: bool


class SubmitForClient(Protocol):
    """`SubmitBlocking` for what takes as long as a client likes: it may be ended where the client is gone."""

    def __call__(self, work: Callable[[], Any], client: Client | None = None, /) -> Pending[Any]: ...


SubmitBlocking = Callable[[Callable[[], Any]], Pending[Any]]
"""The same for callers that do not await but are called back: `partial(loop.run_in_executor, pool)`."""
