"""What it costs a leader to look at the records of a client's batch: `python -m tests.benchmarks.bench_validation`.

Beside it what the header alone costs (checksum included), which is all that was done before decision 22.
"""

import os
import time
from collections.abc import Callable

from logyard.broker.log.validation import is_little, validate
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import Bounds, Record
from tests.benchmarks.frames import RECORD_MS

BOUNDS = Bounds(max_message_bytes=2 << 20)
SHAPES = ((200, 1), (1000, 16), (100, 150), (9000, 100), (1000, 900), (100, 8000))
ROUNDS_S = 0.3


def least_us(work: Callable[[], object]) -> float:
    best, until = 1e9, time.perf_counter() + ROUNDS_S
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def main() -> None:
    print(f"{'records':>14} {'codec':>7} {'bytes':>8} {'header':>8} {'records too':>12}  where")
    for size, count in SHAPES:
        half = size // 2
        made = [Record(n, RECORD_MS + n, None, os.urandom(half) + b"x" * half) for n in range(count)]
        for codec in (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD):
            data = memoryview(batch.build(made, compression=codec))
            header = batch.parse_header(data)
            alone = least_us(lambda d=data, h=header: batch.validate_client_batch(d, 0, h, BOUNDS))  # type: ignore[misc]
            whole = least_us(lambda d=data: validate(d, BOUNDS, RECORD_MS, piecewise=not is_little(d, BOUNDS)))  # type: ignore[misc]
            where = "loop" if is_little(data, BOUNDS) else "thread"
            name = compression.NAMES[codec]
            print(f"{count:>6} x {size:>4} B {name:>7} {len(data):>8} {alone:>8.1f} {whole:>12.1f}  {where}")


if __name__ == "__main__":
    main()
