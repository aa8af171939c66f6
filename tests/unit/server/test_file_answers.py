"""Answers whose records are in files: sent by the socket itself, behind nothing and before nothing else."""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logyard.broker.errors import StorageError
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.file_part import FilePart
from logyard.broker.server import file_answers
from logyard.broker.server.answer_writer import AnswerWriter
from logyard.broker.server.file_answers import FileAnswers
from logyard.broker.server.unread_answers import UnreadAnswers

SIZE = 3_000_000
DATA = os.urandom(SIZE)
SMALL = 20_000  # a socket takes it at once, whether or not its peer has read


class Log:
    """What a part knows of its log."""

    cuts = swaps = 0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = OsDisk().open(str(tmp_path_factory.mktemp("files") / "f"), create=True, write=True)
    made.write_at(DATA, 0)
    return made


def part(file: Any, position: int, size: int, log: Any = Log) -> FilePart:
    descriptor = file.sendable(size, position)
    if descriptor is None:
        pytest.skip("this file system does not tell what is in memory")
    return FilePart(log, file, descriptor, position, size)


def run_blocking(work: Callable[[], Any]) -> Any:
    return asyncio.get_running_loop().run_in_executor(None, work)


class Peer:
    """The other end of a TCP connection, which reads all in a thread once it is told to."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.theirs = socket.create_connection(listening.getsockname())
        self.ours, _ = listening.accept()
        listening.close()
        self.ours.setblocking(False)
        self.read = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while data := self.theirs.recv(1 << 20):
            self.read += data

    def begin(self) -> None:
        self._thread.start()

    def whole(self) -> bytes:
        """All that was sent, once our end is closed."""
        self.ours.close()
        self._thread.join(30)
        self.theirs.close()
        return bytes(self.read)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.ours.close()
    made.theirs.close()


places = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(lambda at: (at[0], min(at[1], SIZE - at[0])))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    answers=st.lists(st.lists(st.binary(max_size=3000) | places, max_size=4), max_size=3),
    reads=st.booleans(),
    factory=st.sampled_from([uvloop.new_event_loop, asyncio.new_event_loop]),
)
def test_every_byte_is_sent_once_and_in_order(file: Any, answers: list[Any], reads: bool, factory: Any) -> None:
    pieces = [each for answer in answers for each in answer]
    wanted = b"".join(each if isinstance(each, bytes) else DATA[each[0] : sum(each)] for each in pieces)
    peer = Peer()

    async def work() -> None:
        done = asyncio.Event()
        sending = FileAnswers(peer.ours, run_blocking, None, done.set, lambda error: pytest.fail(str(error)))
        if reads:
            peer.begin()
        for answer in answers:
            pieces = [each if isinstance(each, bytes) else part(file, *each) for each in answer]
            sending.send(pieces, sum(map(len, pieces)))
        if not reads:
            peer.begin()
        if sending.is_sending:
            assert sending.unsent > 0
            await asyncio.wait_for(done.wait(), 30)
        assert (sending.is_sending, sending.unsent, done.is_set()) == (False, 0, done.is_set())

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())
    assert peer.whole() == wanted


class Transport:
    """A transport that keeps what it gets."""

    def __init__(self, waiting: int = 0) -> None:
        self.waiting, self.aborted, self.closed, self.reads = waiting, False, False, True
        self.written = b""

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def writelines(self, pieces: Any) -> None:
        self.written += b"".join(pieces)

    def write(self, data: bytes) -> None:
        self.written += data

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Reading:
    """The connection whose answers are written."""

    peer, bytes_read = "p", 0

    def __init__(self, transport: Transport) -> None:
        self.abort = transport.abort


def writer(
    transport: Transport,
    sock: socket.socket,
    unread: UnreadAnswers | None = None,
    resumed: Callable[[], None] = lambda: None,
) -> AnswerWriter:
    made = AnswerWriter(Reading(transport), unread)
    made.open(cast(Any, transport))
    made.send_files_by(sock, run_blocking, resumed)
    return made


def test_the_socket_sends_it_and_the_transport_nothing(file: Any, peer: Peer) -> None:
    transport, unread = Transport(), UnreadAnswers(1 << 20, lambda: 0.0)
    made = writer(transport, peer.ours, unread)
    peer.begin()
    made.write([b"head", part(file, 10, SMALL), b"tail"])
    assert (transport.written, made.bytes_read) == (b"", SMALL + 8)
    assert unread.gauges()["answer_bytes_sent_from_files"] == SMALL
    assert peer.whole() == b"head" + DATA[10 : SMALL + 10] + b"tail"


def test_it_waits_behind_what_is_not_sent_yet(file: Any, peer: Peer) -> None:
    transport = Transport(waiting=5)
    writer(transport, peer.ours).write([b"head", part(file, 10, 100_000)])
    assert transport.written == b"head" + DATA[10:100_010]
    peer.begin()
    assert peer.whole() == b""


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():
            await asyncio.sleep(0.005)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Waiting:
    """A writer whose peer reads nothing yet, with more to send than the sockets take."""

    def __init__(self, file: Any, peer: Peer, log: Any = Log) -> None:
        self.descriptors = descriptors()
        self.transport, self.unread = Transport(), UnreadAnswers(1 << 20, lambda: 0.0)
        self.writer = writer(self.transport, peer.ours, self.unread, self.resume)
        self.resumed = 0
        self.wanted = b""
        while not self.writer.is_paused:
            self.writer.write([b"head", part(file, 10, SIZE - 20, log), b"tail"])
            self.wanted += b"head" + DATA[10:-10] + b"tail"

    def resume(self) -> None:
        self.resumed += 1
        self.writer.resume()


async def test_what_comes_later_waits_behind_it(file: Any, peer: Peer) -> None:
    waiting = Waiting(file, peer)
    made, read = waiting.writer, waiting.writer.bytes_read
    assert read < len(waiting.wanted)
    assert waiting.unread.size <= 8, "records in a file take no memory"
    made.write(b"small")
    made.write(b"er")
    made.flush()
    made.write([b"large", b"r"])
    made.write([b"head", part(file, 0, 300_000)])
    assert (waiting.resumed, made.is_paused, waiting.transport.written) == (0, True, b"")
    assert waiting.unread.size <= 8 + 7 + 6 + 4
    peer.begin()
    await until(lambda: waiting.resumed > 0)
    assert (waiting.resumed, made.is_paused, waiting.unread.size) == (1, False, 0)
    wanted = waiting.wanted + b"smallerlarger" + b"head" + DATA[:300_000]
    assert made.bytes_read == len(wanted)
    assert descriptors() == waiting.descriptors
    made.write(b"now")
    made.flush()
    assert waiting.transport.written == b"now"
    assert peer.whole() == wanted


async def test_a_writer_is_closed_when_the_peer_has_all(file: Any, peer: Peer) -> None:
    waiting = Waiting(file, peer)
    waiting.writer.write(b"last")
    waiting.writer.close()
    waiting.writer.write(b"never")
    await asyncio.sleep(0.05)
    assert (waiting.transport.closed, waiting.transport.reads, waiting.writer.is_closing) == (False, False, True)
    peer.begin()
    await until(lambda: waiting.transport.closed)
    assert waiting.resumed == 0
    assert peer.whole() == waiting.wanted + b"last"


@pytest.mark.parametrize("end", [AnswerWriter.abort, AnswerWriter.lost])
async def test_a_connection_that_ends_leaves_nothing_behind(
    file: Any, peer: Peer, end: Callable[[AnswerWriter], None]
) -> None:
    waiting = Waiting(file, peer)
    end(waiting.writer)
    peer.begin()
    await asyncio.sleep(0.1)
    assert (waiting.resumed, waiting.transport.written) == (0, b"")
    assert descriptors() == waiting.descriptors
    assert waiting.wanted.startswith(peer.whole())


async def test_a_peer_that_goes_while_it_is_waited_for(file: Any, peer: Peer) -> None:
    waiting = Waiting(file, peer)
    peer.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.theirs.close()
    await until(lambda: waiting.transport.aborted)
    assert descriptors() == waiting.descriptors - 1


async def test_a_log_that_is_cut_while_its_reader_is_slow(file: Any, peer: Peer) -> None:
    log = Log()
    waiting = Waiting(file, peer, log)
    log.cuts = 1
    peer.begin()
    await until(lambda: waiting.transport.aborted)
    read = peer.whole()
    assert waiting.wanted.startswith(read)
    assert len(read) < len(waiting.wanted)


class Dropped:
    """A file that is not in memory until it is warmed; `error` is what warming ends with."""

    def __init__(self, file: Any, error: Exception | None) -> None:
        self._file, self._error = file, error
        self.path, self.warmed = file.path, 0

    def sendable(self, size: int, position: int) -> int | None:
        return self._file.sendable(size, position) if self.warmed else None

    def warm(self, size: int, position: int) -> bool:
        assert threading.current_thread() is not threading.main_thread(), "it waits for the disk"
        if self._error is not None:
            raise self._error
        self.warmed += 1
        return True


@pytest.mark.parametrize("error", [None, StorageError("the disk fails")])
async def test_what_is_dropped_while_the_reader_is_slow_is_brought_back(
    file: Any, peer: Peer, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(file_answers, "BELIEVED_S", 0.0)
    waiting = Waiting(file, peer)
    again = Dropped(file, error)
    descriptor = file.sendable(SIZE, 0)
    waiting.writer.write([FilePart(Log, again, descriptor, 5, 300_000)])  # type: ignore[arg-type]  # all that it asks
    peer.begin()
    await until(lambda: waiting.resumed > 0 or waiting.transport.aborted)
    assert (waiting.resumed, waiting.transport.aborted, again.warmed) == (
        (1, False, 1) if error is None else (0, True, 0)
    )
    assert peer.whole() == waiting.wanted + (DATA[5:300_005] if error is None else b"")


async def test_an_unexpected_error_while_a_reader_is_slow_ends_the_connection_once(
    file: Any, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(file, peer)
    aborts: list[int] = []
    monkeypatch.setattr(waiting.transport, "abort", lambda: aborts.append(1))
    monkeypatch.setattr(FilePart, "send", lambda *_: 1 / 0)
    peer.begin()
    await until(lambda: bool(aborts))
    await asyncio.sleep(0.05)
    assert aborts == [1]
    assert descriptors() == waiting.descriptors


def test_a_log_that_was_cut_meanwhile_ends_the_connection(file: Any, peer: Peer) -> None:
    log, transport = Log(), Transport()
    answer: list[bytes | FilePart] = [b"head", part(file, 10, 100_000, log)]
    log.cuts = 1
    made = writer(transport, peer.ours)
    made.write(answer)
    assert transport.aborted
    log.cuts = 0
    made.write(answer)
    assert transport.written == b"", "nothing goes behind what was left out"
    peer.begin()
    assert peer.whole() == b"", "other records may be there now"


def test_a_peer_that_is_gone(file: Any, peer: Peer) -> None:
    transport = Transport()
    made = writer(transport, peer.ours)
    peer.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.theirs.close()
    for _ in range(3):
        made.write([b"head", part(file, 10, 100_000)])
    assert transport.aborted
    assert transport.written == b""
