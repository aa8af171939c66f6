"""What leases and cleaning cost those who produce: p99 of Produce alone, beside lease traffic, beside the cleaner.

A job takes the machine's processors too: the same traffic at another broker shows how much of a rise is that.
The four are measured in turn, several times, and the middle figure of each counts: neighbours on the machine come and
go. Where it may, the measuring process and the broker go before those (niceness), so that what is seen is the broker's
own doing. The job's traffic is paced, as a job's is that computes, too. A compacted topic is written to all the while,
so that there is something to clean.
"""

import hashlib
import multiprocessing
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from logyard.broker.protocol import codec
from logyard.broker.records import batch
from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease
from tests.benchmarks import frames, harness
from tests.benchmarks.harness import Row, Server, Wire

ROUNDS = 12
SECONDS = 5
PER_SECOND = 300
KEYED_TOPIC, LEASED_TOPIC = "keyed", "leased"
KEYS = 20_000
RECORDS, RECORD_BYTES = 32, 500
BATCHES_PER_SECOND = 120
LEASED_BATCHES = 1500
READ_BYTES = 1 << 20
LEASE_BYTES_PER_SECOND = 20e6
NICENESS = -15
RISE_MAX = 20.0  # per cent
BUSY_S = 0.02
CONFIG = {
    "offsets.topic.replication.factor": "1",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.threads": "0",
    "log.segment.delete.delay.ms": "1000",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.2"}
# Left to the job: the cleaner has no reason to look at it.
LEASED = {**COMPACTED, "min.cleanable.dirty.ratio": "1"}


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about five minutes."""
    with (
        harness.cluster_of(directory / "leases", 1, CONFIG) as cluster,
        harness.cluster_of(directory / "other", 1, CONFIG) as elsewhere,
    ):
        (broker,), (other,) = harness.servers(cluster), harness.servers(elsewhere)
        harness.create_topics([broker], {frames.TOPIC: (1, 1)}, {})
        harness.create_topics([broker], {KEYED_TOPIC: (1, 1)}, COMPACTED)
        harness.create_topics([broker], {LEASED_TOPIC: (1, 1)}, LEASED)
        harness.create_topics([other], {LEASED_TOPIC: (1, 1)}, LEASED)
        for each in (broker, other):
            _fill(each, LEASED_TOPIC, LEASED_BATCHES)
        _go_first(broker.pid)
        _go_first(os.getpid())
        token, others = (
            next((directory / name).rglob("http.token")).read_text().strip() for name in ("leases", "other")
        )
        kinds: dict[str, Callable[[], Any]] = {
            "alone": _nothing,
            "beside lease traffic elsewhere": lambda: _lease_traffic(other, others),
            "beside lease traffic": lambda: _lease_traffic(broker, token),
            "beside the cleaner": lambda: _cleaning(broker),
        }
        took: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
        moved: dict[str, list[float]] = {kind: [] for kind in kinds}
        busy: dict[str, list[float]] = {kind: [] for kind in kinds}
        with _beside(_keep_dirty, broker):
            for _ in range(ROUNDS):
                for kind, beside in kinds.items():
                    latencies, moved_per_s, loop_share = _round(broker, beside)
                    took[kind].append(latencies)
                    moved[kind].append(moved_per_s)
                    busy[kind].append(loop_share)
        return [*_rows(took, moved), *_loop_rows(busy)]


def _round(broker: Server, beside: Callable[[], Any]) -> tuple[list[float], float, float]:
    """One kind once: latencies in seconds, what was moved beside it a second, the loop's CPU as a share of the time."""
    with beside() as done:
        begun, loop_s = time.perf_counter(), _loop_cpu_s(broker)
        latencies = _latencies(broker)
        elapsed = time.perf_counter() - begun
        return latencies, done() / elapsed, (_loop_cpu_s(broker) - loop_s) / elapsed


def _rows(took: dict[str, list[list[float]]], moved: dict[str, list[float]]) -> list[Row]:
    rows, p99 = [], {}
    for kind, rounds in took.items():
        for share in (0.5, 0.99):
            value = median(harness.percentile(found, share) for found in rounds) * 1000
            rows.append(Row(f"Produce 1 KiB at {PER_SECOND}/s, {kind}, p{share * 100:g}", value, "ms"))
        p99[kind] = [harness.percentile(found, 0.99) for found in rounds]
    doubt = _doubt(took["alone"])
    rows += [Row(f"Rise of p99 {kind}", _rise(p99["alone"], p99[kind]), "%", note=doubt) for kind in list(took)[1:]]
    own = _rise(p99["beside lease traffic elsewhere"], p99["beside lease traffic"])
    rows.append(Row("Rise of p99 by the broker's part in lease traffic", own, "%", RISE_MAX))
    rows.append(Row("Lease traffic meanwhile", median(moved["beside lease traffic"]) / 1e6, "MB/s"))
    rows.append(Row("Cleanings a minute", median(moved["beside the cleaner"]) * 60, ""))
    return rows


def _rise(before: list[float], after: list[float]) -> float:
    """Per cent; each round against the one beside it in time."""
    return median((b / a - 1) * 100 for a, b in zip(before, after, strict=True))


def _loop_rows(busy: dict[str, list[float]]) -> list[Row]:
    """How much of a processor the event loop takes: what a busy machine does not blur."""
    return [Row(f"The event loop's CPU, {kind}", median(found) * 100, "%") for kind, found in busy.items()]


def _loop_cpu_s(broker: Server) -> float:
    """CPU seconds of the broker's main thread, which runs the loop."""
    return int(Path(f"/proc/{broker.pid}/task/{broker.pid}/schedstat").read_text().split()[0]) / 1e9


def _doubt(alone: list[list[float]]) -> str:
    """What to think of the figures where requests queue up with nothing beside them."""
    waited = median(harness.percentile(found, 0.5) for found in alone)
    return "" if waited < BUSY_S else "the machine is too busy to tell"


def _latencies(broker: Server) -> list[float]:
    """Seconds of each of a steady row of Produce requests, counted from when each was due."""
    wire, frame, took = Wire(broker, 1), frames.produce(1000, 1), []
    wire.exchange(frame, 100)
    begun = time.perf_counter()
    for number in range(SECONDS * PER_SECOND):
        due = begun + number / PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        wire.ask(frame)
        took.append(time.perf_counter() - due)
    wire.close()
    return took


def _go_first(pid: int) -> None:
    """Let a process's threads run before the neighbours', where the system lets us."""
    with suppress(PermissionError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), NICENESS)


