"""Who may connect: limits in all, by address and by second; and the sockets they are enforced on."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from logyard.broker.config.addresses import address_counts
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.model import Endpoint
from logyard.broker.security.rates import SampledRate
from logyard.broker.server.admission import (
    ADDRESSES_SWEPT_AT,
    UNLIMITED,
    Admission,
    Limits,
    ListenerLimits,
    limits_from,
)
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.host_names import HostNames
from logyard.broker.server.listener import Listener

PING = b"\0\0\0\5\0\1ping"[:9]


class Guest:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def admission(now: Callable[[], float] = lambda: 0.0, **limits: Any) -> Admission:
    return Admission(Limits(**limits), now)


def test_overrides_by_address_and_by_name() -> None:
    assert address_counts("10.0.0.1:5, [::1]:7,local-host.example:3") == {
        "10.0.0.1": 5,
        "::1": 7,
        "local-host.example": 3,
    }
    assert address_counts("") == {}
    for bad in ("10.0.0.1", "10.0.0.1:many", "10.0.0.1:-1", "10.0.0.1:²", "10.0.0.1:99999999999"):
        with pytest.raises(ValueError, match="address:count is expected"):
            address_counts(bad)
    for bad in (":5", "db..internal:5", f"{'a' * 64}:5", "-a:1", "böse:1", "a b:1", f"{'a.' * 130}:1"):
        with pytest.raises(ValueError, match="neither an address nor a host's name"):
            address_counts(bad)


async def test_a_name_stands_for_its_addresses_and_is_looked_up_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_loop = threading.get_ident()
    asked: list[tuple[str, int]] = []
    answers: dict[str, Any] = {"db": UnicodeError("label empty"), "web": frozenset({"10.0.0.7", "10.0.0.8"})}

    def look_up(name: str) -> frozenset[str]:
        asked.append((name, threading.get_ident()))
        answer = answers[name]
        if isinstance(answer, Exception):
            raise answer
        return cast("frozenset[str]", answer)

    monkeypatch.setattr("logyard.broker.server.admission.HostNames", partial(HostNames, look_up=look_up))
    doors = admission(per_ip_max=1, per_ip_overrides={"10.0.0.8": 5})
    config = BrokerConfig.parse("zookeeper.connect=z:1\nlog.dirs=/x\nmax.connections.per.ip=0\n")
    stored = {"max.connections.per.ip.overrides": "db:2,web:3,10.0.0.8:5"}
    doors.take_over(config.with_dynamic(stored))
    async with asyncio.timeout(10):
        while doors.refusal("10.0.0.7") is not None:
            await asyncio.sleep(0.001)
    assert doors.refusal("10.0.0.8") is None
    assert doors.refusal("10.0.0.9") is not None
    assert [name for name, _ in asked] == ["db", "web"], "one that is not known does not keep the others from it"
    assert on_the_loop not in {thread for _, thread in asked}
    doors.take_over(config)
    async with asyncio.timeout(10):
        while doors.refusal("10.0.0.7") is None:
            await asyncio.sleep(0.001)
    doors.close()


def test_limits_come_from_the_configuration_and_change_with_it() -> None:
    config = BrokerConfig.parse(
        "zookeeper.connect=z:1\nlog.dirs=/x\nmax.connections=9\nmax.connections.per.ip=2\n"
        "max.connections.per.ip.overrides=10.0.0.1:5\nmax.connection.creation.rate=7\nconnections.max.idle.ms=300\n"
        "socket.request.max.bytes=1000\nqueued.max.request.bytes=2000\n"
    )
    limits = limits_from(config)
    assert (limits.connections_max, limits.per_ip_max, limits.per_ip_overrides) == (9, 2, {"10.0.0.1": 5})
    assert (limits.creation_rate, limits.idle_ms, limits.frame_bytes_max, limits.memory_bytes) == (7, 300, 1000, 2000)
    limits.take_over(config.with_dynamic({"max.connections": "3", "max.connections.per.ip.overrides": ""}))
    assert (limits.connections_max, limits.per_ip_max, limits.per_ip_overrides) == (3, 2, {})


def test_a_listener_has_limits_of_its_own_or_the_broker_s() -> None:
    config = BrokerConfig.parse(
        "zookeeper.connect=z:1\nlog.dirs=/x\nlisteners=IN://127.0.0.1:1,OUT://127.0.0.1:2\n"
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\ninter.broker.listener.name=IN\n"
        "max.connections=9\nlistener.name.out.max.connections=4\nlistener.name.out.max.connection.creation.rate=5\n"
    )
    assert config.warnings == []
    limits = limits_from(config)
    assert limits.of("IN") == ListenerLimits(9, UNLIMITED)
    assert limits.of("OUT") == ListenerLimits(4, 5)
    limits.take_over(
        config.with_dynamic({"listener.name.out.max.connections": "2"}, {"listener.name.in.max.connections": "3"})
    )
    assert (limits.of("IN").connections_max, limits.of("OUT").connections_max) == (3, 2)


async def test_a_full_listener_keeps_waiting_who_comes_there_and_nobody_else() -> None:
    doors = admission(connections_max=9, listeners={"OUT": ListenerLimits(connections_max=1)})
    guest = Guest()
    doors.enter(guest, "a", "OUT", protected=False)
    async with asyncio.timeout(5):
        await doors.wait_for_room("IN", protected=False)
    waiting = asyncio.ensure_future(doors.wait_for_room("OUT", protected=False))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    doors.leave(guest)
    async with asyncio.timeout(5):
        await waiting


async def test_a_listener_s_own_limits_hold_for_brokers_too() -> None:
    own = ListenerLimits(connections_max=1, creation_rate=2)
    doors = admission(windows=2, window_ms=20, listeners={"IN": own}, creation_rate=1)
    for _ in range(4):
        assert doors.delay_ms("a", "IN", protected=True) == 0
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await doors.wait_for_room("IN", protected=True)
    assert loop.time() - begun >= 0.019
    begun = loop.time()
    await doors.wait_for_room("OUT", protected=False)
    assert loop.time() - begun < 0.015, "brokers' connections do not count for the whole broker's rate"
    doors.enter(Guest(), "a", "IN", protected=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await doors.wait_for_room("IN", protected=True)


def test_too_many_of_one_address_are_refused_unless_it_is_excepted() -> None:
    doors = admission(per_ip_max=1, per_ip_overrides={"b": 2, "c": 0})
    first = Guest()
    doors.enter(first, "a", "L", protected=False)
    assert doors.refusal("a") == "this address has 1 connections, the most allowed"
    doors.enter(Guest(), "b", "L", protected=False)
    assert doors.refusal("b") is None
    assert doors.refusal("c") is not None
    doors.leave(first)
    assert doors.refusal("a") is None
    doors.leave(first)  # twice does no harm
    assert len(doors) == 1


def test_every_protected_connection_takes_another_place() -> None:
    """A connection that is closed is there until its peer has read what it is owed."""
    doors = admission(connections_max=3)
    others = [Guest() for _ in range(3)]
    for guest in others:
        doors.enter(guest, "o", "L", protected=False)
    doors.enter(Guest(), "p", "L", protected=True)
    doors.enter(Guest(), "p", "L", protected=True)
    assert [guest.closed for guest in others] == [True, True, False]
    doors.leave(others[0])
    doors.leave(others[1])
    doors.enter(Guest(), "p", "L", protected=True)
    assert others[2].closed


def test_a_protected_connection_takes_the_place_of_the_longest_silent_other_one() -> None:
    doors = admission(connections_max=3)
    peer, old, young = Guest(), Guest(), Guest()
    doors.enter(peer, "p", "L", protected=True)
    doors.enter(old, "a", "L", protected=False)
    doors.enter(young, "b", "L", protected=False)
    doors.active(old)
    doors.enter(Guest(), "p", "L", protected=True)
    assert (peer.closed, old.closed, young.closed) == (False, False, True)


async def test_a_second_s_connections_are_spread_over_the_next_ones() -> None:
    doors = admission(creation_rate=2, windows=2, window_ms=20)
    for _ in range(4):
        assert doors.delay_ms("a", "L", protected=False) == 0
    begun = asyncio.get_running_loop().time()
    await doors.wait_for_room("L", protected=False)
    assert asyncio.get_running_loop().time() - begun >= 0.019, "at most one window at a time"
    begun = asyncio.get_running_loop().time()
    await doors.wait_for_room("L", protected=True)
    assert asyncio.get_running_loop().time() - begun < 0.015


def test_an_address_that_comes_too_often_is_kept_waiting_and_not_counted() -> None:
    now = [0.0]
    doors = admission(lambda: now[0])
    doors.ip_quotas = lambda: {"a": {"connection_creation_rate": "1"}, "<default>": {"connection_creation_rate": "2"}}
    assert [doors.delay_ms("a", "L", protected=False) for _ in range(10)] == [0] * 10
    assert doors.delay_ms("a", "L", protected=False) == 1000
    assert doors.delay_ms("a", "L", protected=False) == 1000, "a refused one does not make the wait longer"
    assert [doors.delay_ms("b", "L", protected=False) for _ in range(20)] == [0] * 20
    assert doors.delay_ms("b", "L", protected=False) == 500
    now[0] = 12_000
    assert doors.delay_ms("a", "L", protected=False) == 0


def test_very_many_addresses_are_not_all_looked_at_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that has very many addresses chooses how long such a look takes."""
    doors, looks = admission(lambda: 0.0), 0
    doors.ip_quotas = lambda: {"<default>": {"connection_creation_rate": "2"}}
    is_idle = SampledRate.is_idle

    def counted(rate: SampledRate, now_ms: float) -> bool:
        nonlocal looks
        looks += 1
        return is_idle(rate, now_ms)

    monkeypatch.setattr(SampledRate, "is_idle", counted)
    count = 4 * ADDRESSES_SWEPT_AT
    for number in range(2 * count):
        assert doors.delay_ms(str(number % count), "L", protected=False) == 0
    assert 0 < looks <= count


