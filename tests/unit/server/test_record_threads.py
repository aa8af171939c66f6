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


def busy(seconds: float) -> None:
    """Work for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


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
            busy(each_s)
            threads.pause()

    monkeypatch.setattr(record_threads, "WORK_S", 60.0)
    await threads.submit(lambda: work(50, 0.0), Peer())
    assert rests == []
    monkeypatch.setattr(record_threads, "WORK_S", 0.0005)
    await threads.submit(lambda: work(20, 0.001), Peer())
    assert len(rests) >= 20


class Seen:
    """What a thread looks at when it rests: the loop's CPU time and its own preemptions, and how long it rested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rests: list[float] = []
        self.loop_works = False
        self.is_preempted = False
        self.loop_cpu_s, self.preemptions = 1.5, 3
        monkeypatch.setattr(time, "sleep", self._sleep)
        self.threads = RecordThreads(loop_cpu_s=lambda: self.loop_cpu_s, preemptions=lambda: self.preemptions)

    def work(self, pieces: int = 4) -> None:
        """Pause that often, each time after enough work for a rest."""
        for _ in range(pieces):
            busy(record_threads.WORK_S)
            self.preemptions += self.is_preempted
            self.threads.pause()

    def _sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.loop_cpu_s += 1e-6 if self.loop_works else 0.0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    made = Seen(monkeypatch)
    yield made
    made.threads.close()


async def test_where_nobody_waits_a_rest_only_hands_over(seen: Seen) -> None:
    await seen.threads.submit(seen.work, Peer())
    # Of its first look a thread cannot tell whether it was preempted.
    assert seen.rests == [record_threads.REST_S, *[record_threads.HANDOVER_S] * 3]


async def test_where_the_loop_runs_during_a_rest_it_is_a_whole_one(seen: Seen) -> None:
    await seen.threads.submit(seen.work, Peer())
    seen.rests, seen.loop_works = [], True
    await seen.threads.submit(seen.work, Peer())
    assert len(seen.rests) == 8
    assert sum(seen.rests) == pytest.approx(4 * record_threads.REST_S)


async def test_a_thread_whose_core_was_taken_rests_as_long_as_it_worked(seen: Seen) -> None:
    seen.is_preempted = True
    await seen.threads.submit(seen.work, Peer())
    assert seen.rests == [record_threads.REST_S] * 4


async def test_while_another_thread_reads_rests_are_whole_ones(seen: Seen) -> None:
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        ended.wait()

    another = seen.threads.submit(other, Peer())
    await asyncio.to_thread(begun.wait)
    await seen.threads.submit(seen.work, Peer())
    ended.set()
    await another
    assert seen.rests == [record_threads.REST_S] * 4


async def test_a_thread_of_the_disk_rests_as_long_as_it_works(seen: Seen) -> None:
    await asyncio.to_thread(seen.work)
    assert seen.rests == [record_threads.REST_S] * 4


async def test_the_loops_clock_stands_while_the_loop_waits() -> None:
    clock = record_threads.cpu_clock()

    def stands() -> bool:
        before = clock()
        busy(0.002)
        return clock() == before

    # It may still be on its way to wait when the thread begins.
    assert await asyncio.to_thread(lambda: any(stands() for _ in range(1000)))
    before = clock()
    busy(0.002)
    assert clock() > before


async def test_one_small_work_after_the_other_rests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little each is: a thread that is never idle must not keep the interpreter."""
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    monkeypatch.setattr(record_threads, "REST_S", 10.0)  # no gap between two pieces is as long
    threads = RecordThreads(threads=1)

    def work() -> None:
        busy(0.4 * record_threads.WORK_S)
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
