"""Compaction, killed: jobs, executors and brokers die by SIGKILL at named points, and everything is level afterwards.

Every single disk operation of a commit is stopped at in tests/unit/leases/test_commit_crashes.py, in memory; here real
processes die at the points where one owner's work becomes another's.
"""

import json
import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition

from logyard.broker.records import batch
from logyard.spark_jobs.leases import client
from tests.support.job_process import die_job, failing, finish_job, start_job
from tests.support.lease_job import broker_https
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

KEYS = 61
COUNT = 6000
COMMIT = r"POST /leases/[0-9a-f]+/commit"
SMALL = {"batch.size": 4000, "compression.type": "lz4"}

Expected = dict[tuple[int, bytes], int]


def events() -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number * 7919 % KEYS), b"%d-" % number + bytes(50)) for number in range(COUNT)]


def filled(cluster: RealCluster, topic: str, **more: str) -> Expected:
    """Make a compacted topic with many closed segments on three replicas; returns where each value lies."""
    cluster.create(topic, 1, 3, cleanup_policy="compact", segment_bytes="16384", min_insync_replicas="2", **more)
    acknowledged = cluster.produce(topic, events(), **SMALL)
    assert len(acknowledged) == COUNT
    eventually(lambda: cluster.isrs_full(topic), "all in sync")
    all_know(cluster, topic, COUNT)
    return acknowledged


def all_know(cluster: RealCluster, topic: str, high_watermark: int) -> None:
    """Wait until every replica has heard of the high watermark: it bounds what a lease covers."""

    def known() -> bool:
        found = [client.partition_status(b, topic, 0) for b in broker_https(cluster.description).values()]
        return len(found) == 3 and all(one["high_watermark"] == high_watermark for one in found)

    eventually(known, "every replica knows the high watermark", 60)


