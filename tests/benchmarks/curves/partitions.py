"""Partitions of one broker: a leader of all of them and its follower, at rest, at one Produce, and at their starts."""

import signal
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from logyard.local.cluster import LocalCluster
from tests.benchmarks import bench_size, frames, harness
from tests.benchmarks.curves.points import Curve
from tests.benchmarks.harness import Server, Wire

OF_A_TOPIC = 1000
PRODUCES, ROUNDS = 2000, 3
IDLE_S, SETTLE_S, READY_S = 5.0, 3.0, 600.0
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
            curve.add(size, _at(cluster, size))
    return curve


def _at(cluster: LocalCluster, size: int) -> Mapping[str, float]:
    leader, follower = harness.servers(cluster)
    created = _create(leader, size)
    time.sleep(SETTLE_S)
    found = {
        "creation, s": created,
        "leader, resident MB": leader.resident_mb(),
        "leader idle, CPU ms a second": idle_ms(leader),
        "follower idle, CPU ms a second": idle_ms(follower),
    }
    wire = Wire(leader)
    frame = frames.produce(200, 1, topic="many-0")
    found["Produce 279 B, CPU µs"] = harness.cpu_us(leader, PRODUCES, ROUNDS, lambda: wire.exchange(frame, PRODUCES))
    wire.close()
    found |= _metrics_page(leader)
    for name, number in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        cluster.stop_broker(1, number)
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


def idle_ms(server: Server) -> float:
    """CPU milliseconds a second of a broker that nobody asks for anything."""
    before, begun = server.cpu_s(), time.monotonic()
    time.sleep(IDLE_S)
    return (server.cpu_s() - before) / (time.monotonic() - begun) * 1000


def _metrics_page(server: Server) -> Mapping[str, float]:
    before = server.cpu_s()
    with urllib.request.urlopen(f"http://{server.host}:{server.http_port}/metrics", timeout=60) as answer:
        size = len(answer.read())
    return {"metrics page, CPU ms": (server.cpu_s() - before) * 1000, "metrics page, kB": size / 1000}
