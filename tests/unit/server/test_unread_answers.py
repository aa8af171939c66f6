"""Peers that do not read, or never come to an end: they are cut off, and what they leave unread has a bound."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from logyard.broker import tasks
from logyard.broker.model import Endpoint
from logyard.broker.server import listener as listener_module
from logyard.broker.server import unread_answers as answers_module
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.api_table import APIS
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.listener import Listener
from logyard.broker.server.unread_answers import UnreadAnswers

LARGE = 8 << 20
FETCH, HEARTBEAT, METADATA = 1, 12, 3


class Large:
    """Answers a Fetch with megabytes and everything else with four bytes."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.never: asyncio.Future[Any] | None = None

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return APIS[api_key].small_answer

    def __call__(self, session: Any, frame: memoryview) -> Any:
        key = int.from_bytes(frame[:2], "big")
        self.taken.append(key)
        if self.never is not None:
            return self.never
        body = bytes(LARGE if key == FETCH else 4)
        return [struct.pack(">i", len(body)), body]


@asynccontextmanager
async def listening(
    large: Large, answers: UnreadAnswers | None = None, idle_ms: int = 600_000
) -> AsyncIterator[Listener]:
    endpoint = Endpoint("L", "PLAINTEXT", "127.0.0.1", 0)
    listener = Listener(endpoint, Admission(Limits(idle_ms=idle_ms), lambda: 0.0), None, answers)
    await listener.serve(cast(Dispatcher, large))
    try:
        yield listener
    finally:
        await listener.close(grace_s=0.1)


def asked(key: int) -> bytes:
    return struct.pack(">ih", 2, key)


class Silent:
    """A client that sends and never reads."""

    def __init__(self, listener: Listener) -> None:
        self.socket = socket.create_connection(("127.0.0.1", listener.port))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def ask(self, key: int = FETCH) -> None:
        self.socket.sendall(asked(key))


async def until(done: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0.005)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int) -> int:
    writer.write(asked(key))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return len(await reader.readexactly(size))


async def test_who_stops_reading_is_cut_off_after_the_idle_time() -> None:
    large = Large()
    async with listening(large, idle_ms=200) as listener:
        silent = Silent(listener)
        silent.ask()
        await until(lambda: large.taken)
        await until(lambda: not listener.connection_count)
        silent.socket.close()


async def test_who_reads_slowly_is_not_cut_off() -> None:
    large = Large()
    async with listening(large, idle_ms=1000) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        writer.write(asked(FETCH))
        begun = asyncio.get_running_loop().time()
        for _ in range(20):
            await reader.readexactly(LARGE // 20)
            await asyncio.sleep(0.1)
        await reader.readexactly(4 + LARGE % 20)
        assert asyncio.get_running_loop().time() - begun > 1.5
        writer.close()


async def test_a_closed_connection_does_not_wait_for_who_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "CLOSING_S", 0.2)
    large = Large()
    async with listening(large) as listener:
        silent = Silent(listener)
        silent.ask()
        await until(lambda: large.taken)
        (connection,) = listener.connections
        connection.close()  # as a bad frame would
        await asyncio.sleep(0.05)
        assert listener.connection_count == 1
        await until(lambda: not listener.connection_count)
        silent.socket.close()


async def test_a_request_that_never_ends_is_no_sign_of_life() -> None:
    async with listening(Large(), idle_ms=200) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(struct.pack(">i", 1000))

        async def drip() -> None:
            while listener.connection_count or not opened:
                writer.write(b"x")
                await asyncio.sleep(0.01)

        await until(lambda: listener.connection_count)
        opened = True
        async with asyncio.timeout(20):
            await drip()
        writer.close()


async def test_a_half_open_peer_that_waits_for_an_answer_is_closed_as_in_kafka() -> None:
    large = Large()
    large.never = asyncio.get_running_loop().create_future()
    async with listening(large, idle_ms=100) as listener:
        silent = Silent(listener)
        silent.ask()
        await until(lambda: large.taken)
        await until(lambda: not listener.connection_count)
        silent.socket.close()


