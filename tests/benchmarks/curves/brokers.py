"""Brokers of a cluster: what the controller and the others do for one topic that is created."""

import itertools
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.benchmarks import harness
from tests.benchmarks.curves.partitions import idle_ms
from tests.benchmarks.curves.points import Curve
from tests.benchmarks.harness import Server

TOPICS = 20
SETTLE_S = 3.0
CONFIG = {"zookeeper.session.timeout.ms": "18000", "log.cleaner.enable": "false"}
_names = itertools.count()


def measure(sizes: Sequence[int]) -> Curve:
    curve = Curve("brokers", "brokers")
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as directory,
            harness.cluster_of(Path(directory), size, CONFIG) as cluster,
        ):
            curve.add(size, _at(harness.servers(cluster)))
    return curve


def _at(found: Sequence[Server]) -> Mapping[str, float]:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": f"{found[0].host}:{found[0].port}"})
    controller = found[int(admin.list_topics(timeout=30).controller_id)]
    others = [server for server in found if server is not controller]
    time.sleep(SETTLE_S)
    [idle] = idle_ms(controller)
    _create(found, 3)
    own, rest, sent = controller.cpu_s(), sum(each.cpu_s() for each in others), _written(controller)
    begun = time.monotonic()
    _create(found, TOPICS)
    own = controller.cpu_s() - own - idle / 1000 * (time.monotonic() - begun)
    return {
        "controller, CPU ms a topic": own / TOPICS * 1000,
        "another broker, CPU ms a topic": (sum(each.cpu_s() for each in others) - rest) / TOPICS / len(others) * 1000,
        "controller sends, kB a topic": (_written(controller) - sent) / TOPICS / 1000,
        "controller idle, CPU ms a second": idle,
        "controller, resident MB": controller.resident_mb(),
    }


def _create(found: Sequence[Server], topics: int) -> None:
    """Topics of three partitions and three replicas, one request after the other."""
    for _ in range(topics):
        harness.create_topics(found[:3], {f"made-{next(_names)}": (3, 3)}, {})


def _written(server: Server) -> int:
    """Bytes that the process has given to write(): sockets and its few lines of log together."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{server.pid}/io").read_text().splitlines())
    return int(fields["wchar"])
