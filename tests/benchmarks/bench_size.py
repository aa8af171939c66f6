"""Memory, and how long a start takes: idle, with 3,000 partitions, and after a kill with 1 GB of log to check.

A start is timed from the creation of the process to its own line "serving": interpreter, imports and ZooKeeper count.
"""

import json
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil

from logyard.local.cluster import LocalCluster
from tests.benchmarks import frames, harness
from tests.benchmarks.harness import Row, Server, Wire

PARTITIONS = 3000
UNCLEAN_BYTES = 1 << 30
UNCLEAN_PARTITIONS = 8
STARTS = 3
SETTLE_S = 3
# Nothing that speaks to ZooKeeper from an event loop can be smaller: the floor of an idle broker.
BARE = """
import asyncio, json, resource, ssl, time, uvloop, kazoo.client
with open("/proc/self/statm") as status:
    pages = int(status.read().split()[1])
print(json.dumps([pages * resource.getpagesize() / 1e6, time.process_time()]))
"""
CONFIG = {"offsets.topic.replication.factor": "1", "zookeeper.session.timeout.ms": "6000"}


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about two minutes."""
    rows = _idle(directory)
    rows += _many_partitions(directory)
    rows.append(_unclean(directory))
    return rows


def _idle(directory: Path) -> list[Row]:
    with harness.cluster_of(directory / "idle", 1, CONFIG) as cluster:
        time.sleep(SETTLE_S)
        (broker,) = harness.servers(cluster)
        bare_mb, bare_s = _bare()
        bare = "beside Python with uvloop, TLS and kazoo imported"
        return [
            Row("Resident memory, idle", broker.resident_mb(), "MB", 120, bare_mb, bare),
            Row("Start to serving, empty", took_to_serve(cluster, broker), "s"),
            Row(f"  CPU of it and of {SETTLE_S} s idle, all threads", broker.cpu_s(), "s", None, bare_s, bare),
        ]


def _bare() -> tuple[float, float]:
    """Resident MB and CPU seconds of an interpreter that has imported BARE's libraries."""
    told = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True).stdout
    resident_mb, cpu_s = json.loads(told)
    return resident_mb, cpu_s


def _many_partitions(directory: Path) -> list[Row]:
    with harness.cluster_of(directory / "many", 1, CONFIG) as cluster:
        (broker,) = harness.servers(cluster)
        for number in range(PARTITIONS // 1000):
            harness.create_topics([broker], {f"{frames.WIDE_TOPIC}-{number}": (1000, 1)}, {})
        time.sleep(SETTLE_S)
        created = broker.resident_mb()
        started, resident, cpu = [], [], []
        for _ in range(STARTS):
            cluster.stop_broker(0)
            cluster.start_broker(0)
            (broker,) = harness.servers(cluster)
            cpu.append(broker.cpu_s())
            time.sleep(SETTLE_S)
            started.append(took_to_serve(cluster, broker))
            resident.append(broker.resident_mb())
        many = f"{PARTITIONS:,} partitions"
        return [
            Row(f"Resident memory, {many}, just created", created, "MB", 250),
            Row(f"Resident memory, {many}, after a start", max(resident), "MB", 250),
            Row(f"Clean start to serving, {many}", min(started), "s", 3, note=f"worst {max(started):.1f}"),
            Row("  of which CPU, all threads", min(cpu), "s"),
        ]


def _unclean(directory: Path) -> Row:
    with harness.cluster_of(directory / "unclean", 1, CONFIG) as cluster:
        (broker,) = harness.servers(cluster)
        harness.create_topics([broker], {frames.TOPIC: (UNCLEAN_PARTITIONS, 1)}, {})
        requests = UNCLEAN_BYTES // UNCLEAN_PARTITIONS // 900_000
        for partition in range(UNCLEAN_PARTITIONS):
            Wire(broker, window=4).exchange(frames.produce(9000, 100, partition=partition), requests)
        cluster.stop_broker(0, signal.SIGKILL)
        logs = list((directory / "unclean").rglob(f"{frames.TOPIC}-*/*.log"))
        size = sum(path.stat().st_size for path in logs)
        cluster.start_broker(0)
        (broker,) = harness.servers(cluster)
        note = f"{size / 1e9:.2f} GB, cached; {broker.cpu_s():.1f} s CPU"
        took = took_to_serve(cluster, broker)
        return Row("Start to serving after a kill, 1 GB to check", took, "s", 5, note=note)


def took_to_serve(cluster: LocalCluster, broker: Server, number: int = 0) -> float:
    """Seconds from the process's creation to the line in its log that says it serves."""
    created: float = psutil.Process(broker.pid).create_time()
    entry = cluster.processes.get(f"broker-{number}")
    assert entry is not None
    for line in reversed(Path(entry.log).read_text().splitlines()):
        if "] serving " in line:
            return datetime.strptime(line[:26], "%Y-%m-%d %H:%M:%S.%f").timestamp() - created
    raise RuntimeError(f"the log of broker {number} does not say that it serves: {entry.log}")
