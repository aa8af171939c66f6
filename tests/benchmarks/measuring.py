"""How benchmarks inside one process measure: the least CPU of several rounds, on memory that the system has mapped."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def least_cpu_us(work: Callable[[], None], calls: int, rounds: int) -> float:
    """CPU µs of one of the `calls` that one `work` makes, in the best of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - begun)
    return best / calls / 1000


def warm_page_cache(directory: Path, size: int) -> None:
    """Have the system map `size` bytes of memory: writing to pages it has never used costs a virtual machine more."""
    path = directory / "warm"
    with path.open("wb", buffering=0) as file:
        piece = bytes(1 << 20)
        for _ in range(size >> 20):
            os.write(file.fileno(), piece)
    path.unlink()
