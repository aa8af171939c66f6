"""Disks and processes that fail under three real brokers, two log directories each: nothing acknowledged is gone."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.admin import KafkaAdminClient

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.integration.conftest import CONFIG
from tests.support.load import Load
from tests.support.needed import lacks
from tests.support.real_cluster import RealCluster, eventually

SETTINGS = CONFIG | {"log.dirs": "one,two", "log.segment.bytes": "1000000", "log.index.size.max.bytes": "100000"}
STORAGE_ERROR = 56


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster that each test leaves whole."""
    cluster = LocalCluster(tmp_path_factory.mktemp("yard"))
    cluster.start(Settings(3, None, None, SETTINGS))
    try:
        yield RealCluster(cluster)
    finally:
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


def pid_of(yard: RealCluster, broker: int) -> int:
    return int(next(b["pid"] for b in yard.description["brokers"] if b["id"] == broker))


def log_dirs(yard: RealCluster, broker: int) -> dict[str, Any]:
    """What DescribeLogDirs says of one broker, by directory: (error code, {(topic, partition): (is future, lag)})."""
    admin = KafkaAdminClient(bootstrap_servers=yard.bootstrap)
    try:
        [answer] = [found for found in admin.describe_log_dirs() if found["broker"] == broker]
    finally:
        admin.close()
    return {
        each["log_dir"]: (
            each["error_code"],
            {
                (topic["name"], p["partition_index"]): (p["is_future_key"], p["offset_lag"])
                for topic in each["topics"]
                for p in topic["partitions"]
            },
        )
        for each in answer["log_dirs"]
    }


def check_all_there(yard: RealCluster, topic: str, acknowledged: dict[tuple[int, bytes], int]) -> None:
    eventually(lambda: yard.isrs_full(topic), "every replica is in sync", 60)
    read = {(m.partition(), m.value()): m.offset() for m in yard.consume(topic, len(acknowledged), 60)}
    assert {k: v for k, v in acknowledged.items() if read.get(k) != v} == {}
    for partition in yard.describe(topic):
        eventually(lambda p=partition: len(set(yard.digests(topic, p).values())) == 1, "replicas are equal")


def set_move_rate(yard: RealCluster, broker: int, rate: int) -> None:
    """Change a broker's quota of moves while it runs."""
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    entry = ConfigEntry(name, str(rate), incremental_operation=AlterConfigOpType.SET)
    admin = yard.admin()
    for done in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])]
    ).values():
        done.result(30)


def test_a_replica_moves_to_another_directory_under_load_and_a_kill(yard: RealCluster) -> None:
    topic = "mover"
    yard.create(topic, 1, 3, min_insync_replicas="2")
    acknowledged = yard.produce(topic, [(None, b"%06d" % n + b"x" * 1000) for n in range(12_000)])
    leader = yard.describe(topic)[0].leader
    source = yard.replica_dirs(topic, 0)[leader].parent
    target = source.parent / ("two" if source.name == "one" else "one")
    set_move_rate(yard, leader, 2_000_000)
    time.sleep(1)
    load = Load(yard, topic)
    load.start()
    admin = KafkaAdminClient(bootstrap_servers=yard.bootstrap)
    admin.alter_replica_log_dirs({(topic, 0, leader): str(target)})
    admin.close()
    key = (topic, 0)
    is_future, lag = eventually(lambda: log_dirs(yard, leader)[str(target)][1].get(key), "a future log")
    assert (is_future, lag > 0) == (True, True)
    assert log_dirs(yard, leader)[str(source)][1][key][0] is False
    yard.cluster.stop_broker(leader, signal.SIGKILL)
    so_far = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > so_far + 200, "load goes on", 60)
    yard.cluster.start_broker(leader)
    set_move_rate(yard, leader, 2**63 - 1)
    eventually(lambda: log_dirs(yard, leader)[str(target)][1].get(key) == (False, 0), "moved", 60)
    assert key not in log_dirs(yard, leader)[str(source)][1]
    assert yard.replica_dirs(topic, 0)[leader].parent == target
    assert not list(target.glob("*-future"))
    check_all_there(yard, topic, acknowledged | load.stop())


def test_a_failing_directory_goes_offline_alone_and_the_last_one_takes_the_broker_along(yard: RealCluster) -> None:
    topics = ("left", "right")
    acknowledged = {}
    for topic in topics:
        yard.create(topic, 6, 3, min_insync_replicas="2", segment_bytes="50000000")
        acknowledged[topic] = yard.produce(topic, [(b"%d" % n, b"%06d" % n) for n in range(2000)])
    broker = 1
    places = {topic: {p: yard.replica_dirs(topic, p)[broker].parent for p in range(6)} for topic in topics}
    assert {path.name for path in places["left"].values()} == {"one", "two"}
    victim = next(p for p, path in places["left"].items() if path.name == "one")
    # A limit on the size of files: only the largest log meets it, as a bad block would meet one file.
    pid = pid_of(yard, broker)
    path = yard.replica_dirs("left", victim)[broker]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (3_000_000, -1))
    big = [(None, b"%06d" % n + b"y" * 1000) for n in range(4000)]
    acknowledged["left"] |= _to(yard, "left", victim, big)
    one, two = str(path.parent), str(path.parent.parent / "two")
    assert eventually(lambda: log_dirs(yard, broker)[one][0] == STORAGE_ERROR, "the directory is offline")
    assert log_dirs(yard, broker)[two][0] == 0
    for topic in topics:
        for p in range(6):
            lost = places[topic][p].name == "one"
            eventually(lambda t=topic, n=p, w=lost: (broker in yard.describe(t)[n].isrs) != w, f"{topic}-{p}", 60)
            assert yard.describe(topic)[p].leader >= 0
    survivor = next(p for p, place in places["left"].items() if place.name == "two")
    acknowledged["left"] |= _to(yard, "left", survivor, big)
    eventually(lambda: not _runs(pid), "the broker stops with its last directory", 60)
    yard.cluster.stop_broker(broker, signal.SIGKILL)
    yard.cluster.start_broker(broker)
    for topic in topics:
        check_all_there(yard, topic, acknowledged[topic])


