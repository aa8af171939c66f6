"""What one log costs: CPU microseconds per append, read and recovery, on the disk of a temporary directory.

Run it alone: `python tests/benchmarks/bench_log.py [directory]`. The write itself is measured beside the whole append,
so that what remains is Python.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from tests.support.logs import create_log

NOW = 1_700_000_000_000
TP = TopicPartition("bench", 0)
MEBIBYTE = 1 << 20


def built(size: int, count: int, **fields: Any) -> bytearray:
    """A batch of `count` records of about `size` bytes together."""
    value = b"x" * max(1, size // count - 12)
    return batch.build([Record(n, NOW, None, value) for n in range(count)], base_offset=0, **fields)


@contextmanager
def timed(what: str, times: int, moved: int = 0) -> Iterator[None]:
    """Print CPU µs per turn, and MB per CPU second where bytes moved."""
    begun = time.process_time()
    yield
    took = time.process_time() - begun
    rate = f"{moved / took / 1e6:9.0f} MB/s" if moved else ""
    print(f"{what:<44} {took / times * 1e6:9.2f} µs {rate}")


def appends(directory: str) -> None:
    for name, size, count, times in (
        ("100 B", 100, 1, 50_000),
        ("16 KiB", 16384, 100, 20_000),
        ("1 MiB", MEBIBYTE, 1000, 1_000),
    ):
        log = create_log(
            OsDisk(), TP, f"{directory}/append-{size}", TopicConfig(segment_bytes=64 * MEBIBYTE), now_ms=NOW
        )
        fresh = built(size, count)
        data = memoryview(bytearray(fresh))

        def one(log: PartitionLog = log, data: memoryview = data, head: bytes = bytes(fresh[:16])) -> None:
            data[:16] = head  # the producer's own base offset and no leader epoch
            log.append_as_leader(data, 0, now_ms=NOW)

        repeat(one, times // 10)
        with timed(f"append {name}, plain", times, times * len(data)):
            repeat(one, times)
        file = log.segments.active.log_file()
        with timed(f"  of which the write of {name}", times, times * len(data)):
            repeat(lambda file=file, data=data: file.write_at(data, 0), times)
    idempotent(directory, 50_000)


def idempotent(directory: str, times: int) -> None:
    log = create_log(OsDisk(), TP, f"{directory}/idempotent", TopicConfig(), now_ms=NOW)
    batches = [
        memoryview(built(100, 1, producer_id=7, producer_epoch=0, base_sequence=number)) for number in range(times)
    ]
    with timed("append 100 B, idempotent", times):
        for data in batches:
            log.append_as_leader(data, 0, now_ms=NOW)


def repeat(work: Callable[..., object], times: int) -> None:
    for _ in range(times):
        work()


def follows(directory: str) -> None:
    log = create_log(OsDisk(), TP, f"{directory}/follow", TopicConfig(), now_ms=NOW)
    chunks = []
    for base in range(0, 50 * 64, 64):
        made = (batch.build([Record(base + n, NOW, None, b"x" * 16000)], leader_epoch=0) for n in range(64))
        chunks.append(memoryview(b"".join(made)))
    with timed("follower append, 64 batches of 16 KiB", len(chunks), sum(map(len, chunks))):
        for chunk in chunks:
            log.append_as_follower(chunk)


def reads(directory: str) -> None:
    log = create_log(OsDisk(), TP, f"{directory}/read", TopicConfig(segment_bytes=64 * MEBIBYTE), now_ms=NOW)
    for _ in range(16_000):
        log.append_as_leader(memoryview(built(16384, 100)), 0, now_ms=NOW)
    log.flush()
    end = log.log_end_offset
    with timed("read at the end, nothing there", 50_000):
        repeat(lambda: log.read(end, MEBIBYTE, limit_offset=end, min_one=True), 50_000)
    tail = end - 100
    with timed("read the last batch, 16 KiB", 20_000, 20_000 * 16384):
        repeat(lambda: loaded(log, tail, MEBIBYTE), 20_000)
    for size in (64 * 1024, MEBIBYTE):
        offset = fetches = moved = 0
        with timed(f"whole log by fetches of {size // 1024} KiB", 1, log.size):
            while offset < end:
                data = loaded(log, offset, size)
                *_, (_, last) = batch.iter_headers(data)
                offset, fetches, moved = last.last_offset + 1, fetches + 1, moved + len(data)
        print(f"  {fetches} fetches, {moved / 1e6:.0f} MB (walking the headers included)")


def loaded(log: PartitionLog, offset: int, size: int) -> memoryview:
    piece = log.read(offset, size, limit_offset=log.log_end_offset, min_one=True)
    data = piece.load_nowait()
    return piece.load() if data is None else data


def recoveries(directory: str) -> None:
    config = TopicConfig(segment_bytes=64 * MEBIBYTE)
    path = f"{directory}/read"
    size = sum(file.stat().st_size for file in Path(path).glob("*.log"))
    with timed("recovery, every batch checked", 1, size):
        recovery.load(OsDisk(), path, config, Checkpointed(), now_ms=NOW)
    for number in range(500):
        log = create_log(OsDisk(), TP, f"{directory}/many/t-{number}", TopicConfig(), now_ms=NOW)
        log.append_as_leader(memoryview(built(100, 1)), 0, now_ms=NOW)
        log.close()
    with timed("start of a small log, closed cleanly", 500):
        for number in range(500):
            recovery.load(
                OsDisk(), f"{directory}/many/t-{number}", TopicConfig(), Checkpointed(1, None, clean=True), now_ms=NOW
            )
    with timed("start of a small log, killed", 500):
        for number in range(500):
            recovery.load(OsDisk(), f"{directory}/many/t-{number}", TopicConfig(), Checkpointed(), now_ms=NOW)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        appends(directory)
        follows(directory)
        reads(directory)
        recoveries(directory)


if __name__ == "__main__":
    main()
