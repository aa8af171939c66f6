"""Polls: one look for all, seldom, bounded, and gone when nobody watches; real threads, a clock that is told."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterUnreachable, DescribingClient
from logyard.plugins.logyard_ui.cache import cache
from logyard.plugins.logyard_ui.cache.cache import Clocks, Found, Part, Poll
from logyard.plugins.logyard_ui.cache.worker import WAITING_MAX, Busy, Lane
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


def _poll(clock: Clock, clients: Clients, idle_s: float = LONG_S) -> Poll:
    return Poll(clients, Clocks(clock, clock.ms), idle_s)


def _part(
    look: Callable[[DescribingClient], int], every_s: float = 2.0, about: str = "", kept_max: int = 64
) -> Part[int]:
    return Part("number", "lane", every_s, look, about, kept_max)


def test_fifty_ask_and_one_looks() -> None:
    looks = []
    opened = threading.Event()

    def look(_: DescribingClient) -> int:
        opened.wait(LONG_S)
        looks.append(1)
        return 7

    async def ask(poll: Poll) -> list[Found[int]]:
        waiting = [asyncio.ensure_future(poll.get(_part(look), LONG_S)) for _ in range(50)]
        await asyncio.sleep(0)
        opened.set()
        return list(await asyncio.gather(*waiting))

    clients = Clients()
    poll = _poll(Clock(), clients)
    found = asyncio.run(ask(poll))
    assert {one.value for one in found} == {7}
    assert (len(looks), len(clients.made), poll.threads) == (1, 1, 1)
    assert (poll.costs()["number"].asked, poll.costs()["number"].looks) == (50, 1)


def test_who_misses_something_has_it_looked_at_again_soon_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(_: DescribingClient) -> int:
        looks.append(len(looks))
        return looks[-1]

    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds
        await sleep(0)

    monkeypatch.setattr(cache.asyncio, "sleep", noted)

    async def ask() -> list[int | None]:
        poll = _poll(clock, Clients())
        fresh = [await poll.get(_part(look), LONG_S), await poll.get(_part(look), LONG_S)]
        return [found.value for found in [*fresh, await poll.get_anew(_part(look), LONG_S)]]

    clock = Clock()
    assert asyncio.run(ask()) == [0, 0, 1]
    assert slept == [cache.ANEW_S]


def test_who_gives_up_leaves_the_look_to_others() -> None:
    opened = threading.Event()

    def look(_: DescribingClient) -> int:
        opened.wait(LONG_S)
        return 7

    async def ask() -> tuple[Found[int], Found[int]]:
        poll = _poll(Clock(), Clients())
        first = await poll.get(_part(look), 0.01)
        gone = asyncio.ensure_future(poll.get(_part(look), LONG_S))
        await asyncio.sleep(0)
        gone.cancel()
        opened.set()
        return first, await poll.get(_part(look), LONG_S)

    first, then = asyncio.run(ask())
    assert first == Found(pending=True, every_s=2.0)
    assert (then.value, then.pending) == (7, False)


def test_a_slow_look_is_taken_seldom() -> None:
    clock = Clock()
    taken: list[float] = []

    def look(_: DescribingClient) -> int:
        taken.append(clock.now)
        clock.now += 10.0  # it took ten seconds
        return len(taken)

    async def ask() -> None:
        poll = _poll(clock, Clients())
        for clock.now in (0.0, 12.0, 49.0, 50.0):
            await poll.get(_part(look), LONG_S)

    asyncio.run(ask())
    assert taken == [0.0, 50.0]  # a fifth of the time is spent looking, no more


def test_what_failed_keeps_the_old_value_and_gets_another_client() -> None:
    clock, clients = Clock(), Clients()
    answers: list[int | Exception] = [1, ClusterUnreachable("gone"), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no"), 2]

    def look(_: DescribingClient) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask() -> list[Found[int]]:
        poll = _poll(clock, clients)
        found = []
        for clock.now in (0.0, 1.0, 10.0, 11.0, 20.0, 30.0):
            found.append(await poll.get(_part(look), LONG_S))
        return found

    found = asyncio.run(ask())
    assert [one.value for one in found] == [1, 1, 1, 1, 1, 2]
    assert [type(one.problem) for one in found] == [
        type(None), type(None), ClusterUnreachable, ClusterUnreachable, ApiError, type(None),
    ]  # fmt: skip
    assert [one.taken_ms for one in found] == [0, 0, 0, 0, 0, 30_000]
    # A refusal is an answer; a cluster that does not answer is asked by a new client.
    assert [client.closed for client in clients.made] == [True, False]


def test_no_client_can_be_made_and_later_one_can() -> None:
    clock = Clock()
    made: list[MemoryClient | Exception] = [ValueError("no such file"), MemoryClient(MemoryCluster({1: None}))]

    def connect() -> MemoryClient:
        client = made.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    async def ask() -> list[Found[int]]:
        poll = Poll(connect, Clocks(clock, clock.ms), LONG_S)
        found = []
        for clock.now in (0.0, 1.0, 10.0):
            found.append(await poll.get(_part(lambda _: 7), LONG_S))
        return found

    assert [one.value for one in asyncio.run(ask())] == [None, None, 7]


def test_values_are_bounded() -> None:
    async def ask() -> Poll:
        poll = _poll(Clock(), Clients())
        for number in range(30):
            await poll.get(_part(lambda _, n=number: n, about=str(number), kept_max=8), LONG_S)
        return poll

    poll = asyncio.run(ask())
    assert poll.costs()["number"].kept <= 9
    assert poll.peek("number", "29") == 29
    assert poll.peek("number", "0") is None


def test_too_much_at_once_is_refused() -> None:
    opened = threading.Event()

    async def ask() -> int:
        poll = _poll(Clock(), Clients())
        refused = 0
        for number in range(WAITING_MAX + 10):
            try:
                await poll.get(_part(lambda _: int(opened.wait(LONG_S)), about=str(number)), 0)
            except Busy:
                refused += 1
        opened.set()
        return refused

    assert asyncio.run(ask()) in (9, 10)  # one may be under way already


def test_nobody_watches_and_everything_goes() -> None:
    clients, others = Clients(), set(threading.enumerate())
    poll = _poll(Clock(), clients, idle_s=0.01)
    assert asyncio.run(poll.get(_part(lambda _: 7), LONG_S)).value == 7
    for thread in set(threading.enumerate()) - others:
        thread.join(LONG_S)
    assert (poll.threads, poll.peek("number")) == (0, None)
    assert [client.closed for client in clients.made] == [True]
    assert poll.costs()["number"].looks == 1
    assert asyncio.run(poll.get(_part(lambda _: 8), LONG_S)).value == 8  # and somebody comes again


def test_a_closed_lane_answers_what_waits_and_takes_nothing_more() -> None:
    ended = threading.Event()
    lane = Lane(Clients(), ended.set, LONG_S)
    opened = threading.Event()
    waiting = [lane.submit(lambda _: opened.wait(LONG_S)) for _ in range(3)]
    lane.close()
    with pytest.raises(Busy):
        lane.submit(lambda _: None)
    opened.set()
    assert [future.result(LONG_S) for future in waiting] == [True, True, True]
    assert ended.wait(LONG_S)
