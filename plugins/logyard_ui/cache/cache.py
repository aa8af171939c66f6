"""What is known of one cluster, part by part: asked for once for everybody, as seldom as each part allows."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from logyard.admin.ports import DescribingClient
from logyard.plugins.logyard_ui.cache.worker import IDLE_S, Lane

T = TypeVar("T")

KEPT_MAX = 64
# A look that took a second is not taken again for four more: never more than a fifth of the time is spent looking.
PAUSE_FACTOR = 4.0
PAUSE_MAX_S = 300.0
# Whoever misses something in what is fresh has it looked at again, but not more often than this.
ANEW_S = 0.5


@dataclass(frozen=True)
class Part(Generic[T]):
    """One thing to know. `every_s`: how long it counts as fresh; `about`: which topic, group or broker, if any;
    `kept_max`: of how many of those the values are kept."""

    name: str
    lane: str
    every_s: float
    look: Callable[[DescribingClient], T]
    about: str = ""
    kept_max: int = KEPT_MAX


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The last value there is, and what the last look met. `pending`: a look is under way and there is no value yet."""

    value: T | None = None
    problem: Exception | None = None
    pending: bool = False
    taken_ms: int | None = None
    took_s: float = 0.0
    every_s: float = 0.0


@dataclass(slots=True)
class _Kept:
    name: str
    every_s: float
    value: Any = None
    problem: Exception | None = None
    ended: float = float("-inf")
    taken_ms: int | None = None
    took_s: float = 0.0
    asked: int = 0
    looks: int = 0
    failures: int = 0
    total_s: float = 0.0
    under_way: "Future[Any] | None" = None

    @property
    def pause_s(self) -> float:
        return self.pause_of(self.every_s)

    def pause_of(self, least_s: float) -> float:
        return max(least_s, min(self.took_s * PAUSE_FACTOR, PAUSE_MAX_S))


@dataclass(slots=True)
class PartCost:
    """What a part has cost so far, everything of its name together. Times in seconds."""

    asked: int = 0
    looks: int = 0
    failures: int = 0
    total_s: float = 0.0
    last_s: float = 0.0
    ended: float = float("-inf")
    every_s: float = 0.0
    kept: int = 0


@dataclass
class Clocks:
    """Seconds that never go back, and ms since 1970."""

    monotonic: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)


