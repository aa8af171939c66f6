"""The cache of a cluster: one read for all viewers, seldom, bounded, dropped when idle; real threads, a fake clock."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterUnreachable, DescribingClient
from logyard.plugins.logyard_ui.cache import cache as cache_module
from logyard.plugins.logyard_ui.cache.cache import REFRESH_S, Cached, Clocks, ClusterCache, Query
from logyard.plugins.logyard_ui.cache.worker import QUEUE_MAX, Busy, Worker
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock

LONG_S = 20.0


class Clients:
    """Hands out clients and remembers them."""

    def __init__(self) -> None:
        self.made: list[MemoryClient] = []

    def __call__(self) -> MemoryClient:
        self.made.append(MemoryClient(MemoryCluster({1: None})))
        return self.made[-1]


def _cache(clock: Clock, clients: Clients, idle_s: float = LONG_S) -> ClusterCache:
    return ClusterCache(clients, Clocks(clock, clock.ms), idle_s)


def _query(
    read: Callable[[DescribingClient], int], fresh_s: float = 2.0, key: str = "", kept_max: int = 64
) -> Query[int]:
    return Query("number", "worker", fresh_s, read, key, kept_max)


def test_fifty_requests_are_one_read() -> None:
    reads = []
    opened = threading.Event()

    def read(_: DescribingClient) -> int:
        opened.wait(LONG_S)
        reads.append(1)
        return 7

    async def ask(cache: ClusterCache) -> list[Cached[int]]:
        waiting = [asyncio.ensure_future(cache.get(_query(read), LONG_S)) for _ in range(50)]
        await asyncio.sleep(0)
        opened.set()
        return list(await asyncio.gather(*waiting))

    clients = Clients()
    cache = _cache(Clock(), clients)
    found = asyncio.run(ask(cache))
    assert {one.value for one in found} == {7}
    assert (len(reads), len(clients.made), cache.threads) == (1, 1, 1)
    assert (cache.costs()["number"].requests, cache.costs()["number"].reads) == (50, 1)


def test_a_refresh_reads_again_soon_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(_: DescribingClient) -> int:
        reads.append(len(reads))
        return reads[-1]

    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)

    async def ask() -> list[int | None]:
        cache = _cache(clock, Clients())
        fresh = [await cache.get(_query(read), LONG_S), await cache.get(_query(read), LONG_S)]
        return [found.value for found in [*fresh, await cache.refresh(_query(read), LONG_S)]]

    clock = Clock()
    assert asyncio.run(ask()) == [0, 0, 1]
    assert slept == [REFRESH_S]


def test_a_caller_that_gives_up_leaves_the_read_to_others() -> None:
    opened = threading.Event()

    def read(_: DescribingClient) -> int:
        opened.wait(LONG_S)
        return 7

    async def ask() -> tuple[Cached[int], Cached[int]]:
        cache = _cache(Clock(), Clients())
        first = await cache.get(_query(read), 0.01)
        gone = asyncio.ensure_future(cache.get(_query(read), LONG_S))
        await asyncio.sleep(0)
        gone.cancel()
        opened.set()
        return first, await cache.get(_query(read), LONG_S)

    first, then = asyncio.run(ask())
    assert first == Cached(pending=True, every_s=2.0)
    assert (then.value, then.pending) == (7, False)


def test_slow_reads_are_rare() -> None:
    clock = Clock()
    taken: list[float] = []

    def read(_: DescribingClient) -> int:
        taken.append(clock.now)
        clock.now += 10.0  # it took ten seconds
        return len(taken)

    async def ask() -> None:
        cache = _cache(clock, Clients())
        for clock.now in (0.0, 12.0, 49.0, 50.0):
            await cache.get(_query(read), LONG_S)

    asyncio.run(ask())
    assert taken == [0.0, 50.0]  # at most a fifth of the time is spent reading


def test_an_answer_does_not_wait_for_a_read_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "LATE_S", 10 * LONG_S)  # the read begins only where somebody waits for it
    clock, opened, began = Clock(), threading.Event(), threading.Event()
    took_s = 1.0

    def read(_: DescribingClient) -> float:
        if clock.now > 0:
            began.set()
            assert opened.wait(LONG_S)
        clock.now += took_s
        return clock.now

    def asked(old_s: float) -> Query[float]:
        return Query("number", "worker", 2.0, read, old_s=old_s)

    async def ask() -> None:
        cache = _cache(clock, Clients())
        assert (await cache.get(asked(30), LONG_S)).value == 1.0
        clock.now = 6.0
        meanwhile = await cache.get(asked(30), LONG_S)  # nothing opens the read before this has answered
        assert (meanwhile.value, meanwhile.taken_ms, meanwhile.pending) == (1.0, 1000, False)
        assert not began.is_set()
        waiting = asyncio.ensure_future(cache.get(asked(0), LONG_S))  # this one wants what is new
        assert await asyncio.to_thread(began.wait, LONG_S)
        assert not waiting.done()
        opened.set()
        assert (await waiting).value == 7.0
        clock.now = 7.0 + 4.0 + 30.0  # too old for anybody
        assert (await cache.get(asked(30), LONG_S)).value == 42.0

    asyncio.run(ask())


def test_a_read_that_nobody_waits_for_begins_later_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "LATE_S", 0.01)
    clock, again = Clock(), threading.Event()

    def read(_: DescribingClient) -> float:
        if clock.now >= 6.0:
            again.set()
        clock.now += 1.0
        return clock.now

    async def ask() -> None:
        cache = _cache(clock, Clients())
        query = Query("number", "worker", 2.0, read, old_s=30)
        await cache.get(query, LONG_S)
        clock.now = 6.0
        await cache.get(query, LONG_S)
        assert await asyncio.to_thread(again.wait, LONG_S)

    asyncio.run(ask())


def test_a_read_of_the_same_worker_does_not_wait_for_one_that_lingers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "LATE_S", 10 * LONG_S)
    clock = Clock()

    def read(_: DescribingClient) -> float:
        clock.now += 1.0
        return clock.now

    async def ask() -> None:
        cache = _cache(clock, Clients())
        slow = Query("number", "worker", 2.0, read, old_s=30)
        await cache.get(slow, LONG_S)
        clock.now = 6.0
        await cache.get(slow, LONG_S)  # its read lingers
        other = Query("other", "worker", 2.0, lambda _: 7.0)
        async with asyncio.timeout(LONG_S):
            assert (await cache.get(other, 5 * LONG_S)).value == 7.0

    asyncio.run(ask())


def test_a_quick_read_is_waited_for() -> None:
    clock = Clock()

    async def ask() -> list[float | None]:
        cache, found = _cache(clock, Clients()), []
        for clock.now in (0.0, 10.0):
            found.append((await cache.get(Query("number", "worker", 2.0, lambda _: clock.now, old_s=30), LONG_S)).value)
        return found

    assert asyncio.run(ask()) == [0.0, 10.0]


def test_a_failed_read_keeps_the_old_value_and_gets_another_client() -> None:
    clock, clients = Clock(), Clients()
    answers: list[int | Exception] = [1, ClusterUnreachable("gone"), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"), 2]

    def read(_: DescribingClient) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask() -> list[Cached[int]]:
        cache = _cache(clock, clients)
        found = []
        for clock.now in (0.0, 1.0, 10.0, 11.0, 20.0, 30.0):
            found.append(await cache.get(_query(read), LONG_S))
        return found

    found = asyncio.run(ask())
    assert [one.value for one in found] == [1, 1, 1, 1, 1, 2]
    assert [type(one.problem) for one in found] == [
        type(None), type(None), ClusterUnreachable, ClusterUnreachable, ApiError, type(None),
    ]  # fmt: skip
    assert [one.taken_ms for one in found] == [0, 0, 0, 0, 0, 30_000]
    # An error code is an answer, and keeps the client; a cluster that does not answer gets a new one.
    assert [client.closed for client in clients.made] == [True, False]


def test_no_client_can_be_made_and_later_one_can() -> None:
    clock = Clock()
    made: list[MemoryClient | Exception] = [ValueError("no such file"), MemoryClient(MemoryCluster({1: None}))]

    def connect() -> MemoryClient:
        client = made.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    async def ask() -> list[Cached[int]]:
        cache = ClusterCache(connect, Clocks(clock, clock.ms), LONG_S)
        found = []
        for clock.now in (0.0, 1.0, 10.0):
            found.append(await cache.get(_query(lambda _: 7), LONG_S))
        return found

    assert [one.value for one in asyncio.run(ask())] == [None, None, 7]


def _number(number: int, _: DescribingClient) -> int:
    return number


def test_values_are_bounded() -> None:
    async def ask() -> ClusterCache:
        cache = _cache(Clock(), Clients())
        for number in range(30):
            await cache.get(_query(partial(_number, number), key=str(number), kept_max=8), LONG_S)
        return cache

    cache = asyncio.run(ask())
    assert cache.costs()["number"].kept <= 9
    assert cache.peek("number", "29") == 29
    assert cache.peek("number", "0") is None


def test_too_many_reads_at_once_are_refused() -> None:
    opened = threading.Event()

    async def ask() -> int:
        cache = _cache(Clock(), Clients())
        refused = 0
        for number in range(QUEUE_MAX + 10):
            try:
                await cache.get(_query(lambda _: int(opened.wait(LONG_S)), key=str(number)), 0)
            except Busy:
                refused += 1
        opened.set()
        return refused

    assert asyncio.run(ask()) in (9, 10)  # one may be in flight already


def test_an_idle_cache_is_emptied() -> None:
    clients, others = Clients(), set(threading.enumerate())
    cache = _cache(Clock(), clients, idle_s=0.01)
    assert asyncio.run(cache.get(_query(lambda _: 7), LONG_S)).value == 7
    for thread in set(threading.enumerate()) - others:
        thread.join(LONG_S)
    assert (cache.threads, cache.peek("number")) == (0, None)
    assert [client.closed for client in clients.made] == [True]
    assert cache.costs()["number"].reads == 1
    assert asyncio.run(cache.get(_query(lambda _: 8), LONG_S)).value == 8  # the next request begins anew


def test_a_closed_worker_runs_what_is_queued_and_refuses_more() -> None:
    ended = threading.Event()
    worker = Worker(Clients(), ended.set, LONG_S)
    opened = threading.Event()
    waiting = [worker.submit(lambda _: opened.wait(LONG_S)) for _ in range(3)]
    worker.close()
    with pytest.raises(Busy):
        worker.submit(lambda _: None)
    opened.set()
    assert [future.result(LONG_S) for future in waiting] == [True, True, True]
    assert ended.wait(LONG_S)


def test_a_client_that_cannot_be_closed_does_not_end_the_worker() -> None:
    """Its thread ended, and no query of that worker was read again."""

    class Broken(MemoryClient):
        def close(self) -> None:
            raise RuntimeError("the socket is gone already")

    def fail(_: DescribingClient) -> int:
        raise ClusterUnreachable("the connection was lost")

    worker = Worker(lambda: Broken(MemoryCluster({1: None})), lambda: None, LONG_S)
    with pytest.raises(ClusterUnreachable):
        worker.submit(fail).result(LONG_S)
    assert worker.submit(lambda _: 7).result(LONG_S) == 7
    worker.close()
