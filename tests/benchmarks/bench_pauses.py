"""How long others wait: p99 of Produce while another client reads cold segments, and the loop's longest pause.

Cold means: synced and dropped from the page cache before every pass, so that the broker has to go to the disk. A pause
is a wall-clock time: compare it with that of a bare event loop beside it.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logyard.broker.protocol.fetch_client import decode_response
from logyard.broker.records import batch
from tests.benchmarks import bare_loop, frames, harness
from tests.benchmarks.harness import Row, Server, Wire

COLD_BYTES = 512 << 20
SECONDS = 20
PER_SECOND = 100
FETCH_BYTES = 1 << 20
# The records are of 2023: their segments would be deleted while they are read.
CONFIG = {
    "offsets.topic.replication.factor": "1",
    "log.segment.bytes": str(32 << 20),
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
}


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about a minute."""
    with harness.cluster_of(directory / "pauses", 1, CONFIG) as cluster:
        (broker,) = harness.servers(cluster)
        harness.create_topics([broker], {frames.TOPIC: (1, 1), frames.COLD_TOPIC: (1, 1)}, {})
        Wire(broker, 4).exchange(frames.produce(9000, 100, topic=frames.COLD_TOPIC), COLD_BYTES // 900_000)
        logs = sorted((directory / "pauses").rglob(f"{frames.COLD_TOPIC}-0/*.log"))[:-1]
        broker.longest_pause_ms()
        with bare_loop.beside() as bare_alone:
            alone = _latencies(broker)
            pause_alone = broker.longest_pause_ms()
        with bare_loop.beside() as bare, _cold_reader(broker, logs) as read:
            beside = _latencies(broker)
            pause = broker.longest_pause_ms()
        rows = []
        for when, took in (("alone", alone), ("beside a cold reader", beside)):
            for share in (0.5, 0.99, 0.999):
                what = f"Produce 1 KiB at {PER_SECOND}/s, {when}, p{share * 100:g}"
                rows.append(Row(what, harness.percentile(took, share) * 1000, "ms"))
        rows.append(Row("Cold segments read meanwhile", read.value / SECONDS / 1e6, "MB/s"))
        for when, longest, of_bare in (("alone", pause_alone, bare_alone), ("beside a cold reader", pause, bare)):
            note = f"a bare loop {of_bare.value:.1f} ms"
            rows.append(Row(f"Longest pause of the loop, {when}", longest, "ms", note=note))
        return rows


def _latencies(broker: Server) -> list[float]:
    """Seconds of each of a steady row of Produce requests, one at a time.

    Counted from the sending: where the machine cannot keep the pace, the pace gives way. Counted from when each was
    due, one slow second of the neighbours would be in every figure after it.
    """
    wire, frame, took = Wire(broker, 1), frames.produce(1000, 1), []
    wire.exchange(frame, 200)
    due = begun = time.perf_counter()
    while due < begun + SECONDS:
        time.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        wire.ask(frame)
        took.append(time.perf_counter() - sent)
        due = max(due + 1 / PER_SECOND, time.perf_counter())
    return took


@contextmanager
def _cold_reader(broker: Server, logs: list[Path]) -> Iterator["multiprocessing.sharedctypes.Synchronized[int]"]:
    """Another process reads the cold topic from its start, over and over; yields how many bytes it got."""
    read = multiprocessing.Value("q", 0)
    reader = multiprocessing.Process(target=_read_cold, args=(broker, logs, read), daemon=True)
    reader.start()
    try:
        yield read
    finally:
        if not reader.is_alive():
            raise RuntimeError("the cold reader died")
        reader.terminate()
        reader.join()


def _read_cold(broker: Server, logs: list[Path], read: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    wire = Wire(broker, 1)
    while True:
        for path in logs:
            _drop_from_cache(path)
        offset, last = 0, int(logs[-1].stem)
        while offset < last:
            asked = frames.fetch(offset, FETCH_BYTES, topic=frames.COLD_TOPIC)
            (found,) = decode_response(12, memoryview(wire.ask(asked))).partitions
            if found.error_code:
                raise RuntimeError(f"error {found.error_code} at offset {offset}")
            for _, header in batch.iter_headers(found.records):
                offset = header.next_offset
            read.value += len(found.records)


def _drop_from_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
