"""One connection: frames out of any splitting, answers in order, one request at a time but for Produce."""

import asyncio
import random
import struct
from itertools import pairwise

import pytest

from logyard.broker.server.answer_writer import TOGETHER_BYTES
from logyard.broker.server.connection import (
    AHEAD_BYTES_MAX,
    BUFFER_BYTES_BUSY,
    BUFFER_BYTES_KEPT,
    BUFFER_BYTES_MIN,
    PIPELINE_MAX,
)
from logyard.broker.server.unread_answers import AT_ONCE_S
from tests.support.connected import OTHER, PRODUCE, Server, frame, sized
from tests.support.virtual_loop import run_virtually


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


async def test_small_produce_requests_start_while_an_earlier_one_is_verified() -> None:
    server = Server()
    server.hold = True
    session = server.connection.session
    first, small, large, last = (
        frame(PRODUCE, bytes([n]) * size) for n, size in enumerate((10, 10, AHEAD_BYTES_MAX, 10))
    )
    server.feed(sized(first))
    session.last_append = asyncio.get_running_loop().create_future()
    server.feed(sized(small, large, last))
    assert server.frames == [first, small], "a large one would be copied"
    session.last_append = None
    session.go_on()
    assert server.frames == [first, small, large, last]


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


def test_connections_that_have_nothing_unread_share_buffers() -> None:
    """A silent peer holds no buffer; half a request is kept for its connection, whoever receives meanwhile."""
    first, halves, last = Server(), Server(), Server()
    first.feed(sized(frame(OTHER, b"one")))
    used = first.connection.get_buffer(-1).obj
    first.connection.buffer_updated(0)  # a receive of nothing
    whole = frame(OTHER, b"two" * 100)
    halves.feed(sized(whole)[:50])
    assert halves.connection.get_buffer(-1).obj is used
    last.feed(sized(frame(OTHER, b"three" * 1000)))
    assert last.connection.get_buffer(-1).obj is not used
    halves.feed(sized(whole)[50:])
    assert halves.frames == [whole]
    assert [server.wire.written for server in (first, last)] == [first.frames, last.frames]


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


async def test_others_have_a_turn_between_many_small_requests() -> None:
    server = Server()
    frames = [frame(OTHER, bytes([n])) for n in range(200)]
    server.frame_takes_s = AT_ONCE_S / 4
    server.feed(sized(*frames))
    seen = [len(server.frames)]
    while len(server.frames) < len(frames):
        await asyncio.sleep(0)
        seen.append(len(server.frames))
    assert max(now - before for before, now in pairwise([0, *seen])) <= 25
    assert server.frames == frames
    assert b"".join(server.wire.written) == b"".join(frames)
    server.feed(sized(frames[0]))
    assert len(server.frames) == 201, "the next turn is a turn of its own"


def test_a_peer_that_is_muted_between_its_turns_stays_muted() -> None:
    async def history() -> None:
        server = Server()
        frames = [frame(OTHER, bytes([n])) for n in range(100)]
        server.frame_takes_s = AT_ONCE_S
        server.feed(sized(*frames))
        server.connection.session.mute(20)
        started = len(server.frames)
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(server.frames) == started
        await asyncio.sleep(0.019)
        assert len(server.frames) == started
        await asyncio.sleep(1.0)
        assert len(server.frames) == len(frames)
        server.connection.drain()
        assert server.wire.closed

    run_virtually(history())


async def test_what_waits_for_its_turn_is_not_started_after_the_end() -> None:
    server, other = Server(), Server()
    frames = [frame(OTHER, bytes([n])) for n in range(100)]
    for each in (server, other):
        each.frame_takes_s = AT_ONCE_S
        each.feed(sized(*frames))
    started = len(server.frames)
    assert started < len(frames)
    server.connection.drain()
    other.connection.connection_lost(None)
    await asyncio.sleep(0.01)
    assert [len(server.frames), len(other.frames)] == [started, started]
