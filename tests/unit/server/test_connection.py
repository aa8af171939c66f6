"""One connection: frames out of any splitting, answers in order, one request at a time but for Produce."""

import asyncio
import random
import struct
from typing import Any

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.server.admission import RequestMemory
from logyard.broker.server.answer_writer import TOGETHER_BYTES
from logyard.broker.server.api_table import APIS
from logyard.broker.server.connection import (
    BUFFER_BYTES_BUSY,
    BUFFER_BYTES_KEPT,
    BUFFER_BYTES_MIN,
    PIPELINE_MAX,
    Connection,
)
from logyard.broker.server.request import Encoded, Session
from logyard.broker.server.unread_answers import UnreadAnswers

PRODUCE, OTHER = 0, 3


class Wire:
    """The transport's twin: what was written, and whether reading is on."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.written.append(b"".join(bytes(p) for p in pieces))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 4000)


class Server:
    """Answers every frame with itself, at once or when told to."""

    def __init__(
        self, frame_bytes_max: int = 1 << 24, memory: RequestMemory | None = None, answers: UnreadAnswers | None = None
    ) -> None:
        self.frames: list[bytes] = []
        self.held: dict[bytes, asyncio.Future[Encoded]] = {}
        self.hold = False
        self.pieces = b""
        self.wire = Wire()
        self.connection = Connection(
            self,
            "L",
            1,
            frame_bytes_max,
            lambda c: True,
            lambda c: None,
            memory,
            answers,
        )
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    def may_pipeline(self, api_key: int) -> bool:
        return api_key == PRODUCE

    def has_small_answer(self, api_key: int) -> bool:
        return api_key in APIS and APIS[api_key].small_answer

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]":
        taken = bytes(frame)
        self.frames.append(taken)
        if taken[2:] == b"refuse":
            raise CorruptData("refused")
        if taken[2:] == b"mistake":
            raise RuntimeError("nobody thought of it")
        if taken[2:] == b"no answer":
            return None
        if not self.hold:
            return [taken[:3], taken[3:]] if taken == self.pieces else taken
        self.held[taken] = asyncio.get_running_loop().create_future()
        return self.held[taken]

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            buffer = self.connection.get_buffer(-1)
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            self.connection.buffer_updated(taken)
            view = view[taken:]

    async def answer(self, frame: bytes) -> None:
        self.held[frame].set_result(frame)
        await asyncio.sleep(0)


def frame(key: int, body: bytes) -> bytes:
    return struct.pack(">h", key) + body


def sized(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(f)) + f for f in frames)


@pytest.mark.parametrize("seed", range(20))
async def test_any_splitting_gives_the_same_frames(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 1, 50, 5000, 70_000, 300_000]) for _ in range(40)]
    frames = [frame(OTHER, bytes([n % 251]) * size) for n, size in enumerate(sizes)]
    data = sized(*frames)
    server = Server()
    at = 0
    while at < len(data):
        step = chance.choice([1, 3, 4, 100, 65_536, 500_000])
        server.feed(data[at : at + step])
        at += step
    assert server.frames == frames
    assert b"".join(server.wire.written) == b"".join(frames)


async def test_one_request_at_a_time_and_answers_in_order() -> None:
    server = Server()
    first, second = frame(OTHER, b"first"), frame(OTHER, b"second")
    server.hold = True
    server.feed(sized(first, second))
    assert server.frames == [first]
    await server.answer(first)
    assert server.frames == [first, second]
    await server.answer(second)
    assert server.wire.written == [first, second]


async def test_produce_requests_overlap_but_are_answered_in_order() -> None:
    server = Server()
    server.hold = True
    produces = [frame(PRODUCE, bytes([n])) for n in range(3)]
    other = frame(OTHER, b"x")
    server.feed(sized(*produces, other))
    assert server.frames == produces
    await server.answer(produces[2])
    await server.answer(produces[1])
    assert server.wire.written == []
    await server.answer(produces[0])
    assert b"".join(server.wire.written) == b"".join(produces)
    assert server.frames == [*produces, other]


def test_small_answers_of_one_turn_go_out_in_one_write() -> None:
    server = Server()
    small = [frame(OTHER, bytes([n]) * 50) for n in range(20)]
    server.feed(sized(*small))
    assert server.wire.written == [b"".join(small)]
    server.feed(sized(small[0]))
    assert server.wire.written[1:] == [small[0]]


def test_a_write_holds_no_more_than_a_bounded_number_of_bytes() -> None:
    server = Server()
    answers = [frame(OTHER, bytes([n]) * 10_000) for n in range(6)]
    server.feed(sized(*answers))
    assert b"".join(server.wire.written) == b"".join(answers)
    assert max(map(len, server.wire.written)) <= TOGETHER_BYTES + 10_002


def test_an_answer_in_pieces_comes_after_the_small_ones_before_it() -> None:
    server = Server()
    server.pieces = frame(OTHER, b"pieces")
    frames = [frame(OTHER, b"one"), server.pieces, frame(OTHER, b"two")]
    server.feed(sized(*frames))
    assert server.wire.written == frames


def test_what_was_answered_is_sent_before_a_bad_frame_closes_the_connection() -> None:
    server = Server()
    good = frame(OTHER, b"good")
    server.feed(sized(good, frame(OTHER, b"refuse")))
    assert server.wire.written == [good]
    assert server.wire.closed


async def test_an_answer_that_comes_after_the_close_is_dropped() -> None:
    server = Server()
    late = frame(OTHER, b"late")
    server.hold = True
    server.feed(sized(late))
    server.connection.close()
    await server.answer(late)
    assert server.wire.closed
    assert server.wire.written == []


def test_a_peer_that_fills_the_buffer_gets_a_larger_one_up_to_a_bound() -> None:
    server = Server()
    data = sized(frame(OTHER, b"x" * 1000)) * 2000
    sizes = []
    while data:
        buffer = server.connection.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        server.connection.buffer_updated(taken)
        data = data[taken:]
        sizes.append(taken)
    assert len(server.frames) == 2000
    assert sizes[0] == BUFFER_BYTES_MIN
    assert BUFFER_BYTES_BUSY // 2 < max(sizes) <= BUFFER_BYTES_BUSY


async def test_overlap_is_bounded() -> None:
    server = Server()
    server.hold = True
    produces = [frame(PRODUCE, struct.pack(">i", n)) for n in range(PIPELINE_MAX + 5)]
    server.feed(sized(*produces))
    assert len(server.frames) == PIPELINE_MAX
    await server.answer(produces[0])
    assert len(server.frames) == PIPELINE_MAX + 1


async def test_a_peer_that_sends_on_while_it_waits_is_held_and_resumed() -> None:
    server = Server()
    server.hold = True
    first = frame(OTHER, b"first")
    more = [frame(OTHER, bytes([n]) * 10_000) for n in range(8)]
    server.feed(sized(first, *more))
    assert not server.wire.reading
    server.hold = False
    await server.answer(first)
    assert server.wire.reading
    assert server.frames == [first, *more]


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
async def test_a_frame_of_impossible_size_closes_the_connection_before_memory_is_taken(size: int) -> None:
    server = Server(frame_bytes_max=1000)
    server.feed(struct.pack(">i", size) + b"abc")
    assert server.wire.closed
    assert server.frames == []


async def test_corrupt_request_closes_this_connection_only() -> None:
    server = Server()
    server.feed(sized(frame(OTHER, b"refuse")))
    assert server.wire.closed


async def test_no_answer_for_acks_0() -> None:
    server = Server()
    server.feed(sized(frame(PRODUCE, b"no answer")))
    assert server.wire.written == []


def memory(server: Server) -> int:
    """The size of the buffer that the connection receives into."""
    buffer = server.connection.get_buffer(-1).obj
    assert isinstance(buffer, bytearray)
    return len(buffer)


async def test_memory_shrinks_after_a_large_frame() -> None:
    server = Server()
    large = sized(frame(OTHER, b"x" * (3 * BUFFER_BYTES_KEPT)))
    server.feed(large[:-1])
    assert memory(server) > 2 * BUFFER_BYTES_KEPT
    server.feed(large[-1:])
    assert memory(server) <= BUFFER_BYTES_KEPT


async def test_drain_answers_what_is_owed_and_takes_nothing_new() -> None:
    server = Server()
    server.hold = True
    first = frame(OTHER, b"first")
    server.feed(sized(first))
    server.connection.drain()
    assert not server.wire.closed
    server.feed(sized(frame(OTHER, b"late")))
    await server.answer(first)
    assert server.wire.written == [first]
    assert server.frames == [first]
    assert server.wire.closed


async def test_a_muted_connection_answers_at_once_and_takes_nothing_until_its_time_is_up() -> None:
    server = Server()
    first, second = frame(OTHER, b"first"), frame(OTHER, b"second")
    server.connection.session.mute(20)
    server.feed(sized(first, second))
    assert server.frames == []
    server.connection.session.mute(5)  # shorter: what runs already stays
    assert server.connection.busy, "who is kept waiting is not idle"
    async with asyncio.timeout(5):
        while not server.frames:
            await asyncio.sleep(0.001)
    assert server.frames == [first, second]
    assert not server.connection.busy


async def test_an_answer_that_is_owed_goes_out_while_muted() -> None:
    server = Server()
    server.hold = True
    first, second = frame(OTHER, b"first"), frame(OTHER, b"second")
    server.feed(sized(first, second))
    server.connection.session.mute(60_000)
    await server.answer(first)
    assert server.wire.written == [first]
    assert server.frames == [first]
    server.connection.connection_lost(None)


async def test_a_muted_peer_is_stopped_before_its_requests_fill_more_than_the_buffer() -> None:
    server = Server()
    server.connection.session.mute(60_000)
    small = sized(frame(OTHER, b"x" * 1000))
    fed = 0
    while server.wire.reading:
        server.feed(small)
        fed += len(small)
    assert fed <= BUFFER_BYTES_MIN
    assert server.frames == []
    server.connection.connection_lost(None)


def test_large_requests_wait_for_the_memory_that_others_have_and_then_go_on() -> None:
    memory = RequestMemory(200_000)
    big = frame(OTHER, b"x" * 250_000)
    one, two = Server(memory=memory), Server(memory=memory)
    one.feed(sized(big)[:1000])
    assert memory.left < 0, "granted while anything is left"
    two.feed(sized(big)[:1000])
    assert not two.wire.reading
    assert two.connection.busy
    small = Server(memory=memory)
    small.feed(sized(frame(OTHER, b"small")))
    assert small.frames, "small requests need none"
    one.feed(sized(big)[1000:])
    assert one.frames == [big]
    assert two.wire.reading
    two.feed(sized(big)[1000:] + sized(frame(OTHER, b"next")))
    assert two.frames == [big, frame(OTHER, b"next")]
    assert memory.left == 200_000


def test_memory_of_a_connection_that_breaks_comes_back() -> None:
    memory = RequestMemory(100_000)
    one, two = Server(memory=memory), Server(memory=memory)
    one.feed(sized(frame(OTHER, b"x" * 250_000))[:1000])
    two.feed(sized(frame(OTHER, b"y" * 250_000))[:1000])
    one.connection.connection_lost(None)
    assert two.wire.reading
    two.connection.connection_lost(None)
    assert memory.left == 100_000


def test_a_closed_connection_gives_no_memory_back_that_it_never_had() -> None:
    memory = RequestMemory(100_000)
    one, two = Server(memory=memory), Server(memory=memory)
    one.feed(sized(frame(OTHER, b"x" * 250_000))[:1000])
    two.feed(sized(frame(OTHER, b"y" * 250_000))[:1000])
    two.connection.close()
    one.connection.connection_lost(None)
    two.connection.connection_lost(None)
    assert memory.left == 100_000


def test_who_waits_for_memory_and_goes_is_forgotten() -> None:
    memory = RequestMemory(100_000)
    one = Server(memory=memory)
    one.feed(sized(frame(OTHER, b"x" * 250_000))[:1000])
    for _ in range(10):
        other = Server(memory=memory)
        other.feed(sized(frame(OTHER, b"y" * 250_000))[:1000])
        other.connection.connection_lost(None)
    assert memory.waiting == 0


async def test_who_waits_for_others_to_read_and_goes_is_forgotten() -> None:
    answers = UnreadAnswers(1000, lambda: 0.0)
    answers.loading(1000)
    for _ in range(10):
        server = Server(answers=answers)
        server.feed(sized(frame(OTHER, b"x")))
        assert server.frames == []
        server.connection.connection_lost(None)
    assert answers.waiting == 0
    answers.loading(-1000)


async def test_a_mistake_over_one_connections_request_is_not_anothers_trouble() -> None:
    answers = UnreadAnswers(1000, lambda: 0.0)
    answers.loading(1000)
    bad, good = Server(answers=answers), Server(answers=answers)
    bad.feed(sized(frame(OTHER, b"mistake")))
    good.feed(sized(frame(OTHER, b"x")))
    answers.loading(-1000)  # called by whoever has read: a cold read, another connection
    assert bad.wire.closed
    assert good.frames == [frame(OTHER, b"x")]


def test_a_size_over_the_limit_closes_before_memory_is_asked_for() -> None:
    memory = RequestMemory(100_000)
    server = Server(frame_bytes_max=1 << 20, memory=memory)
    server.feed(struct.pack(">i", (1 << 20) + 1) + b"x" * 100)
    assert server.wire.closed
    assert memory.left == 100_000
