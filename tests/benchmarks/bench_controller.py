"""The controller: how long topics, failovers and shutdowns take on three real brokers, and what a take-over costs.

`python -m tests.benchmarks.bench_controller [brokers|take-overs] [--partitions N…]`: both parts without an argument.
Topics of a take-over have 50 partitions, or one each with `--per-topic 1`: then its watches are as many. A
table, and build/bench_controller.json. The take-overs run against a real ZooKeeper with peers that encode what they
are sent and answer at once: one process each, so that its memory is its own.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog
import uvloop

from logyard.broker.broker import SystemChance
from logyard.broker.clock import SystemClock
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.model import Assignment, BrokerInfo, Endpoint, PartitionState, TopicAssignment, TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.session import ZooKeeperSession
from logyard.broker.znodes import brokers as broker_znode
from logyard.broker.znodes import partition_state
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create, ZkOp
from tests.benchmarks.controller_brokers import measure_brokers
from tests.benchmarks.harness import Row
from tests.support.zookeeper import running_zookeeper

ROOT = Path(__file__).parents[2]
PER_TOPIC = 50
BROKERS = 3
REPLICAS = 3
SIZES = (1_000, 10_000, 100_000, 200_000)
PUBLISHED = {
    100_000: "published: 14 s (Apache Kafka 1.1)",
    140_000: "published: 7.4-14.9 s (Apache Kafka 2.0)",
}
OPS_PER_MULTI = 400


@dataclass(frozen=True, slots=True)
class TakeOver:
    """One take-over as its process saw it."""

    partitions: int
    wall_s: float
    cpu_s: float
    memory_mb: float
    sent_mb: float


class EncodingPeers:
    """Brokers that answer at once; what they are sent is encoded as for a socket."""

    def __init__(self) -> None:
        self.bytes_sent = 0

    def add_broker(self, info: BrokerInfo) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        callback: Callable[[Any], None],
        correlation_id: int | None = None,
    ) -> None:
        self.bytes_sent += len(codec.encode_request(api_key, version, 1, "controller", fields))
        answer = SimpleNamespace(error_code=0, partition_errors=[], topics=[])
        asyncio.get_running_loop().call_soon(callback, answer)


# One take-over, in a process of its own


async def take_over(connect: str) -> TakeOver:
    """Become controller of what is in ZooKeeper; measured from the first look at /controller to the last step."""
    zk = ZooKeeperSession(connect, session_timeout_ms=60_000)
    await zk.wait_connected(30)
    peers = EncodingPeers()
    settings = ControllerSettings(1, auto_leader_rebalance_enable=False)
    runner = ControllerRunner(zk, peers, SystemClock(), settings, chance=SystemChance())
    gc.collect()
    memory, cpu, wall = _resident_mb(), time.process_time(), time.perf_counter()
    await runner.start()
    while runner.queue_size:
        await asyncio.sleep(0.001)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = await runner.gauges()
    assert runner.is_active, "the take-over failed"
    assert found["OfflinePartitionsCount"] == 0
    await runner.stop()
    await zk.close()
    return TakeOver(found["GlobalPartitionCount"], wall, cpu, _resident_mb() - memory, peers.bytes_sent / 1e6)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# What it finds


async def populate(connect: str, partitions: int, per_topic: int) -> ZooKeeperSession:
    """Write brokers and topics; the registrations last as long as the session that is returned."""
    zk = ZooKeeperSession(connect, session_timeout_ms=60_000)
    await zk.wait_connected(30)
    await create_persistent_paths(zk)
    for broker in range(1, BROKERS + 1):
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9000 + broker),))
        await zk.multi([Create(broker_znode.path(broker), broker_znode.encode(info, 0), ephemeral=True)])
    ops: list[ZkOp] = []
    for number in range(partitions // per_topic):
        ops += _topic(number, per_topic)
        if len(ops) >= 20 * OPS_PER_MULTI:
            await _write(zk, ops)
            ops = []
    await _write(zk, ops)
    return zk


def _topic(number: int, partitions: int) -> Iterable[ZkOp]:
    name = f"topic-{number:06}"
    places = {p: Assignment(tuple((number + p + j) % BROKERS + 1 for j in range(REPLICAS))) for p in range(partitions)}
    yield Create(topic_znode.topic_path(name), topic_znode.encode(TopicAssignment(places, uuid.uuid4())))
    yield Create(topic_znode.partitions_path(name))
    for p, place in places.items():
        state = PartitionState(place.replicas[0], 0, place.replicas, 0)
        yield Create(topic_znode.partition_path(name, p))
        yield Create(partition_state.path(TopicPartition(name, p)), partition_state.encode(state))


async def _write(zk: ZooKeeperSession, ops: list[ZkOp]) -> None:
    answers = await zk.pipeline([ops[at : at + OPS_PER_MULTI] for at in range(0, len(ops), OPS_PER_MULTI)])
    assert all(result.ok for results in answers for result in results)


async def _measure_at(connect: str, partitions: int, per_topic: int) -> TakeOver:
    zk = await populate(connect, partitions, per_topic)
    command = [sys.executable, "-m", "tests.benchmarks.bench_controller", "one-take-over", connect]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    out, _ = await process.communicate()
    await zk.close()
    if process.returncode != 0:
        raise RuntimeError(f"the take-over of {partitions} partitions failed")
    return TakeOver(**json.loads(out.splitlines()[-1]))


def take_over_of(directory: Path, size: int, per_topic: int) -> TakeOver:
    """One take-over of that many partitions, with a ZooKeeper of its own that has room for them."""
    heap = f"{max(2, size // 150_000)}g"
    with running_zookeeper(directory / str(size), heap=heap) as server:
        found = uvloop.run(_measure_at(f"{server.connect}/bench", size, per_topic))
    assert found.partitions == size
    return found


def measure_take_overs(directory: Path, sizes: Iterable[int], per_topic: int) -> list[Row]:
    """Load time and memory of a new controller, size by size."""
    rows: list[Row] = []
    for size in sizes:
        found = take_over_of(directory, size, per_topic)
        topics = "" if per_topic == PER_TOPIC else f" in {size // per_topic:,} topics"
        what = f"take-over of {size:,} partitions x {REPLICAS}{topics}"
        note = f"{found.cpu_s / size * 1e6:.0f} µs CPU a partition; {PUBLISHED.get(size, '')}".rstrip("; ")
        rows += [
            Row(f"{what}: until ready", found.wall_s, "s", note=note),
            Row(f"{what}: CPU", found.cpu_s, "s"),
            Row(f"{what}: memory", found.memory_mb, "MB"),
        ]
    return rows


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about five minutes."""
    return [*measure_take_overs(directory, SIZES, PER_TOPIC), *measure_brokers(directory / "cluster")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("all", "brokers", "take-overs", "one-take-over"), default="all")
    parser.add_argument("connect", nargs="?", help="where one-take-over finds ZooKeeper")
    parser.add_argument("--partitions", type=int, nargs="+", default=SIZES, help="sizes of the take-overs")
    parser.add_argument("--per-topic", type=int, default=PER_TOPIC, help="partitions of each topic of a take-over")
    options = parser.parse_args()
    if options.part == "one-take-over":
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(30),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        print(json.dumps(asdict(uvloop.run(take_over(options.connect)))))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        if options.part in ("all", "take-overs"):
            rows += measure_take_overs(Path(directory), options.partitions, options.per_topic)
        if options.part in ("all", "brokers"):
            rows += measure_brokers(Path(directory) / "cluster")
    print(*(row.text() for row in rows), sep="\n")
    _keep(rows)
    return 0


def _keep(rows: list[Row]) -> None:
    path = ROOT / "build" / "bench_controller.json"
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    named = {row["what"]: row for row in before} | {row.what: asdict(row) for row in rows}
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    path.write_text(json.dumps({"machine": machine, "rows": list(named.values())}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
