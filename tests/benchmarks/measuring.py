"""How benchmarks inside one process measure: the least CPU of several rounds, on memory that the system has mapped."""

import os
import time
from collections.abc import Callable
from pathlib import Path

STEPS, PACE_ROUNDS = 100_000, 10


def least_cpu_us(work: Callable[[], None], calls: int, rounds: int) -> float:
    """CPU µs of one of the `calls` that one `work` makes, in the best of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - begun)
    return best / calls / 1000


def plain_python_us() -> float:
    """CPU µs of a thousand steps of a fixed loop: how fast this interpreter is, on this machine.

    Builds differ: one without profile-guided optimization (pyenv's default) needs half as much again as Debian's.
    """
    return least_cpu_us(_steps, STEPS // 1000, PACE_ROUNDS)


def _steps() -> None:
    seen: dict[int, int] = {}
    for step in range(STEPS):
        seen[step & 255] = len(str(step & 7)) + step


def warm_page_cache(directory: Path, size: int) -> None:
    """Have the system map `size` bytes of memory: writing to pages it has never used costs a virtual machine more."""
    path = directory / "warm"
    with path.open("wb", buffering=0) as file:
        piece = bytes(1 << 20)
        for _ in range(size >> 20):
            os.write(file.fileno(), piece)
    path.unlink()
