"""What threads take together while they unpack what a small request made large."""

import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
import zstandard

from logyard.broker.records import batch, compression, legacy, message_set, pauses, room
from logyard.broker.records.batch import Record
from logyard.broker.records.decompression_stream import pieces
from logyard.broker.records.reader import outlines, whole_records
from logyard.broker.records.room import ROOM, Room

MB = 1024 * 1024
LARGE = 16 * MB


@pytest.fixture
def turns() -> Iterator[None]:
    """This process has threads that take turns."""
    pauses.use(lambda: time.sleep(0.001))
    yield
    pauses.use(pauses.go_on)


def zstd(window_log: int) -> bytes:
    """32 MiB of zeros, of whose unpacking the window is the largest part."""
    wanted = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    packer = zstandard.ZstdCompressor(compression_params=wanted).compressobj()
    return b"".join([*(packer.compress(bytes(MB)) for _ in range(32)), packer.flush()])


def taken_by(stream: Iterator[object]) -> int:
    """The most room that was taken while it was read; all of it is given back, at its end and where it is given up."""
    most = 0
    for _ in stream:
        most = max(most, ROOM.used)
    assert ROOM.used == 0
    return most


def test_a_large_window_takes_room_and_a_usual_one_does_not() -> None:
    large, usual = zstd(27), zstd(21)
    assert len(large) < 4096
    assert taken_by(pieces(compression.ZSTD, memoryview(large))) == 128 * MB
    assert taken_by(pieces(compression.ZSTD, memoryview(usual))) == 0
    assert taken_by(pieces(compression.ZSTD, memoryview(usual + large))) == 128 * MB, "of any frame"
    given_up = pieces(compression.ZSTD, memoryview(large))
    next(given_up)
    assert isinstance(given_up, Generator)
    given_up.close()
    assert ROOM.used == 0


def test_a_snappy_block_takes_room_and_has_a_bound() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(LARGE)))
    assert taken_by(pieces(compression.SNAPPY, memoryview(block))) == 2 * LARGE
    promised = b"\xff\xff\xff\xff\x0f" + bytes(200 * MB)  # 4 GiB in 200 MB
    with pytest.raises(compression.BrokenStream, match="says that it holds"):
        next(pieces(compression.SNAPPY, memoryview(promised)))


def test_a_large_record_takes_room_where_it_is_held() -> None:
    made = batch.build([Record(n, 1000, None, bytes(LARGE)) for n in range(2)], compression=compression.GZIP)
    view = memoryview(made)
    header = batch.parse_header(view)
    assert taken_by(whole_records(view, header)) > 3 * LARGE
    assert taken_by(outlines(view, header)) == 0


def test_a_large_message_of_a_wrapper_takes_room() -> None:
    some = [Record(n, 1000, None, bytes(LARGE)) for n in range(2)]
    wrapped = message_set.wrapper(some, compression.GZIP, 1, 0)
    assert taken_by(legacy.iter_legacy(wrapped)) > 4 * LARGE


def test_threads_wait_for_room(turns: None) -> None:
    shared, most = Room(100 * MB), []

    def work(size: int) -> None:
        with shared.taken(size):
            most.append(shared.used)
            time.sleep(0.01)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [40 * MB] * 12 + [MB] * 12))
        assert max(most) == 80 * MB
        list(pool.map(work, [200 * MB] * 2))
    assert max(most) == 200 * MB, "alone"
    assert shared.used == 0


def test_a_thread_whose_room_another_gives_back_waits_again() -> None:
    """An exception takes a stream that is half read along, to the event loop."""
    shared = Room(100 * MB)
    rested = threading.Event()

    def begun() -> Generator[None]:
        with shared.taken(60 * MB):
            yield

    def used() -> int:
        with shared.taken(60 * MB):
            return shared.used

    pauses.use(rested.set)
    try:
        with ThreadPoolExecutor(1) as pool:
            given_up = begun()
            pool.submit(next, given_up).result(10)
            given_up.close()
            assert shared.used == 0
            with shared.taken(60 * MB):
                waiting = pool.submit(used)
                while not (rested.is_set() or waiting.done()):
                    time.sleep(0.001)
            assert waiting.result(10) == 60 * MB
    finally:
        pauses.use(pauses.go_on)


def test_who_must_not_wait_does_not(turns: None, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Room(100 * MB)
    with shared.taken(90 * MB), shared.taken(90 * MB):
        assert shared.used == 180 * MB, "the event loop"
    has, goes_on = threading.Event(), threading.Event()

    def twice() -> int:
        with shared.taken(50 * MB):
            has.set()
            goes_on.wait(10)
            with shared.taken(90 * MB):
                return shared.used

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(twice)
        assert has.wait(10)
        goes_on.set()
        assert one.result(10) == 140 * MB, "it has room that others may wait for"
        monkeypatch.setattr(room, "WAIT_S", 0.01)
        with shared.taken(90 * MB):
            pool.submit(lambda: shared.taken(90 * MB).__enter__()).result(10)
