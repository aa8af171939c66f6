"""Long work over records, which pauses about once a millisecond, ends where the process is about to."""

import gzip
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from logyard.broker.errors import ApiError
from logyard.broker.log import validation
from logyard.broker.records import batch, pauses
from logyard.broker.records.crc import crc32c

SMALLEST = b"\x0c\0\0\0\1\1\0"


def swelling(count: int) -> memoryview:
    """A valid head and so many records in one gzip stream, a hundredth of a byte each."""
    made = bytearray(batch.build([batch.Record(0, 1000, None, b"")], compression=1)[:61])
    made += gzip.compress(SMALLEST * count)
    for at, number in ((8, len(made) - 12), (23, count - 1), (57, count)):
        struct.pack_into(">i", made, at, number)
    struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return memoryview(made)


@pytest.fixture
def unpaused() -> Iterator[None]:
    yield
    pauses.use(pauses.go_on)


@pytest.mark.usefixtures("unpaused")
def test_what_a_thread_still_looks_into_does_not_keep_a_broker_from_ending() -> None:
    begun = threading.Event()

    def pause() -> None:
        begun.set()
        time.sleep(0.001)

    pauses.use(pause)
    problems: list[ApiError] = []

    def look() -> None:
        try:
            validation.validate(swelling(2_000_000), batch.Bounds(), 1000, piecewise=True)
        except ApiError as problem:
            problems.append(problem)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    assert begun.wait(20)
    pauses.end()
    thread.join(20)
    assert [problem.message for problem in problems] == ["the broker is stopping"]


@pytest.mark.usefixtures("unpaused")
@pytest.mark.parametrize(("batches", "records"), [(2_000, 1), (20, 1_000), (1, 20_000)])
def test_a_pause_is_for_a_millisecond_of_work_however_it_is_batched(batches: int, records: int) -> None:
    """It once came after each batch: logs of one record a batch took fifty times as long to load."""
    taken: list[None] = []
    made = batch.build([batch.Record(n, 1000, b"k", b"v") for n in range(records)])
    pauses.use(lambda: taken.append(None))

    def read() -> None:
        for _ in range(batches):
            assert len(batch.records(made)) == records

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(60)
    work = batches * (records + pauses.PER_BATCH)
    assert work / pauses.RECORDS / 2 - 1 <= len(taken) <= work / pauses.RECORDS + 1
