"""What is known of one cluster: each query runs once for all viewers, and no more often than its result gets stale."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from logyard.admin.ports import DescribingClient
from logyard.plugins.logyard_ui.cache.worker import IDLE_S, Busy, Worker

T = TypeVar("T")

KEPT_MAX = 64
# After a read that took one second the next one waits four: at most a fifth of the time is spent reading.
PAUSE_FACTOR = 4.0
PAUSE_MAX_S = 300.0
# A caller that misses something in a fresh value has it read again, but no more often than this.
REFRESH_S = 0.5
# A read that takes this long is felt: callers that take an older value do not wait for the next one.
SLOW_S = 0.1
# Where nobody waits for such a read it begins so much later: whoever opens the page now needs the processor.
LATE_S = 1.0


@dataclass(frozen=True)
class Query(Generic[T]):
    """One thing to know about a cluster.

    `worker`: the name of the worker that reads it; `fresh_s`: for how long a value counts as fresh; `key`: the topic,
    group or broker that it is about, if any; `kept_max`: for how many keys values are kept. `old_s`: for how long after
    that a value is still answered at once, while a read that takes long is made anew.
    """

    name: str
    worker: str
    fresh_s: float
    read: Callable[[DescribingClient], T]
    key: str = ""
    kept_max: int = KEPT_MAX
    old_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """The last value, if there is one, and the error of the last read, if it failed.

    `pending`: there is neither yet, and a read is in flight. `taken_ms`: when the value was read, in ms since 1970.
    """

    value: T | None = None
    problem: Exception | None = None
    pending: bool = False
    taken_ms: int | None = None
    took_s: float = 0.0
    every_s: float = 0.0


@dataclass(slots=True)
class _Entry:
    name: str
    fresh_s: float
    value: Any = None
    problem: Exception | None = None
    ended: float = float("-inf")
    taken_ms: int | None = None
    took_s: float = 0.0
    in_flight: "Future[Any] | None" = None
    worker: Worker | None = None  # of the read in flight

    @property
    def pause_s(self) -> float:
        return self.pause_of(self.fresh_s)

    def pause_of(self, least_s: float) -> float:
        return max(least_s, min(self.took_s * PAUSE_FACTOR, PAUSE_MAX_S))

    def hurry(self) -> None:
        """Somebody waits for the read in flight."""
        if self.worker is not None:
            self.worker.hurry()


@dataclass(slots=True)
class QueryCost:
    """What the queries of one name have cost so far. Times in seconds."""

    requests: int = 0
    reads: int = 0
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


class ClusterCache:
    """The queries of one cluster with their values. Threads, clients and values last while somebody asks; the cost
    counts last as long as the process."""

    def __init__(
        self,
        connect: Callable[[], DescribingClient],
        clocks: Clocks | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._connect, self._clocks, self._idle_s = connect, clocks or Clocks(), idle_s
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._workers: dict[str, Worker] = {}
        self._costs: dict[str, QueryCost] = {}

    async def get(self, query: Query[T], wait_s: float) -> Cached[T]:
        """The value; a stale one is read again. Waits for that read `wait_s` at most, and not at all where the query
        takes the old value meanwhile. Raises Busy."""
        entry, future = self._read_if_stale(query)
        if future is not None and wait_s > 0 and not self._answers_while_read(query, entry):
            entry.hurry()
            # `wait` does not cancel the future when it gives up: the value is kept for the next caller.
            await asyncio.wait({asyncio.ensure_future(_ended(future))}, timeout=wait_s)
        with self._lock:
            return Cached(
                value=cast("T | None", entry.value),
                problem=entry.problem,
                pending=entry.value is None and entry.problem is None,
                taken_ms=entry.taken_ms,
                took_s=entry.took_s,
                every_s=entry.pause_s,
            )

    async def refresh(self, query: Query[T], wait_s: float) -> Cached[T]:
        """The value of a read that begins only now, even if the last one is fresh, as soon as its cost allows it."""
        with self._lock:
            entry = self._entries.get((query.name, query.key)) or _Entry(query.name, query.fresh_s)
            in_flight = entry.in_flight
        if in_flight is not None:
            entry.hurry()
            await asyncio.wait({asyncio.ensure_future(_ended(in_flight))}, timeout=wait_s)
        with self._lock:
            rest_s = entry.ended + entry.pause_of(REFRESH_S) - self._clocks.monotonic()
        await asyncio.sleep(min(max(rest_s, 0.0), wait_s))
        with self._lock:
            entry.ended = float("-inf")
        return await self.get(query, wait_s)

    def read_again(self, query: Query[T], wait_s: float) -> T | None:
        """The value of a read that begins only now, for a read of another worker; the last value where that takes
        longer. Does not wait where the last read failed or took long: this one would too."""
        deadline = time.monotonic() + wait_s
        with self._lock:
            entry = self._entries.get((query.name, query.key))
            late = entry is not None and (entry.problem is not None or entry.took_s > wait_s)
            in_flight = None if entry is None else entry.in_flight
        if not late:
            try:
                if in_flight is not None and entry is not None:
                    entry.hurry()
                    in_flight.exception(wait_s)
                self.expire(query.name)
                entry, future = self._read_if_stale(query)
                if future is not None:
                    entry.hurry()
                    future.exception(max(deadline - time.monotonic(), 0.0))
            except (TimeoutError, Busy):
                pass
        return cast("T | None", self.peek(query.name, query.key))

    def peek(self, name: str, key: str = "") -> Any:
        """The value that is kept now, however old, or None; starts no read."""
        with self._lock:
            entry = self._entries.get((name, key))
            return None if entry is None else entry.value

    def expire(self, name: str) -> None:
        """Have every query of that name read again at its next request."""
        with self._lock:
            for entry in self._entries.values():
                if entry.name == name:
                    entry.ended = float("-inf")

    def close(self) -> None:
        """End the workers; the values are dropped when they have ended."""
        with self._lock:
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.close()

    def costs(self) -> dict[str, QueryCost]:
        """By the queries' names, with the number of values that are kept now."""
        with self._lock:
            for cost in self._costs.values():
                cost.kept = 0
            for entry in self._entries.values():
                self._costs[entry.name].kept += entry.value is not None
            return dict(self._costs)

    def age_s(self, cost: QueryCost) -> float:
        return self._clocks.monotonic() - cost.ended

    @property
    def threads(self) -> int:
        with self._lock:
            return sum(worker.thread is not None for worker in self._workers.values())

    def _read_if_stale(self, query: Query[T]) -> "tuple[_Entry, Future[Any] | None]":
        """The query's entry and, where its value is not fresh, the read that is in flight or begins now."""
        key = (query.name, query.key)
        with self._lock:
            entry = self._entries.setdefault(key, _Entry(query.name, query.fresh_s))
            entry.fresh_s = query.fresh_s
            self._entries.move_to_end(key)
            self._evict(query)
            cost = self._costs.setdefault(query.name, QueryCost())
            cost.requests += 1
            if entry.in_flight is not None and entry.in_flight.done():
                # It ended without a read: no client could be made.
                problem = entry.in_flight.exception()
                entry.problem = problem if isinstance(problem, Exception) else None
                entry.in_flight, entry.ended = None, self._clocks.monotonic()
            if entry.in_flight is not None or self._clocks.monotonic() - entry.ended < entry.pause_s:
                return entry, entry.in_flight
            worker = self._workers.get(query.worker)
            if worker is None:
                worker = self._workers[query.worker] = Worker(self._connect, self._on_idle, self._idle_s)
            entry.in_flight = worker.submit(lambda client: self._read(query, entry, cost, client, worker))
            entry.worker = worker
            return entry, entry.in_flight

    def _answers_while_read(self, query: Query[T], entry: _Entry) -> bool:
        """Whether the value will do until it is read anew: its last read succeeded, took long, and is not long ago."""
        with self._lock:
            if entry.value is None or entry.problem is not None or entry.took_s < SLOW_S:
                return False
            return self._clocks.monotonic() - entry.ended < entry.pause_s + query.old_s

    def _read(self, query: Query[T], entry: _Entry, cost: QueryCost, client: DescribingClient, worker: Worker) -> None:
        if self._answers_while_read(query, entry):
            worker.linger(LATE_S)
        started = self._clocks.monotonic()
        value: T | None = None
        problem: Exception | None = None
        try:
            value = query.read(client)
        except Exception as raised:
            problem = raised
        with self._lock:
            now = self._clocks.monotonic()
            entry.ended, entry.took_s, entry.problem, entry.in_flight = now, now - started, problem, None
            if problem is None:
                entry.value, entry.taken_ms = value, self._clocks.wall_ms()
            cost.reads += 1
            cost.failures += problem is not None
            cost.total_s += entry.took_s
            cost.last_s, cost.ended, cost.every_s = entry.took_s, now, entry.pause_s
        if problem is not None:
            raise problem  # to the worker, which may need another client

    def _evict(self, query: Query[T]) -> None:
        """Drop the least recently requested values of that name, except those that are being read."""
        idle = [key for key, entry in self._entries.items() if entry.name == query.name and entry.in_flight is None]
        for key in idle[: max(len(idle) - query.kept_max, 0)]:
            del self._entries[key]

    def _on_idle(self) -> None:
        """Drop all values once no worker runs: those of a large cluster take much memory."""
        with self._lock:
            if not any(worker.thread is not None for worker in self._workers.values()):
                in_flight = {key: entry for key, entry in self._entries.items() if entry.in_flight is not None}
                self._entries = OrderedDict(in_flight)


async def _ended(future: "Future[Any]") -> None:
    try:
        await asyncio.wrap_future(future)
    except Exception:  # the entry keeps it beside the value
        return
