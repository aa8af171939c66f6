"""Requests full of small elements: what they take together until they are answered, and who waits for whom."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives
from logyard.broker.server import large_requests
from logyard.broker.server.large_requests import LargeRequests
from logyard.broker.server.request import Request, Session

DESCRIBE_CONFIGS, VERSION = 32, 4
ELEMENT_BYTES = 236  # as it is counted


class Replicas:
    """Threads: `running` are at work, and `most` were at a time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def in_disk_thread(self, work: Callable[[], object]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        try:
            await asyncio.to_thread(work)
        finally:
            self.running -= 1


def request(elements: int, session: Session | None = None) -> Request:
    body = primitives.uvarint(elements + 1) + b"\2\1\0\0" * elements + b"\0\0\0"
    return Request(DESCRIBE_CONFIGS, VERSION, 1, "c", memoryview(body), session or Session(1, "PLAINTEXT", "h"))


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand elements of a client, twice as many of a broker; those of three clients are too much together."""
    monkeypatch.setattr(large_requests, "LARGE_BYTES", 1000)
    monkeypatch.setattr(large_requests, "CLIENT_BYTES", 10_000 * (ELEMENT_BYTES + 4))
    monkeypatch.setattr(large_requests, "BROKER_BYTES", 20_000 * (ELEMENT_BYTES + 4))
    monkeypatch.setattr(large_requests, "LARGE_TAKEN_BYTES", 10_000 * (ELEMENT_BYTES + 4))
    monkeypatch.setattr(large_requests, "SHORTER_TAKEN_BYTES", 1_000 * (ELEMENT_BYTES + 4))
    monkeypatch.setattr(large_requests, "SHORTER_AT_ONCE", 2)


async def decoded(large: LargeRequests, elements: int, *, waits: bool = True) -> int:
    """How many elements it has; what it took is free again."""
    message = await asyncio.ensure_future(large.decode(cast(Any, Replicas()), request(elements), waits=waits))
    await asyncio.sleep(0)
    assert large.used == 0
    return len(message.resources)


@pytest.mark.usefixtures("bounds")
async def test_one_that_would_take_too_much_is_refused() -> None:
    large = LargeRequests()
    assert await decoded(large, 9_000) == 9_000
    with pytest.raises(CorruptData, match="would take more than"):
        await decoded(large, 11_000)
    assert await decoded(large, 11_000, waits=False) == 11_000, "of another broker"
    with pytest.raises(CorruptData, match="would take more than"):
        await decoded(large, 21_000, waits=False)
    assert large.used == 0


@pytest.mark.usefixtures("bounds")
async def test_they_wait_until_others_are_answered() -> None:
    large, replicas = LargeRequests(), Replicas()
    begun: list[int] = []

    async def ask(number: int, stays: asyncio.Event, waits: bool = True, elements: int = 9_000) -> None:
        await large.decode(cast(Any, replicas), request(elements), waits=waits)
        begun.append(number)
        await stays.wait()

    ends = [asyncio.Event() for _ in range(6)]
    async with asyncio.timeout(20):
        asked = [asyncio.ensure_future(ask(number, ends[number])) for number in range(4)]
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(ask(4, ends[4], waits=False)), asyncio.ensure_future(ask(5, ends[5], True, 10))]
        while len(begun) < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert sorted(begun) == [0, 1, 4, 5], "neither a broker's nor a small one waits for clients"
        assert large.used > 3 * 9_000 * ELEMENT_BYTES
        for number in (0, 4):
            ends[number].set()
        while len(begun) < 5:
            await asyncio.sleep(0.01)
        assert begun[-1] == 2
        for each in ends:
            each.set()
        await asyncio.gather(*asked, *others)
        await asyncio.sleep(0)
    assert large.used == 0
    assert replicas.most <= 2, "one of clients and one of a broker"


@pytest.mark.usefixtures("bounds")
async def test_very_many_shorter_ones_take_no_more_together() -> None:
    """A thousand connections with less than a megabyte each, all decoded, would fill the memory as well."""
    large, replicas, stays = LargeRequests(), Replicas(), asyncio.Event()
    begun: list[int] = []

    async def ask(number: int, waits: bool = True) -> None:
        await large.decode(cast(Any, replicas), request(240), waits=waits)
        begun.append(number)
        await stays.wait()

    async with asyncio.timeout(20):
        asked = [asyncio.ensure_future(ask(number)) for number in range(40)]
        while large.used <= 1_000 * (ELEMENT_BYTES + 4) or replicas.running:
            await asyncio.sleep(0.01)
        asked.append(asyncio.ensure_future(ask(40, waits=False)))
        while 40 not in begun:
            await asyncio.sleep(0.01)
        assert len(begun) <= 7, "five fill the room; one more may be in work, and the broker's"
        assert replicas.most <= 3, "two of clients and one of a broker"
        stays.set()
        await asyncio.gather(*asked)
        await asyncio.sleep(0)
    assert large.used == 0
    assert sorted(begun) == list(range(41))


@pytest.mark.parametrize(("elements", "counted"), [(9_000, "COUNTED_S"), (200, "SHORTER_COUNTED_S")])
@pytest.mark.usefixtures("bounds")
async def test_those_that_are_not_answered_keep_others_out_for_a_time_only(
    monkeypatch: pytest.MonkeyPatch, elements: int, counted: str
) -> None:
    """A member of a group that never comes back, and a topic whose replicas are away, are waited for as asked for."""
    monkeypatch.setattr(large_requests, counted, 0.05)
    large, replicas, stays = LargeRequests(), cast(Any, Replicas()), asyncio.Event()
    begun: list[int] = []

    async def ask(number: int) -> None:
        await large.decode(replicas, request(elements), waits=True)
        begun.append(number)
        await stays.wait()

    async with asyncio.timeout(20):
        asked = [asyncio.ensure_future(ask(number)) for number in range(12)]
        while len(begun) < 12:
            await asyncio.sleep(0.01)
        stays.set()
        await asyncio.gather(*asked)
        await asyncio.sleep(0)
    assert large.used == 0


@pytest.mark.usefixtures("bounds")
async def test_one_whose_client_is_gone_is_not_decoded() -> None:
    session = Session(1, "PLAINTEXT", "h", is_gone=True)
    with pytest.raises(CorruptData, match="the client is gone"):
        await LargeRequests().decode(cast(Any, Replicas()), request(9_000, session), waits=True)


@pytest.mark.usefixtures("bounds")
async def test_who_waits_ends_with_its_client() -> None:
    """Both who waits for room, and who is behind that one; their requests' bytes are let go."""
    large, replicas = LargeRequests(), cast(Any, Replicas())
    stays, told = asyncio.Event(), list[int]()

    async def ask(session: Session) -> None:
        await large.decode(replicas, request(9_000, session), waits=True)
        await stays.wait()

    sessions = [Session(n, "PLAINTEXT", "h", gone=partial(told.append, n)) for n in range(5)]
    async with asyncio.timeout(20):
        asked = [asyncio.ensure_future(ask(session)) for session in sessions]
        while large.used < 2 * 9_000 * ELEMENT_BYTES:
            await asyncio.sleep(0.01)
        for number in (2, 3):
            sessions[number].gone()
        await asyncio.wait(asked[2:4])
        assert told == [2, 3], "who else is to be told is"
        assert [one.cancelled() for one in asked] == [False, False, True, True, False]
        sessions[0].gone()
        assert not asked[0].cancelling(), "it is decoded"
        stays.set()
        await asyncio.gather(*asked[:2], asked[4])
        await asyncio.sleep(0)
    assert large.used == 0