def _to(yard: RealCluster, topic: str, partition: int, events: list[Any]) -> dict[Any, int]:
    """Send to one partition, with acks=all."""
    found: dict[Any, int] = {}

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            found[message.partition(), message.value()] = message.offset()

    producer = Producer({"bootstrap.servers": yard.bootstrap, "acks": "all", "enable.idempotence": True})
    for _, value in events:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    producer.flush(60)
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_flipped_byte_and_a_lost_index_are_mended_from_the_leader(yard: RealCluster) -> None:
    topic = "bitten"
    yard.create(topic, 1, 3, min_insync_replicas="2")
    acknowledged = yard.produce(topic, [(None, b"%06d" % n + b"z" * 500) for n in range(5000)])
    leader = yard.describe(topic)[0].leader
    follower = next(b for b in yard.describe(topic)[0].replicas if b != leader)
    yard.cluster.stop_broker(follower, signal.SIGKILL)
    directory = yard.replica_dirs(topic, 0)[follower]
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    with segments[-1].open("r+b") as file:
        file.seek(segments[-1].stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))
    segments[0].with_suffix(".index").unlink()
    segments[1].with_suffix(".timeindex").write_bytes(b"nonsense")
    yard.cluster.start_broker(follower)
    check_all_there(yard, topic, acknowledged)
    assert segments[0].with_suffix(".index").exists()


def test_a_leader_that_stands_still_and_wakes_up_again(yard: RealCluster) -> None:
    topic = "sleeper"
    yard.create(topic, 3, 3, min_insync_replicas="2")
    load = Load(yard, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 300, "load runs")
    sleeper = yard.describe(topic)[0].leader
    pid = pid_of(yard, sleeper)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1)
        so_far = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > so_far + 300, "others lead", 60)
    finally:
        os.kill(pid, signal.SIGCONT)
    so_far = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > so_far + 300, "load goes on", 60)
    check_all_there(yard, topic, load.stop())


def test_a_follower_without_descriptors_follows_again_when_it_has_some(yard: RealCluster) -> None:
    topic = "crowded"
    yard.create(topic, 2, 3, min_insync_replicas="2", segment_bytes="20000")
    acknowledged = yard.produce(topic, [(b"%d" % n, b"%06d" % n) for n in range(100)])
    eventually(lambda: yard.isrs_full(topic), "every replica is in sync")
    leaders = {p.leader for p in yard.describe(topic).values()}
    follower = next(b["id"] for b in yard.description["brokers"] if b["id"] not in leaders)
    pid, said = pid_of(yard, follower), yard.directory / "logs" / f"broker-{follower}.log"
    small = {"batch.size": 5000}
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # What is open stays open; for anything new its number would be too high.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, limits[1]))
    try:
        acknowledged |= yard.produce(topic, [(b"%d" % n, b"%06d" % n + b"z" * 500) for n in range(100, 1000)], **small)
        assert len(acknowledged) == 1000
        eventually(lambda: said.read_text().count("cannot be followed now") > 2, "it says so, and tries again")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert "ulimit -n" in said.read_text()
    check_all_there(yard, topic, acknowledged)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB of its own."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        lacks("no file system may be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk_costs_its_own_replicas_until_there_is_room_again(yard: RealCluster, small_disk: Path) -> None:
    topic, broker = "filler", 2
    home = yard.directory / f"broker-{broker}"
    yard.cluster.stop_broker(broker, signal.SIGTERM)
    subprocess.run(["cp", "-a", f"{home}/two/.", str(small_disk)], check=True)
    subprocess.run(["mount", "--bind", str(small_disk), str(home / "two")], check=True)
    try:
        yard.cluster.start_broker(broker)
        yard.create(topic, 4, 3, min_insync_replicas="2")
        acknowledged = yard.produce(topic, [(b"%d" % n, b"%06d" % n) for n in range(1000)])
        _fill(small_disk / "ballast")
        acknowledged |= yard.produce(topic, [(b"%d" % n, b"%06d" % n + b"w" * 1000) for n in range(1000, 4000)])
        assert len(acknowledged) == 4000
        two = str(home / "two")
        assert eventually(lambda: log_dirs(yard, broker)[two][0] == STORAGE_ERROR, "the full one is offline")
        assert log_dirs(yard, broker)[str(home / "one")][0] == 0
        (small_disk / "ballast").unlink()
        yard.cluster.stop_broker(broker, signal.SIGTERM)
        yard.cluster.start_broker(broker)
        check_all_there(yard, topic, acknowledged)
    finally:
        yard.cluster.stop_broker(broker, signal.SIGTERM)
        subprocess.run(["umount", "-l", str(home / "two")], check=False)


def _fill(path: Path) -> None:
    """Write until not a byte is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(path).f_bavail == 0
