"""Who sends records that take long to look into: turns with others, and an end when the connection is lost."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from logyard.broker.errors import ApiError
from logyard.broker.server import record_threads
from logyard.broker.server.record_threads import AT_ONCE, RecordThreads


@dataclass
class Peer:
    is_gone: bool = False


@pytest.fixture
def threads() -> Iterator[RecordThreads]:
    made = RecordThreads(turn_s=0.002)
    yield made
    made.close()


async def test_a_short_one_does_not_wait_for_long_ones(threads: RecordThreads) -> None:
    ended = threading.Event()
    peers = [Peer() for _ in range(AT_ONCE + 2)]

    def long() -> None:
        while not ended.is_set():
            threads.pause()

    running = [threads.submit(long, peer) for peer in peers]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        assert await threads.submit(lambda: "short", Peer()) == "short"
    assert not any(each.done() for each in running)
    ended.set()
    await asyncio.gather(*running)


async def test_only_so_many_work_at_a_time(threads: RecordThreads) -> None:
    working, most = [0], [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(20):
            with lock:
                working[0] += 1
                most[0] = max(most[0], working[0])
            time.sleep(0.0005)
            with lock:
                working[0] -= 1
            threads.pause()

    await asyncio.gather(*(threads.submit(work, Peer()) for _ in range(4 * AT_ONCE)))
    assert most[0] <= AT_ONCE


async def test_little_work_is_not_paused_and_much_is(threads: RecordThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)

    def work(pieces: int, each_s: float) -> None:
        for _ in range(pieces):
            end = time.monotonic() + each_s
            while time.monotonic() < end:
                pass
            threads.pause()

    monkeypatch.setattr(record_threads, "WORK_S", 60.0)
    await threads.submit(lambda: work(50, 0.0), Peer())
    assert rests == []
    monkeypatch.setattr(record_threads, "WORK_S", 0.0005)
    await threads.submit(lambda: work(20, 0.001), Peer())
    assert rests == [record_threads.REST_S] * 20


async def test_one_small_work_after_the_other_rests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little each is: a thread that is never idle must not keep the interpreter."""
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    monkeypatch.setattr(record_threads, "REST_S", 10.0)  # no gap between two pieces is as long
    threads = RecordThreads(threads=1)

    def work() -> None:
        end = time.monotonic() + 0.4 * record_threads.WORK_S
        while time.monotonic() < end:
            pass
        threads.pause()

    for _ in range(30):
        await threads.submit(work, Peer())
    threads.close()
    assert len(rests) >= 10  # every third one at the latest


async def test_what_is_done_for_who_is_gone_ends(threads: RecordThreads) -> None:
    peer = Peer()

    def forever() -> None:
        while True:
            threads.pause()

    running = threads.submit(forever, peer)
    await asyncio.sleep(0.05)
    assert not running.done()
    peer.is_gone = True
    async with asyncio.timeout(20):
        with pytest.raises(ApiError):
            await running


async def test_what_was_asked_by_who_is_gone_is_not_begun(threads: RecordThreads) -> None:
    begun: list[int] = []
    with pytest.raises(ApiError):
        await threads.submit(lambda: begun.append(1), Peer(is_gone=True))
    assert begun == []
    assert await threads.submit(lambda: "another's", None) == "another's"