# On real sockets


class Echo:
    """A dispatcher that answers every frame with itself, size included."""

    def __init__(self) -> None:
        self.held: list[asyncio.Future[Any]] = []
        self.hold = False

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return False

    def __call__(self, session: Any, frame: memoryview) -> Any:
        answer = len(frame).to_bytes(4, "big") + bytes(frame)
        if not self.hold:
            return answer
        self.held.append(asyncio.get_running_loop().create_future())
        return self.held[-1]


@asynccontextmanager
async def listening(echo: Echo | None = None, **limits: Any) -> AsyncIterator[Listener]:
    loop = asyncio.get_running_loop()
    endpoint = Endpoint("L", "PLAINTEXT", "127.0.0.1", 0)
    listener = Listener(endpoint, Admission(Limits(**limits), lambda: loop.time() * 1000))
    await listener.serve(cast(Dispatcher, echo or Echo()))
    try:
        yield listener
    finally:
        await listener.close(grace_s=0.2)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ping(self) -> bool:
        """Whether a request is answered; False where the connection is closed instead."""
        try:
            self.writer.write(PING)
            async with asyncio.timeout(5):
                return await self.reader.readexactly(len(PING)) == PING
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        finally:
            await asyncio.sleep(0)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


async def connect(listener: Listener) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", listener.port))


