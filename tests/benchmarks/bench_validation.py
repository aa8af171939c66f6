"""What it costs a leader to look at the records of a client's batch: `python -m tests.benchmarks.bench_validation`.

Beside it what the header alone costs (checksum included), which is all that was done before decision 22. *loop*: where
the compiled loop is loaded.
"""

import os
import time
from collections.abc import Callable

from logyard.broker.compiled import record_look
from logyard.broker.log.validation import is_little, is_usual, validate, validate_at_once
from logyard.broker.records import batch, compiled_look, compression
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


def whole(data: memoryview) -> tuple[float, str]:
    """Return what validation takes, the decision where included, and where it is done."""

    def work() -> str:
        if not is_usual(data, BOUNDS):
            if validate_at_once(data, BOUNDS, lambda: RECORD_MS):
                return "event loop"
            if not is_little(data, BOUNDS):
                validate(data, BOUNDS, RECORD_MS, piecewise=True)
                return "thread"
        validate(data, BOUNDS, RECORD_MS)
        return "event loop"

    return least_us(work), work()


def main() -> None:
    record_look.compile_and_keep()
    print(f"{'records':>14} {'codec':>7} {'bytes':>8} {'header':>8} {'records too':>12} {'':>10} {'loop':>8}")
    for size, count in SHAPES:
        half = size // 2
        made = [Record(n, RECORD_MS + n, None, os.urandom(half) + b"x" * half) for n in range(count)]
        for codec in (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD):
            data = memoryview(batch.build(made, compression=codec))
            header = batch.parse_header(data)
            alone = least_us(lambda d=data, h=header: batch.validate_client_batch(d, 0, h, BOUNDS))  # type: ignore[misc]
            line = f"{count:>6} x {size:>4} B {compression.NAMES[codec]:>7} {len(data):>8} {alone:>8.1f}"
            for loop in (None, record_look.Look):
                compiled_look.use(loop)
                took, where = whole(data)
                line += f" {took:>10.1f} {where:>10}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
