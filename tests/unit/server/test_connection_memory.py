"""Connections that wait for memory, or for others to read: whoever goes is forgotten, and all memory comes back."""

import struct

from logyard.broker.server.admission import RequestMemory
from logyard.broker.server.unread_answers import UnreadAnswers
from tests.support.connected import OTHER, Server, frame, sized


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
