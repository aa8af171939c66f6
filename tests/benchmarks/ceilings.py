"""What the machine itself does in this run: the figures that all others are to be read beside."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import crc32c

from tests.benchmarks import harness
from tests.benchmarks.harness import Row

PIECE = 900_000
TURNS = 100
ROUNDS = 5


def measure(directory: Path) -> list[Row]:
    """Seconds of CPU in this process, as µs for one piece of 900 KB, or for one system call."""
    source, target = bytearray(os.urandom(PIECE)), bytearray(PIECE)
    view = memoryview(target)

    def copy() -> None:
        view[:] = source

    fd = os.open(directory / "ceiling", os.O_RDWR | os.O_CREAT)
    null = os.open("/dev/null", os.O_WRONLY)
    try:
        rows = [
            Row("copy of 900 KB in memory", _least(copy), "µs"),
            Row("CRC-32C of 900 KB", _least(lambda: crc32c.crc32c(source)), "µs"),
            Row("write of 900 KB over cached pages", _least(lambda: os.pwrite(fd, source, 0)), "µs"),
            Row("read of 900 KB from cached pages", _least(lambda: os.preadv(fd, [target], 0)), "µs"),
            Row("write of 900 KB to new pages, the machine's memory warm", _new_pages(directory, 2), "µs"),
            Row("write of 900 KB to new pages, as the machine is", _new_pages(directory, 0), "µs"),
            Row("the least system call (1 byte to /dev/null)", _least(lambda: os.write(null, b"x"), 10_000), "µs"),
        ]
    finally:
        os.close(fd)
        os.close(null)
    return rows


def _least(work: Callable[[], object], turns: int = TURNS) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(turns):
            work()
        best = min(best, time.process_time() - begun)
    return best / turns * 1e6


def _new_pages(directory: Path, warm: int) -> float:
    """µs for each of TURNS writes that make a file grow; the median of the rounds, since here luck is what varies."""
    piece, took = bytes(PIECE), []
    for number in range(ROUNDS):
        path = directory / f"new-{number}"
        if warm:
            harness.warm_page_cache(directory, warm * PIECE * TURNS)
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        begun = time.process_time()
        for turn in range(TURNS):
            os.pwrite(fd, piece, turn * PIECE)
        took.append((time.process_time() - begun) / TURNS * 1e6)
        os.close(fd)
    return sorted(took)[ROUNDS // 2]
