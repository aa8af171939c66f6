"""Replicas moved between log directories by Kafka's own tools, on two brokers of ours and on two of Kafka's.

kafka-reassign-partitions with `log_dirs` in its file sends AlterReplicaLogDirs (KIP-113), and asks DescribeLogDirs what
became of it.
"""

import json
import os
from collections.abc import Iterator, Sequence

import pytest

from logyard.admin.connector import RealConnector
from logyard.admin.reassignment.space import volumes
from logyard.admin.settings import ClusterSettings
from tests.reference.steps import Side, Step, both
from tests.support import kafka
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.timeout(900)

TO = "--bootstrap-server {bootstrap}"
BYTES = 3_000_000


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Two brokers of either kind, with two log directories each."""
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("dirs")
    config = {"log.dirs": "one,two"}
    with kafka.running(home / "ours", "OO", config) as ours, kafka.running(home / "kafka", "KK", config) as theirs:
        made = []
        for name, cluster in (("ours", ours), ("kafka", theirs)):
            (home / f"{name}-files").mkdir()
            made.append(Side(name, cluster, home / f"{name}-files"))
        yield made[0], made[1]


def same(sides: tuple[Side, Side], *steps: Step) -> None:
    differences = both(sides, steps)
    assert not differences, "\n\n".join(differences)


def directory(side: Side, broker: int, name: str) -> str:
    return str(side.cluster.directory / f"broker-{broker}" / name)


def plan(sides: tuple[Side, Side], name: str, places: Sequence[str]) -> str:
    """A file for the tool: partition 0 of `d` in these directories of brokers 0 and 1; a path stands for itself."""
    for side in sides:
        log_dirs = [
            place if place == "any" or "/" in place else directory(side, broker, place)
            for broker, place in enumerate(places)
        ]
        entry = {"topic": "d", "partition": 0, "replicas": [0, 1], "log_dirs": log_dirs}
        (side.folder / name).write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return "{dir}/" + name


def places(side: Side) -> dict[int, tuple[str, int]]:
    """Where partition 0 of `d` is on each broker, and its size, as kafka-log-dirs tells; future replicas left out."""
    said = side.run(Step("log-dirs", f"{TO} --describe --topic-list d"))
    [answer] = [line for line in said.splitlines() if line.startswith("{")]
    return {
        each["broker"]: (log_dir["logDir"].rpartition("/")[2], replica["size"])
        for each in json.loads(answer)["brokers"]
        for log_dir in each["logDirs"]
        for replica in log_dir["partitions"]
        if not replica["isFuture"]
    }


def test_replicas_move_between_directories(sides: tuple[Side, Side]) -> None:
    reassign, slow = f"{TO} --reassignment-json-file", "--replica-alter-log-dirs-throttle 1000"
    first, both_ways = plan(sides, "first.json", ["one", "one"]), plan(sides, "both.json", ["two", "any"])
    perf = "--producer-props bootstrap.servers={bootstrap}"
    same(
        sides,
        Step("topics", f"{TO} --create --topic d --replica-assignment 0:1"),
        Step(
            "producer-perf-test",
            f"--topic d --num-records {BYTES // 1000} --record-size 1000 --throughput -1 {perf}",
            quiet=True,
        ),
        Step("reassign-partitions", f"{reassign} {first} --execute"),
    )
    verify_first = Step("reassign-partitions", f"{reassign} {first} --verify")
    for side in sides:
        eventually(lambda s=side: s.run(verify_first).count("completed successfully") == 2, "all in one", 90)
    same(
        sides,
        verify_first,
        # As slow as this it cannot end before it has been looked at.
        Step("reassign-partitions", f"{reassign} {both_ways} --execute {slow}"),
        Step("reassign-partitions", f"{reassign} {both_ways} --verify"),
        Step("configs", f"{TO} --describe --entity-type brokers --entity-name 0"),
        Step(
            "reassign-partitions",
            f"{reassign} {both_ways} --execute --additional --replica-alter-log-dirs-throttle 100000000",
        ),
    )
    verify = Step("reassign-partitions", f"{reassign} {both_ways} --verify")
    for side in sides:
        eventually(lambda s=side: "completed successfully" in s.run(verify), "moved", 90)
        found = places(side)
        assert {broker: place for broker, (place, _) in found.items()} == {0: "two", 1: "one"}, side.name
        assert all(size >= BYTES for _, size in found.values()), (side.name, found)
        eventually(lambda c=side.cluster: len(set(c.digests("d", 0).values())) == 1, "replicas equal")
    same(sides, verify, Step("configs", f"{TO} --describe --entity-type brokers --entity-name 0"))


def test_our_commands_read_the_disks_of_either_kind(sides: tuple[Side, Side]) -> None:
    """DescribeLogDirs v4 (KIP-827): both kinds tell of each directory what statvfs says of it."""
    for side in sides:
        client = RealConnector().cluster(ClusterSettings.read(side.cluster.bootstrap))
        try:
            found = client.log_dirs()
        finally:
            client.close()
        want = {(broker, directory(side, broker, name)) for broker in (0, 1) for name in ("one", "two")}
        assert {(one.broker, one.path) for one in found.directories} == want, side.name
        for one in found.directories:
            disk = os.statvfs(one.path)
            assert one.is_online, one
            assert one.total == disk.f_blocks * disk.f_frsize, one
            assert one.usable is not None, one
            assert abs(one.usable - disk.f_bavail * disk.f_frsize) < disk.f_blocks * disk.f_frsize // 100, one
        for broker in (0, 1):
            assert len(volumes(one for one in found.directories if one.broker == broker)) == 1, "both are on one disk"


def test_moves_that_cannot_be(sides: tuple[Side, Side]) -> None:
    reassign = f"{TO} --reassignment-json-file"
    nowhere = plan(sides, "nowhere.json", ["/no/such/directory", "any"])
    crossed = plan(sides, "crossed.json", ["any", "relative/path"])
    short = plan(sides, "short.json", ["any"])
    same(
        sides,
        Step("topics", f"{TO} --create --if-not-exists --topic d --replica-assignment 0:1"),
        Step("reassign-partitions", f"{reassign} {short} --execute", refused=True),
        Step("reassign-partitions", f"{reassign} {crossed} --execute", refused=True),
        Step("reassign-partitions", f"{reassign} {nowhere} --execute", refused=True),
        Step("reassign-partitions", f"{reassign} {nowhere} --verify"),
        Step("topics", f"{TO} --describe --topic d"),
    )