async def test_one_connection_too_many_of_an_address_is_closed_at_once() -> None:
    async with listening(per_ip_max=1) as listener:
        first = await connect(listener)
        assert await first.ping()
        second = await connect(listener)
        assert await second.is_closed()
        assert await first.ping(), "the first is not harmed"
        first.close()
        second.close()
        async with asyncio.timeout(5):
            while listener.connection_count:
                await asyncio.sleep(0.005)
        third = await connect(listener)
        assert await third.ping()
        third.close()


async def test_over_the_broker_s_maximum_one_waits_until_another_leaves() -> None:
    async with listening(connections_max=1) as listener:
        first = await connect(listener)
        assert await first.ping()
        second = await connect(listener)  # into the kernel's queue
        waiting = asyncio.create_task(second.ping())
        await asyncio.sleep(0.03)
        assert not waiting.done()
        first.close()
        assert await waiting
        second.close()


async def test_a_raised_maximum_lets_in_who_waits() -> None:
    async with listening(connections_max=1) as listener:
        first, second = await connect(listener), await connect(listener)
        waiting = asyncio.create_task(second.ping())
        assert await first.ping()
        config = BrokerConfig.parse("zookeeper.connect=z:1\nlog.dirs=/x\nmax.connections=2\n")
        listener.admission.take_over(config)
        assert await waiting
        first.close()
        second.close()


async def test_a_silent_connection_is_closed_but_not_one_that_a_quota_keeps_waiting() -> None:
    async with listening(idle_ms=60) as listener:
        silent, muted = await connect(listener), await connect(listener)
        assert await silent.ping()
        assert await muted.ping()
        list(listener.connections)[1].mute(1000)
        muted.writer.write(PING)
        assert await silent.is_closed()
        async with asyncio.timeout(5):
            assert await muted.reader.readexactly(len(PING)) == PING
        assert await muted.is_closed(), "then it is as silent as any other"


async def test_closing_answers_what_is_owed_and_takes_nothing_new() -> None:
    echo = Echo()
    echo.hold = True
    async with listening(echo) as listener:
        peer, idle = await connect(listener), await connect(listener)
        peer.writer.write(PING + PING)
        async with asyncio.timeout(5):
            while not echo.held or listener.connection_count < 2:
                await asyncio.sleep(0.005)
        closing = asyncio.create_task(listener.close(grace_s=5))
        assert await idle.is_closed()
        echo.held[0].set_result(PING)
        async with asyncio.timeout(5):
            assert await peer.reader.read() == PING, "the answer, and then the end"
        await closing
        assert len(echo.held) == 1
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", listener.port))


async def test_a_connection_that_cannot_be_taken_does_not_end_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:
        with monkeypatch.context() as broken:
            broken.setattr("logyard.broker.server.listener.Connection", lambda *_: 1 / 0)
            unlucky = await connect(listener)
            assert await unlucky.is_closed()
        lucky = await connect(listener)
        assert await lucky.ping()
        lucky.close()
