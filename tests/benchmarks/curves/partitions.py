"""Partitions of one broker: a leader of all of them and its follower, at rest, at one Produce, and at their starts."""

import signal
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from logyard.local.cluster import LocalCluster
from tests.benchmarks import bare_files, bench_size, frames, harness
from tests.benchmarks.curves.points import Curve
from tests.benchmarks.harness import Server, Wire

OF_A_TOPIC = 1000
PRODUCES, ROUNDS = 2000, 3
SETTLE_S, READY_S = 3.0, 600.0
# The slowest of what a broker does from time to time, its checkpoints, comes once a minute.
IDLE_S = 60.0
CONFIG = {
    "offsets.topic.replication.factor": "1",
    "log.cleaner.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "log.index.size.max.bytes": "65536",
}


def measure(sizes: Sequence[int]) -> Curve:
    curve = Curve("partitions-of-a-broker", "partitions")
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as directory,
            harness.cluster_of(Path(directory), 2, CONFIG) as cluster,
        ):
            curve.add(size, _at(cluster, size, Path(directory)))
    return curve


def _at(cluster: LocalCluster, size: int, directory: Path) -> Mapping[str, float]:
    leader, follower = harness.servers(cluster)
    found = {"creation, s": _create(leader, size), "the same files alone, s": bare_files.make(directory, 2 * size)}
    time.sleep(SETTLE_S)
    idle = idle_ms(leader, follower)
    found |= {
        "leader, resident MB": leader.resident_mb(),
        "leader idle, CPU ms a second": idle[0],
        "follower idle, CPU ms a second": idle[1],
    }
    wire = Wire(leader)
    frame = frames.produce(200, 1, topic="many-0")
    found["Produce 279 B, CPU µs"] = harness.cpu_us(leader, PRODUCES, ROUNDS, lambda: wire.exchange(frame, PRODUCES))
    wire.close()
    found |= _metrics_page(leader)
    for name, number in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        cluster.stop_broker(1, number)
        with harness.patient_starts(READY_S):
            cluster.start_broker(1)
        _, follower = harness.servers(cluster)
        found[f"start, {name}, CPU s"] = follower.cpu_s()
        if name == "clean":  # the other one waits for the old session to end, whatever the partitions
            found["start, clean, s"] = bench_size.took_to_serve(cluster, follower, 1)
    return found


def _create(leader: Server, size: int) -> float:
    """All led by broker 0 and followed by broker 1; seconds until all have a leader."""
    admin = AdminClient({"log_level": 0, "bootstrap.servers": f"{leader.host}:{leader.port}"})
    begun = time.monotonic()
    for number in range(-(-size // OF_A_TOPIC)):
        count = min(OF_A_TOPIC, size - number * OF_A_TOPIC)
        name = f"many-{number}"
        wanted = NewTopic(name, count, replica_assignment=[[0, 1]] * count)
        admin.create_topics([wanted], operation_timeout=60, request_timeout=90)[name].result(READY_S)
        while not _led(admin, name, count):
            if time.monotonic() > begun + READY_S:
                raise RuntimeError(f"{name} has no leaders after {READY_S} s")
            time.sleep(0.05)
    return time.monotonic() - begun


def _led(admin: AdminClient, name: str, count: int) -> bool:
    found = admin.list_topics(name, timeout=30).topics[name].partitions
    return len(found) == count and all(each.leader >= 0 for each in found.values())


def idle_ms(*servers: Server) -> list[float]:
    """CPU milliseconds a second of brokers that nobody asks for anything."""
    before, begun = [server.cpu_s() for server in servers], time.monotonic()
    time.sleep(IDLE_S)
    seconds = time.monotonic() - begun
    return [(server.cpu_s() - used) / seconds * 1000 for server, used in zip(servers, before, strict=True)]


def _metrics_page(server: Server) -> Mapping[str, float]:
    before = server.cpu_s()
    with urllib.request.urlopen(f"http://{server.host}:{server.http_port}/metrics", timeout=60) as answer:
        size = len(answer.read())
    return {"metrics page, CPU ms": (server.cpu_s() - before) * 1000, "metrics page, kB": size / 1000}
