"""Groups of a coordinator: one broker that has them all, their commits, their list, and their load after a start."""

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.local.cluster import LocalCluster
from tests.benchmarks import harness
from tests.benchmarks.curves.points import Curve
from tests.benchmarks.harness import Server, Wire

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, LIST_GROUPS = 8, 9, 10, 16
VERSIONS = {OFFSET_COMMIT: 7, OFFSET_FETCH: 5, FIND_COORDINATOR: 2, LIST_GROUPS: 2}
LISTS, WINDOW, READY_S = 3, 50, 120.0
CONFIG = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "4"}
TOPIC = "read"


def measure(sizes: Sequence[int]) -> Curve:
    curve = Curve("groups", "groups")
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as directory,
            harness.cluster_of(Path(directory), 1, CONFIG) as cluster,
        ):
            (broker,) = harness.servers(cluster)
            harness.create_topics([broker], {TOPIC: (1, 1)}, {})
            curve.add(size, _at(cluster, broker, size))
    return curve


def _at(cluster: LocalCluster, broker: Server, size: int) -> Mapping[str, float]:
    wire = Wire(broker)
    _until_loaded(wire, 0)
    before, used = broker.resident_mb(), broker.cpu_s()
    _commit(wire, range(size))
    used = broker.cpu_s() - used
    held = broker.resident_mb() - before
    listed = harness.cpu_us(broker, LISTS, LISTS, lambda: _list(wire, size)) / 1000
    wire.close()
    cluster.stop_broker(0)
    cluster.start_broker(0)
    (broker,) = harness.servers(cluster)
    wire = Wire(broker)
    for number in range(min(size, 20)):
        _until_loaded(wire, number)
    loaded = broker.cpu_s()
    again = harness.cpu_us(broker, 1000, 3, lambda: _commit(wire, (n % size for n in range(1000))))
    wire.close()
    return {
        "first commits, CPU µs each": used / size * 1e6,
        "all together, MB": max(held, 0.01),
        "ListGroups, CPU ms": listed,
        "start and load, CPU s": loaded,
        "later commits, CPU µs each": again,
    }


def _frame(api_key: int, fields: Mapping[str, Any]) -> bytes:
    return bytes(codec.encode_request(api_key, VERSIONS[api_key], 1, "bench", fields))


def _answer(api_key: int, said: bytes) -> Any:
    return codec.decode_response(api_key, VERSIONS[api_key], memoryview(said))[1]


def _commit(wire: Wire, groups: Iterable[int]) -> None:
    """One offset of each, without a member, WINDOW requests under way."""
    owed = 0

    def take() -> None:
        told = _answer(OFFSET_COMMIT, wire.answer())
        assert told.topics[0].partitions[0].error_code == 0, told

    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    for number in groups:
        whose = {
            "group_id": f"group-{number}",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        wire.send(_frame(OFFSET_COMMIT, {**whose, "topics": [{"name": TOPIC, "partitions": [part]}]}))
        owed += 1
        if owed == WINDOW:
            take()
            owed -= 1
    for _ in range(owed):
        take()


def _list(wire: Wire, size: int) -> None:
    for _ in range(LISTS):
        told = _answer(LIST_GROUPS, wire.ask(_frame(LIST_GROUPS, {})))
        assert len(told.groups) >= size, len(told.groups)


def _until_loaded(wire: Wire, number: int) -> None:
    """Ask for a group's offsets until its coordinator has read them; the first question makes the offsets' topic."""
    deadline = time.monotonic() + READY_S
    asked = {"group_id": f"group-{number}", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    while time.monotonic() < deadline:
        wire.ask(_frame(FIND_COORDINATOR, {"key": f"group-{number}", "key_type": 0}))
        told = _answer(OFFSET_FETCH, wire.ask(_frame(OFFSET_FETCH, asked)))
        if told.error_code == ErrorCode.NONE:
            return
        time.sleep(0.05)
    raise RuntimeError(f"the coordinator still says {told.error_code} after {READY_S} s")