def _stand_back() -> None:
    """What only makes work for the broker does not take the processor from it: a job runs elsewhere."""
    os.setpriority(os.PRIO_PROCESS, 0, 5)


# What goes on beside: each yields a function that tells how much was done


@contextmanager
def _nothing() -> Iterator[Callable[[], float]]:
    time.sleep(1.0)
    yield lambda: 0.0


@contextmanager
def _lease_traffic(broker: Server, token: str) -> Iterator[Callable[[], float]]:
    with _beside(_lease_again_and_again, broker, token) as moved:
        time.sleep(1.0)
        begun = moved.value
        yield lambda: float(moved.value - begun)


@contextmanager
def _cleaning(broker: Server) -> Iterator[Callable[[], float]]:
    _set_threads(broker, 1)
    time.sleep(1.0)
    begun = _cleaned_logs(broker)
    try:
        yield lambda: _cleaned_logs(broker) - begun
    finally:
        _set_threads(broker, 0)


def _set_threads(broker: Server, threads: int) -> None:
    entry = ConfigEntry("log.cleaner.threads", str(threads), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"log_level": 0, "bootstrap.servers": f"{broker.host}:{broker.port}"})
    (number,) = admin.list_topics(timeout=30).brokers
    resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _cleaned_logs(broker: Server) -> float:
    with urllib.request.urlopen(f"http://{broker.host}:{broker.http_port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("logyard_cleaner_logs_cleaned "):
                return float(line.split()[1])
    raise RuntimeError("no count of cleaned logs among the metrics")


@contextmanager
def _beside(work: Callable[..., None], *given: Any) -> Iterator[Any]:
    """Another process does that work meanwhile; yields the number it counts up."""
    counted = multiprocessing.Value("q", 0)
    process = multiprocessing.Process(target=work, args=(*given, counted), daemon=True)
    process.start()
    try:
        yield counted
        if not process.is_alive():
            raise RuntimeError(f"{work.__name__} died")
    finally:
        process.terminate()
        process.join()


def _keyed_batch(number: int) -> bytes:
    first = number * RECORDS
    return bytes(
        batch.build(
            [
                batch.Record(n, frames.RECORD_MS + first, b"k%d" % ((first + n) * 7919 % KEYS), b"x" * RECORD_BYTES)
                for n in range(RECORDS)
            ]
        )
    )


def _produce(made: bytes, topic: str) -> bytes:
    part = {"index": 0, "records": made}
    tree = {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": [part]}]}
    return codec.encode_request(frames.PRODUCE, 9, 1, frames.CLIENT, tree)


def _fill(broker: Server, topic: str, batches: int) -> None:
    wire = Wire(broker, 1)
    for number in range(batches):
        wire.ask(_produce(_keyed_batch(number), topic))
    wire.close()


def _keep_dirty(broker: Server, counted: Any) -> None:
    """Write to the compacted topic at a steady rate."""
    _stand_back()
    wire, begun, number = Wire(broker, 1), time.perf_counter(), 0
    while True:
        time.sleep(max(0.0, begun + number / BATCHES_PER_SECOND - time.perf_counter()))
        made = _keyed_batch(number)
        wire.ask(_produce(made, KEYED_TOPIC))
        counted.value += len(made)
        number += 1


def _lease_again_and_again(broker: Server, token: str, counted: Any) -> None:
    """Lease, read every segment over HTTP, hand each in again as its own replacement, commit: a job's traffic."""
    _stand_back()
    http = BrokerHttp(0, f"{broker.host}:{broker.http_port}", token)
    with tempfile.TemporaryDirectory(prefix="bench-parts-") as aside:
        while True:
            try:
                _replace_all(client.acquire(http, LEASED_TOPIC, 0, "bench", "compact"), Path(aside) / "part", counted)
            except LeaseError as error:
                if error.code != "lease_held":
                    raise
                time.sleep(0.2)


def _replace_all(lease: Lease, path: Path, counted: Any) -> None:
    groups: list[dict[str, Any]] = []
    end = 0
    began, before = time.perf_counter(), counted.value
    for segment in lease.segments:
        data = memoryview(bytearray(segment.size))
        for at in range(0, segment.size, READ_BYTES):
            piece = data[at : at + READ_BYTES]
            counted.value += lease.broker.read(lease.file_path(segment.base_offset, "log"), at, len(piece), piece)
            ahead = (counted.value - before) / LEASE_BYTES_PER_SECOND - (time.perf_counter() - began)
            time.sleep(max(0.0, ahead))
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        lease.put_part(segment.base_offset, str(path), segment.size, digest)
        counted.value += segment.size
        headers = [header for _, header in batch.iter_headers(data)]
        end = headers[-1].next_offset
        part = {"size": segment.size, "sha256": digest, "last_offset": headers[-1].last_offset}
        groups.append(
            {"segments": [segment.base_offset], "part": {**part, "records": sum(header.count for header in headers)}}
        )
    decision = {
        "sha256": "0" * 64,
        "range_start": 0,
        "range_end": min(end, lease.end_offset),
        "now_ms": 0,
        "tombstone_cutoff": 0,
        "survivors": 0,
    }
    lease.commit(decision, groups, min(end, lease.end_offset))
