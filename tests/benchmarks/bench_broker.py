"""`make bench`: CPU microseconds of one broker per request, and three brokers under a stock producer.

Prints a table and writes build/bench.json. CPU is user + system of the broker's own process, so that
neighbours on the machine matter little; rates are wall clock and swing with them.
"""

import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from logyard.broker.protocol import codec
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import encode_request as encode_fetch
from logyard.broker.records import batch
from logyard.local.cluster import Cluster
from logyard.local.layout import Settings

PRODUCE, FETCH, METADATA = 0, 1, 3
WINDOW = 50
CONFIG = {"offsets.topic.replication.factor": "1", "log.segment.bytes": str(256 << 20)}


@dataclass(slots=True)
class Measured:
    """One row: requests sent, CPU µs of the broker for each, wall-clock rate."""

    what: str
    requests: int
    cpu_us_per_request: float
    requests_per_s: float
    mb_per_s: float


class Wire:
    """A blocking connection that keeps `WINDOW` requests under way."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 20)

    def exchange(self, frame: bytes, times: int) -> int:
        """Send the same frame so often; returns the bytes of all answers."""
        owed = received = 0
        for _ in range(times):
            self._socket.sendall(frame)
            owed += 1
            if owed == WINDOW:
                received += self._answer()
                owed -= 1
        for _ in range(owed):
            received += self._answer()
        return received

    def _answer(self) -> int:
        (size,) = struct.unpack(">i", self._file.read(4))
        if len(self._file.read(size)) != size:
            raise RuntimeError("the broker closed the connection")
        return int(size)


def measured(what: str, pid: int, requests: int, work: Callable[[], int]) -> Measured:
    process = psutil.Process(pid)
    work()  # warm up: page cache, indexes, code paths
    before, begun = process.cpu_times(), time.perf_counter()
    moved = work()
    wall, after = time.perf_counter() - begun, process.cpu_times()
    cpu = (after.user - before.user) + (after.system - before.system)
    return Measured(
        what, requests, round(cpu / requests * 1e6, 1), round(requests / wall, 1), round(moved / wall / 1e6, 1)
    )


def produce_frame(record_bytes: int, records: int) -> bytes:
    made = batch.build([batch.Record(i, 1_700_000_000_000, None, b"x" * record_bytes) for i in range(records)])
    fields = {
        "acks": 1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": "bench", "partition_data": [{"index": 0, "records": bytes(made)}]}],
    }
    return codec.encode_request(PRODUCE, 9, 1, "bench", fields)


def one_broker(directory: Path) -> list[Measured]:
    cluster = Cluster(directory)
    cluster.start(Settings(1, None, None, CONFIG))
    try:
        broker = json.loads((directory / "cluster.json").read_text())["brokers"][0]
        admin = AdminClient({"log_level": 0, "bootstrap.servers": f"{broker['host']}:{broker['port']}"})
        admin.create_topics([NewTopic("bench", 1, 1), NewTopic("wide", 1000, 1)])["wide"].result(60)
        pid, wire = broker["pid"], Wire(broker["host"], broker["port"])
        rows = []
        for what, size, count, times in (
            ("Produce 279 B", 200, 1, 20_000),
            ("Produce 16 KB", 1000, 16, 5_000),
            ("Produce 900 KB", 9000, 100, 300),
        ):
            frame = produce_frame(size, count)

            def produce(frame: bytes = frame, times: int = times) -> int:
                wire.exchange(frame, times)
                return len(frame) * times

            rows.append(measured(what, pid, times, produce))
        ask = FetchRequest(-1, 500, 1, [FetchPartition("bench", None, 0, 30_000, 252_000)], session_epoch=-1)
        fetch = encode_fetch(12, 1, "bench", ask)
        rows.append(measured("Fetch 252 KB", pid, 2000, lambda: wire.exchange(fetch, 2000)))
        metadata = codec.encode_request(METADATA, 9, 1, "bench", {"topics": None})
        rows.append(measured("Metadata of 1000 partitions", pid, 2000, lambda: wire.exchange(metadata, 2000)))
        return rows
    finally:
        cluster.stop()


def three_brokers(directory: Path) -> list[Measured]:
    cluster = Cluster(directory)
    cluster.start(Settings(3, None, None, {"min.insync.replicas": "2"}))
    try:
        bootstrap = json.loads((directory / "cluster.json").read_text())["bootstrap"]
        admin = AdminClient({"log_level": 0, "bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("bench", 6, 3)], operation_timeout=30)["bench"].result(60)
        return [stock_producer(bootstrap, size, count) for size, count in ((1024, 200_000), (100, 1_000_000))]
    finally:
        cluster.stop()


def stock_producer(bootstrap: str, size: int, count: int) -> Measured:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all", "queue.buffering.max.messages": 1_000_000}
    )
    value, begun = b"x" * size, time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce("bench", value)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError("not everything was acknowledged in two minutes")
    wall = time.perf_counter() - begun
    what = f"librdkafka {size} B, 3 replicas, acks=all"
    return Measured(what, count, 0.0, round(count / wall, 1), round(count * size / wall / 1e6, 1))


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        rows = one_broker(Path(directory) / "one") + three_brokers(Path(directory) / "three")
    print(f"{'':44}{'CPU µs':>10}{'per s':>14}{'MB/s':>10}")
    for row in rows:
        cpu = f"{row.cpu_us_per_request:.1f}" if row.cpu_us_per_request else "-"
        print(f"{row.what:44}{cpu:>10}{row.requests_per_s:>14,.0f}{row.mb_per_s:>10,.1f}")
    build = Path("build")
    build.mkdir(exist_ok=True)
    (build / "bench.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