def records_of(directory: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Key and value by offset, off a replica's own files."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, _header in batch.iter_headers(data):
            found |= {r.offset: (r.key, r.value) for r in batch.records(data, position)}
    return found


def assert_level(cluster: RealCluster, topic: str, acknowledged: Expected) -> None:
    """All replicas hold the same records, the last of each key below the clean offset and all above it; a stock
    consumer sees them; nothing is left behind."""
    statuses = {n: client.partition_status(b, topic, 0) for n, b in broker_https(cluster.description).items()}
    (clean,) = {one["clean_offset"] for one in statuses.values()}
    assert clean > COUNT // 2
    assert {one["checkpoints"]["cleaner-offset-checkpoint"] for one in statuses.values()} == {clean}
    keys = {value: key for key, value in events()}
    by_offset = {offset: (keys[value], value) for (_, value), offset in acknowledged.items()}
    last = {key: offset for offset, (key, _) in sorted(by_offset.items()) if offset < clean}
    expected = {o: r for o, r in by_offset.items() if o >= clean or last[r[0]] == o}
    directories = cluster.replica_dirs(topic, 0)
    assert len(directories) == 3
    for number, directory in directories.items():
        assert records_of(directory) == expected, f"broker {number}"
    consumed = {m.offset(): (m.key(), m.value()) for m in cluster.consume(topic, len(expected))}
    assert consumed == expected

    def tidy() -> bool:
        left = [p for d in directories.values() for p in d.rglob("*") if p.suffix in (".part", ".cleaned", ".swap")]
        living = [p for d in directories.values() for p in d.glob(".leases/*/lease.json")]
        return not left and not living

    eventually(tidy, "no part, swap or lease is left")


def states(cluster: RealCluster, topic: str) -> dict[str, int]:
    """How many leases on the topic are in each state."""
    found: dict[str, int] = defaultdict(int)
    for broker in broker_https(cluster.description).values():
        for lease in broker.call("GET", "/leases")["leases"]:
            if lease["topic"] == topic:
                found[lease["state"]] += 1
    return dict(found)


@pytest.mark.parametrize(
    ("name", "at", "match", "count", "committed"),
    [
        ("acquired", "answer", r"POST /leases$", 3, 0),
        ("half-uploaded", "upload", r"PUT /leases/[0-9a-f]+/parts/", 2, 0),
        ("before-commit", "request", COMMIT, 1, 0),
        ("between-commits", "answer", COMMIT, 1, 1),
        ("before-the-leaders", "request", COMMIT, 3, 2),
    ],
)
def test_a_job_that_is_killed_leaves_what_the_next_one_finishes(
    cluster: RealCluster, tmp_path: Path, name: str, at: str, match: str, count: int, committed: int
) -> None:
    """The whole job dies, driver and executors; its leases run out, and another run brings all replicas level."""
    topic, mark = f"job-{name}", tmp_path / "struck"
    acknowledged = filled(cluster, topic)
    before = records_of(next(iter(cluster.replica_dirs(topic, 0).values())))
    assert len(before) == COUNT
    dying = failing(at, match, mark, count=count, do="kill-session") | {"LOGYARD_HIDE_DISK": "1"}
    die_job(start_job("compact", cluster, tmp_path, "--topic", topic, more=dying), mark)

    eventually(lambda: states(cluster, topic).get("expired", 0) == 3 - committed, "its leases expire", 15)
    sizes = {n: len(records_of(directory)) for n, directory in cluster.replica_dirs(topic, 0).items()}
    assert sorted(size < COUNT for size in sizes.values()) == [False] * (3 - committed) + [True] * committed
    latest = {m.key(): m.value() for m in cluster.consume(topic, sizes[cluster.describe(topic)[0].leader])}
    assert latest == dict(events()), "the last of each key can be read all the while"

    summary = finish_job(start_job("compact", cluster, tmp_path, "--topic", topic, "--wait-s", "30"))
    assert summary["replicas_compacted"] == 3
    assert_level(cluster, topic, acknowledged)


def test_an_executor_that_dies_in_the_midst_of_an_upload_is_replaced(cluster: RealCluster, tmp_path: Path) -> None:
    topic, mark = "executor", tmp_path / "struck"
    acknowledged = filled(cluster, topic)
    dying = failing("upload", r"PUT /leases/[0-9a-f]+/parts/", mark, count=2) | {"LOGYARD_HIDE_DISK": "1"}
    summary = finish_job(start_job("compact", cluster, tmp_path, "--topic", topic, more=dying))
    assert mark.exists()
    assert summary["replicas_compacted"] == 3
    assert_level(cluster, topic, acknowledged)


def test_a_driver_that_comes_back_late_swaps_nothing(cluster: RealCluster, tmp_path: Path) -> None:
    """A driver that stands still before its first commit until another run has done the work is refused."""
    topic, mark = "zombie", tmp_path / "struck"
    acknowledged = filled(cluster, topic)
    pausing = failing("request", COMMIT, mark, do="pause")
    zombie = start_job("compact", cluster, tmp_path, "--topic", topic, more=pausing)
    eventually(mark.exists, "the driver stands before its commit", 120)
    zombie.send_signal(signal.SIGSTOP)  # the JVM; the Python driver waits in the failpoint, but would beat
    for pid in session_of(zombie.pid):
        signal_quietly(pid, signal.SIGSTOP)
    eventually(lambda: states(cluster, topic).get("expired", 0) == 3, "its leases expire", 15)
    finish_job(start_job("compact", cluster, tmp_path, "--topic", topic))
    assert_level(cluster, topic, acknowledged)
    done = cluster.digests(topic, 0)
    Path(f"{mark}.go").touch()
    for pid in session_of(zombie.pid):
        signal_quietly(pid, signal.SIGCONT)
    summary = finish_job(zombie, 1)
    assert (summary["failed"], summary["replicas_compacted"]) == (1, 0)
    assert "lease_ended" in summary["details"][f"{topic}-0"]["reason"]
    assert cluster.digests(topic, 0) == done


def session_of(leader: int) -> list[int]:
    """The processes of a session, by its leader's pid."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[3]) == leader:
                found.append(int(entry.name))
    return found


def signal_quietly(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@pytest.mark.parametrize(
    ("name", "leads", "target", "count", "left"),
    [
        ("before", False, r"\d{20}\.log\.cleaned$", 2, {".cleaned"}),
        ("deciding", False, r"\d{20}\.log\.swap$", 2, {".cleaned", ".swap"}),
        ("decided", True, r"\d{20}\.log$", 2, {".swap"}),
        ("checkpoint", True, r"cleaner-offset-checkpoint$", 1, set()),
    ],
)
def test_a_broker_that_is_killed_in_its_swap_comes_back_level(
    own_cluster: RealCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    leads: bool,
    target: str,
    count: int,
    left: set[str],
) -> None:
    """Before the last decision it has the old segments and catches up; behind it, a start finishes the swap."""
    topic, mark = f"broker-{name}", tmp_path / "struck"
    acknowledged = filled(own_cluster, topic)
    leader = own_cluster.describe(topic)[0].leader
    doomed = leader if leads else next(n for n in own_cluster.replica_dirs(topic, 0) if n != leader)
    own_cluster.cluster.stop_broker(doomed)
    with monkeypatch.context() as patched:
        for key, value in failing("rename", rf"(/{topic}-0/)?{target}", mark, count=count).items():
            patched.setenv(key, value)
        own_cluster.cluster.start_broker(doomed)
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync again", 60)
    if leads:
        lead_again(own_cluster, topic, doomed)
    all_know(own_cluster, topic, COUNT)

    job = start_job("compact", own_cluster, tmp_path, "--topic", topic)
    eventually(mark.exists, "the broker reaches the point", 120)
    assert {p.suffix for p in own_cluster.replica_dirs(topic, 0)[doomed].iterdir()} & {".cleaned", ".swap"} == left
    own_cluster.cluster.start_broker(doomed)
    summary = finish_job(job, 0, 1)
    others = set(own_cluster.replica_dirs(topic, 0)) - {doomed}
    assert others <= set(summary["details"][f"{topic}-0"]["replicas"]), "who lives is compacted"
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync again", 60)
    eventually(lambda: len(set(clean_offsets(own_cluster, topic))) == 1, "all have cleaned as far", 90)
    assert_level(own_cluster, topic, acknowledged)


def clean_offsets(cluster: RealCluster, topic: str) -> list[int]:
    return [client.partition_status(b, topic, 0)["clean_offset"] for b in broker_https(cluster.description).values()]


def lead_again(cluster: RealCluster, topic: str, broker: int) -> None:
    """Have a replica elected that was the preferred one."""
    admin = cluster.admin()
    with cluster.zookeeper() as zk:
        with_order = json.loads(zk.get(f"/brokers/topics/{topic}")[0])["partitions"]
    assert with_order["0"][0] == broker, "the first leader was the preferred one"
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(30)
    eventually(lambda: cluster.describe(topic)[0].leader == broker, "it leads again")


def test_a_follower_that_is_down_at_the_commit_applies_the_decision_when_it_is_back(
    own_cluster: RealCluster, tmp_path: Path
) -> None:
    topic, mark = "missed", tmp_path / "struck"
    acknowledged = filled(own_cluster, topic)
    leader = own_cluster.describe(topic)[0].leader
    down = next(n for n in own_cluster.replica_dirs(topic, 0) if n != leader)
    job = start_job(
        "compact", own_cluster, tmp_path, "--topic", topic, more=failing("request", COMMIT, mark, do="pause")
    )
    eventually(mark.exists, "the driver stands before its commits", 120)
    own_cluster.cluster.stop_broker(down, signal.SIGKILL)
    Path(f"{mark}.go").touch()
    summary = finish_job(job, 1)
    assert sorted(summary["details"][f"{topic}-0"]["replicas"]) == sorted(
        n for n in own_cluster.replica_dirs(topic, 0) if n != down
    )
    assert len(records_of(own_cluster.replica_dirs(topic, 0)[down])) == COUNT
    own_cluster.cluster.start_broker(down)
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync again", 60)
    eventually(lambda: len(set(clean_offsets(own_cluster, topic))) == 1, "it has caught up by itself", 90)
    assert_level(own_cluster, topic, acknowledged)
