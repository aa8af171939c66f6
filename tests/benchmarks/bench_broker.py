"""One broker: CPU per request, from the process's own accounting, beside what the bare work costs in this run."""

import platform
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from logyard.broker.protocol import codec
from logyard.broker.protocol.fetch import FetchPartition
from logyard.broker.protocol.fetch_client import decode_response
from tests.benchmarks import frames, harness, measuring, slower
from tests.benchmarks.harness import WINDOW, Row, Server, Wire

ROUNDS = 8
IDLE_PARTITIONS = 1000
FOLLOWER = 1
FETCHES = 1000
CONFIG = {
    "offsets.topic.replication.factor": "1",
    "log.segment.bytes": str(128 << 20),
    "log.retention.bytes": str(512 << 20),
    "log.cleaner.enable": "false",
    # Nobody misses the broker whose part is played here while it stands still.
    "zookeeper.session.timeout.ms": "90000",
}
# What, bytes of a record, records, requests of a round, bound (µs).
PRODUCES = (
    ("Produce 279 B", 200, 1, 10_000, 25),
    ("Produce 16 KB", 1000, 16, 3_000, 40),
    ("Produce 900 KB", 9000, 100, 150, 450),
)


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about two minutes."""
    pace = Row(slower.PACE, measuring.plain_python_us(), slower.PACE_UNIT, note=platform.python_version())
    return [pace, *_requests(directory), _idle_follower(directory)]


def _requests(directory: Path) -> list[Row]:
    with (
        harness.cluster_of(directory / "one", 1, CONFIG) as cluster,
        harness.bare_server(directory / "bare.log") as bare,
    ):
        (broker,) = harness.servers(cluster)
        harness.create_topics([broker], {frames.TOPIC: (1, 1), frames.WIDE_TOPIC: (1000, 1)}, {})
        both, rows = (broker, bare), []
        for what, size, count, requests, bound in PRODUCES:
            took, least = _alternate(directory, both, frames.produce(size, count), requests)
            rows.append(Row(f"{what}, {WINDOW} under way", took, "µs", bound, least))
        took, least = _alternate(directory, both, frames.produce(200, 1), 3_000, window=1)
        rows.append(Row("Produce 279 B, one at a time", took, "µs", None, least))
        took, least = _alternate(directory, both, frames.fetch(1000, 252_000), 1500)
        rows.append(Row("Fetch 252 KB", took, "µs", 60, least))
        (took,) = _alternate(directory, [broker], frames.metadata(), 1000)
        rows.append(Row("Metadata of 1,000 partitions, cached", took, "µs", 150))
        return rows


def _alternate(
    directory: Path, servers: Sequence[Server], frame: bytes, requests: int, window: int = WINDOW
) -> list[float]:
    """CPU µs of a request in each of the servers: rounds in turn, the best of each."""
    works = [_sending(server, frame, requests, window) for server in servers]
    best = [float("inf")] * len(servers)
    for turn in range(ROUNDS + 1):
        for number, (server, work) in enumerate(zip(servers, works, strict=True)):
            if len(frame) > 4096:
                harness.warm_page_cache(directory, 2 * len(frame) * requests)
            before = server.cpu_s()
            work()
            if turn:
                best[number] = min(best[number], (server.cpu_s() - before) / requests * 1e6)
    return best


def _sending(server: Server, frame: bytes, requests: int, window: int) -> Callable[[], None]:
    wire = Wire(server, window)
    return lambda: wire.exchange(frame, requests)


def _idle_follower(directory: Path) -> Row:
    """A follower's fetch session over partitions in which nothing happens, the follower's part played here."""
    with harness.cluster_of(directory / "two", 2, CONFIG) as cluster:
        leader, follower = harness.servers(cluster)
        harness.create_topics([leader, follower], {frames.WIDE_TOPIC: (2 * IDLE_PARTITIONS, 2)}, {})
        led = _led_by(leader)[:IDLE_PARTITIONS]
        psutil.Process(follower.pid).send_signal(signal.SIGSTOP)
        try:
            wire = Wire(leader, 1)
            asks = [FetchPartition(frames.WIDE_TOPIC, None, partition, 0, 1 << 20) for partition in led]
            opened = decode_response(12, memoryview(wire.ask(frames.follower_fetch(FOLLOWER, 0, 0, asks))))
            if not opened.session_id or any(each.error_code for each in opened.partitions):
                raise RuntimeError(f"no fetch session: error {opened.error_code}")
            epochs = iter(range(1, 1 << 20))

            def fetches() -> None:
                for _ in range(FETCHES):
                    wire.ask(frames.follower_fetch(FOLLOWER, opened.session_id, next(epochs), []))

            took = harness.cpu_us(leader, FETCHES, ROUNDS, fetches)
            last = decode_response(
                12, memoryview(wire.ask(frames.follower_fetch(1, opened.session_id, next(epochs), [])))
            )
            if last.error_code:
                raise RuntimeError(f"the fetch session ended: error {last.error_code}")
            return Row(f"Follower fetch, {len(led):,} idle partitions in the session", took, "µs", 100)
        finally:
            psutil.Process(follower.pid).send_signal(signal.SIGCONT)


def _led_by(server: Server) -> list[int]:
    """The partitions that the first broker leads, once it knows of all."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        _, answer = codec.decode_response(frames.METADATA, 9, memoryview(Wire(server).ask(frames.metadata())))
        known = [part for topic in answer.topics if topic.name == frames.WIDE_TOPIC for part in topic.partitions]
        if len(known) == 2 * IDLE_PARTITIONS:
            return [part.partition_index for part in known if part.leader_id == 0]
        time.sleep(0.1)
    raise RuntimeError(f"{frames.WIDE_TOPIC} is not known after a minute")
