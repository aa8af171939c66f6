"""Connections of one broker: what each holds, and what they cost while one of them produces."""

import resource
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from logyard.broker.protocol import codec
from tests.benchmarks import frames, harness
from tests.benchmarks.curves.partitions import idle_ms
from tests.benchmarks.curves.points import Curve
from tests.benchmarks.harness import Server, Wire

API_VERSIONS = 18
SPARE_FILES = 2000
PRODUCES, ROUNDS, SETTLE_S = 2000, 3, 2.0
CONFIG = {"offsets.topic.replication.factor": "1", "connections.max.idle.ms": "600000"}


def measure(sizes: Sequence[int]) -> Curve:
    _allow_files(max(sizes) + SPARE_FILES)
    curve = Curve("connections", "connections")
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as directory,
            harness.cluster_of(Path(directory), 1, CONFIG) as cluster,
        ):
            (broker,) = harness.servers(cluster)
            harness.create_topics([broker], {frames.TOPIC: (1, 1)}, {})
            curve.add(size, _at(broker, size))
    return curve


def _allow_files(count: int) -> None:
    """Let this process, and the brokers that it starts, open so many files; needs root where the limit is lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))


def _at(broker: Server, size: int) -> Mapping[str, float]:
    time.sleep(SETTLE_S)
    resident, used = broker.resident_mb(), broker.cpu_s()
    hello = bytes(codec.encode_request(API_VERSIONS, 2, 1, "bench", {}))
    links = [socket.create_connection((broker.host, broker.port)) for _ in range(size)]
    try:
        for link in links:
            link.sendall(hello)
        for link in links:
            assert link.recv(65536), "the broker closed a connection"
        used = broker.cpu_s() - used
        time.sleep(SETTLE_S)
        held = broker.resident_mb() - resident
        wire, frame = Wire(broker), frames.produce(200, 1)
        produced = harness.cpu_us(broker, PRODUCES, ROUNDS, lambda: wire.exchange(frame, PRODUCES))
        wire.close()
        return {
            "all together, MB": held,
            "each, kB": held / size * 1000,
            "made and greeted, CPU µs each": used / size * 1e6,
            "idle, CPU ms a second": idle_ms(broker)[0],
            "Produce 279 B, CPU µs": produced,
        }
    finally:
        for link in links:
            link.close()
