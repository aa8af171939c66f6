"""What a broker does in threads, interrupted at its disk operations: between two of them the event loop may do
anything.

A real thread releases the interpreter while it waits for the disk, so what it has read may be out of date when it
continues. Here such work is a greenlet: before an operation, and after a read, it may pause while virtual time passes.
The seed decides whether, where and for how long; all runs in one real thread, so one seed gives one history.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

import greenlet

from logyard.broker.log.fetch import ColdLookup, LogSlice
from logyard.broker.log.partition_log import PartitionLog
from tests.simulation.process import PROCESS, Process
from tests.simulation.trace import Trace

START_DELAY_S = 0.001
WHOLE = 0.5  # that part of all work is done in one go
# How often cut work stands still at a point where it could, and the longest that it does.
CUT_CHANCES = (0.1, 0.4, 1.0)
SLOW_CHANCE = 0.8  # at a slow disk
SLOW_PAUSE_S = 0.8
PAUSES_S = (0.001, 0.01, 0.1)
PAUSES_MAX = 12

P = ParamSpec("P")
T = TypeVar("T")


class Timers(Protocol):
    """What work needs of a loop."""

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle: ...


class BlockingWork(greenlet.greenlet):  # type: ignore[misc]  # greenlet has no types
    """One piece of work of a broker's threads; `future` gets its outcome, on the loop."""

    def __init__(
        self,
        timers: Timers,
        chance: random.Random,
        trace: Trace,
        future: "asyncio.Future[Any]",
        work: Callable[[], Any],
    ) -> None:
        super().__init__(self._carry_out)
        self.gr_context = contextvars.copy_context()
        self._timers, self._chance, self._trace = timers, chance, trace
        self._future, self._work = future, work
        self._process: Process | None = PROCESS.get()
        cut = chance.random() >= WHOLE
        self._pauses = PAUSES_MAX if cut else 0
        self._cut_chance, self._pause_s = (chance.choice(CUT_CHANCES), chance.choice(PAUSES_S)) if cut else (0.0, 0.0)
        self._was_cut = self._pauses_slowly = False

    @property
    def is_looking_up(self) -> bool:
        """Whether this is a follower's look-up behind the high watermark: what it is about may be cut off."""
        piece = getattr(self._work, "__self__", None)
        look_up = getattr(piece.look_up, "__self__", None) if isinstance(piece, LogSlice) else None
        if not isinstance(look_up, ColdLookup):
            return False
        wanted, log = look_up.bounds, getattr(look_up.lost_tail, "__self__", None)
        assert isinstance(log, PartitionLog)
        mark = log.high_watermark
        return wanted.limit_offset is not None and wanted.limit_offset > mark and wanted.offset >= mark

    def begin(self) -> None:
        self._timers.call_later(self._chance.random() * START_DELAY_S, self._begin)

    def _begin(self) -> None:
        if not self._future.cancelled():
            self.switch()

    def _carry_out(self) -> None:
        try:
            outcome = self._work()
        except Exception as error:
            if not self._future.cancelled():
                self._future.set_exception(error)
        else:
            if not self._future.cancelled():
                self._future.set_result(outcome)
        if self._was_cut:
            self._trace.count("blocking work cut")
            if _is_overtaken(self._work):
                self._trace.count("log cut under a look-up")

    def breathe(self, *, slowly: bool) -> None:
        """Stand still for a while, maybe."""
        if slowly and not self._pauses_slowly:
            self._pauses_slowly = True
            self._pauses, self._cut_chance, self._pause_s = PAUSES_MAX, SLOW_CHANCE, SLOW_PAUSE_S
        if self._pauses and self._chance.random() < self._cut_chance:
            self._pauses -= 1
            self._was_cut = True
            self._timers.call_later(self._chance.random() * self._pause_s, self._go_on)
            if self._process is not None:
                self._process.standing[self] = None
            assert self.parent is not None
            self.parent.switch()

    def _go_on(self) -> None:
        if self._process is not None:
            self._process.standing.pop(self, None)
        self.switch()


def breathe(*, slowly: bool = False) -> None:
    """Called where a thread would wait for the disk; the event loop's own operations do not wait."""
    current = greenlet.getcurrent()
    if type(current) is BlockingWork:
        current.breathe(slowly=slowly)


def breathing(operation: Callable[P, T]) -> Callable[P, T]:
    """A disk operation before which a thread may stand still."""

    @wraps(operation)
    def operate(*args: P.args, **kwargs: P.kwargs) -> T:
        breathe()
        return operation(*args, **kwargs)

    return operate


def _is_overtaken(work: Callable[[], Any]) -> bool:
    """Whether the work looked something up in a log that was cut in between."""
    piece = getattr(work, "__self__", None)
    return isinstance(piece, LogSlice) and piece.look_up is not None and piece.segments.cuts != piece.cuts