async def test_unread_answers_have_a_bound_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "LOOK_S", 0.02)
    monkeypatch.setattr(answers_module, "STALLED_S", 0.4)
    large = Large()
    answers = UnreadAnswers(LARGE, asyncio.get_running_loop().time)
    async with listening(large, answers) as listener:
        silent = [Silent(listener) for _ in range(6)]
        for each in silent:
            each.ask()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: answers.waiting)
        assert answers.size <= 4 * LARGE
        assert large.taken.count(FETCH) <= 4, "the others' are not begun"
        async with asyncio.timeout(10):
            assert await ask(reader, writer, HEARTBEAT) == 4, "what is small goes on"
        assert answers.waiting, "still"
        async with asyncio.timeout(20):
            assert await ask(reader, writer, FETCH) == LARGE, "who stood still was cut off for it"
        assert answers.cut_off >= 1
        await until(lambda: large.taken.count(FETCH) == 7)
        assert answers.gauges()["connections_cut_off_unread"] == answers.cut_off
        for each in silent:
            each.socket.close()
        writer.close()
        await until(lambda: not listener.connection_count)
        assert (answers.size, answers.waiting) == (0, 0)


async def test_replication_goes_on_where_clients_have_to_wait() -> None:
    large = Large()
    answers = UnreadAnswers(LARGE // 8, asyncio.get_running_loop().time)
    async with listening(large, answers) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await ask(reader, writer, HEARTBEAT) == 4
        for connection in listener.connections:
            connection.session.is_broker = True
        silent = Silent(listener)
        silent.ask()
        await until(lambda: answers.is_full)
        async with asyncio.timeout(10):
            assert await ask(reader, writer, FETCH) == LARGE
        silent.socket.close()
        writer.close()


async def test_cold_reads_count_before_they_are_answers() -> None:
    answers = UnreadAnswers(100, asyncio.get_running_loop().time)
    answers.loading(150)
    assert answers.is_full
    let_in = []
    answers.wait(lambda: let_in.append(True))
    answers.loading(-150)
    assert let_in
    assert not answers.is_full


class Peer:
    """A connection whose request waits, and whose peer then reads nothing of an answer of one byte."""

    peer, bytes_read = "peer", 0

    def __init__(self, answers: UnreadAnswers, went_on: "list[Peer]") -> None:
        self.answers, self.went_on = answers, went_on
        answers.wait(self.go_on)

    def go_on(self) -> None:
        self.went_on.append(self)
        self.answers.add(self, 1)

    def abort(self) -> None: ...


def test_thousands_wait_and_their_answers_are_not_read() -> None:
    answers = UnreadAnswers(10_000, lambda: 0.0)
    answers.loading(9_999)
    went_on: list[Peer] = []
    waiting = [Peer(answers, went_on) for _ in range(5_000)]
    answers.loading(-9_000)
    assert went_on == waiting
    assert (answers.size, answers.waiting, answers.is_full) == (5_999, 0, False)


def test_one_that_fails_keeps_no_other_from_going_on() -> None:
    answers = UnreadAnswers(10_000, lambda: 0.0)
    answers.loading(9_999)
    went_on: list[int] = []
    for number in range(3):
        answers.wait(partial(went_on.append, number) if number != 1 else partial(divmod, 1, 0))
    before = tasks.failures["a connection that goes on"]
    answers.loading(-9_000)
    assert (went_on, answers.waiting) == ([0, 2], 0)
    assert tasks.failures["a connection that goes on"] == before + 1


async def test_thousands_that_go_on_leave_others_a_turn() -> None:
    seconds = 0.0
    answers = UnreadAnswers(10_000, lambda: seconds)
    answers.loading(9_999)
    in_turns = [0]

    def go_on() -> None:
        nonlocal seconds
        seconds += 0.001
        in_turns[-1] += 1

    waiting = [partial(go_on) for _ in range(1000)]
    for each in waiting:
        answers.wait(each)
    answers.loading(-9_000)
    answers.forget(waiting[-1])
    while answers.waiting:
        in_turns.append(0)
        await asyncio.sleep(0)
    assert sum(in_turns) == 999
    assert max(in_turns) < 20
    answers.wait(waiting[0])
    answers.loading(-1)
    assert not answers.waiting, "there is room, as before"


def test_no_bound() -> None:
    answers = UnreadAnswers(-1, lambda: 0.0)
    answers.size = 1 << 40
    assert not answers.is_full