class Poll:
    """The parts of one cluster. Its threads, clients and values last while somebody asks, its costs for ever."""

    def __init__(
        self,
        connect: Callable[[], DescribingClient],
        clocks: Clocks | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._connect, self._clocks, self._idle_s = connect, clocks or Clocks(), idle_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._lanes: dict[str, Lane] = {}
        self._costs: dict[str, PartCost] = {}

    async def get(self, part: Part[T], wait_s: float) -> Found[T]:
        """The part, looked at anew where it is no longer fresh; waits no longer than that. Raises Busy."""
        kept, future = self._start(part)
        if future is not None and wait_s > 0:
            # `wait` leaves the future alone when it gives up: the answer is kept for the next who asks.
            await asyncio.wait({asyncio.ensure_future(_ended(future))}, timeout=wait_s)
        with self._lock:
            return Found(
                value=cast("T | None", kept.value),
                problem=kept.problem,
                pending=kept.value is None and kept.problem is None,
                taken_ms=kept.taken_ms,
                took_s=kept.took_s,
                every_s=kept.pause_s,
            )

    async def get_anew(self, part: Part[T], wait_s: float) -> Found[T]:
        """The part from a look that begins only now, though it is fresh, as soon as what looks cost allows it."""
        with self._lock:
            kept = self._kept.get((part.name, part.about)) or _Kept(part.name, part.every_s)
            under_way = kept.under_way
        if under_way is not None:
            await asyncio.wait({asyncio.ensure_future(_ended(under_way))}, timeout=wait_s)
        with self._lock:
            rest_s = kept.ended + kept.pause_of(ANEW_S) - self._clocks.monotonic()
        await asyncio.sleep(min(max(rest_s, 0.0), wait_s))
        with self._lock:
            kept.ended = float("-inf")
        return await self.get(part, wait_s)

    def peek(self, name: str, about: str = "") -> Any:
        """The value that is kept just now, however old, or None; asks nobody."""
        with self._lock:
            kept = self._kept.get((name, about))
            return None if kept is None else kept.value

    def expire(self, name: str) -> None:
        """Have every part of that name looked at anew when it is asked for next."""
        with self._lock:
            for kept in self._kept.values():
                if kept.name == name:
                    kept.ended = float("-inf")

    def close(self) -> None:
        """End the lanes; values are forgotten when they have ended."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            lane.close()

    def costs(self) -> dict[str, PartCost]:
        """By the parts' names, with how many values are kept now."""
        with self._lock:
            for cost in self._costs.values():
                cost.kept = 0
            for kept in self._kept.values():
                self._costs[kept.name].kept += kept.value is not None
            return dict(self._costs)

    def age_s(self, cost: PartCost) -> float:
        return self._clocks.monotonic() - cost.ended

    @property
    def threads(self) -> int:
        with self._lock:
            return sum(lane.thread is not None for lane in self._lanes.values())

    def _start(self, part: Part[T]) -> "tuple[_Kept, Future[Any] | None]":
        """Find what is kept and, where it is not fresh, the look that is under way or begins now."""
        key = (part.name, part.about)
        with self._lock:
            kept = self._kept.setdefault(key, _Kept(part.name, part.every_s))
            kept.every_s = part.every_s
            self._kept.move_to_end(key)
            self._forget(part)
            cost = self._costs.setdefault(part.name, PartCost())
            cost.asked += 1
            if kept.under_way is not None and kept.under_way.done():
                # It ended without having looked: no client could be made.
                problem = kept.under_way.exception()
                kept.problem = problem if isinstance(problem, Exception) else None
                kept.under_way, kept.ended = None, self._clocks.monotonic()
            if kept.under_way is not None or self._clocks.monotonic() - kept.ended < kept.pause_s:
                return kept, kept.under_way
            lane = self._lanes.get(part.lane)
            if lane is None:
                lane = self._lanes[part.lane] = Lane(self._connect, self._on_idle, self._idle_s)
            kept.under_way = lane.submit(lambda client: self._look(part, kept, cost, client))
            return kept, kept.under_way

    def _look(self, part: Part[T], kept: _Kept, cost: PartCost, client: DescribingClient) -> None:
        started = self._clocks.monotonic()
        value: T | None = None
        problem: Exception | None = None
        try:
            value = part.look(client)
        except Exception as raised:
            problem = raised
        with self._lock:
            now = self._clocks.monotonic()
            kept.ended, kept.took_s, kept.problem, kept.under_way = now, now - started, problem, None
            if problem is None:
                kept.value, kept.taken_ms = value, self._clocks.wall_ms()
            cost.looks += 1
            cost.failures += problem is not None
            cost.total_s += kept.took_s
            cost.last_s, cost.ended, cost.every_s = kept.took_s, now, kept.pause_s
        if problem is not None:
            raise problem  # to the lane, which may need another client

    def _forget(self, part: Part[T]) -> None:
        """Drop what was not asked for the longest, never what is being looked at."""
        alike = [key for key, kept in self._kept.items() if kept.name == part.name and kept.under_way is None]
        for key in alike[: max(len(alike) - part.kept_max, 0)]:
            del self._kept[key]

    def _on_idle(self) -> None:
        """Nobody watches any more: a large cluster's values are not worth their memory."""
        with self._lock:
            if not any(lane.thread is not None for lane in self._lanes.values()):
                self._kept = OrderedDict((k, kept) for k, kept in self._kept.items() if kept.under_way is not None)


async def _ended(future: "Future[Any]") -> None:
    try:
        await asyncio.wrap_future(future)
    except Exception:  # whatever it was is kept beside the value
        return
