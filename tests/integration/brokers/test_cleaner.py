"""A broker without Spark keeps its compacted topics clean: while it serves, and over a kill in the midst of it."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.support.real_cluster import RealCluster, eventually

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "6000",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
}
SMALL = {"batch.size": 4000}  # several batches to a segment
KEYS = 97


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealCluster]:
    running = LocalCluster(tmp_path / "cluster")
    running.start(Settings(1, None, None, CONFIG))
    try:
        yield RealCluster(running)
    finally:
        running.stop()


def events(start: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % KEYS), b"%d-" % number + bytes(50)) for number in range(start, start + count)]


def broker_id(cluster: RealCluster) -> int:
    (broker,) = cluster.description["brokers"]
    return int(broker["id"])


def cleaned_to(cluster: RealCluster, topic: str) -> int:
    """The topic's line in the broker's cleaner-offset-checkpoint, 0 without one."""
    (broker,) = cluster.description["brokers"]
    path = Path(broker["log_dirs"][0]) / "cleaner-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return next((int(offset) for name, partition, offset in rows if (name, partition) == (topic, "0")), 0)


def log_bytes(cluster: RealCluster, topic: str) -> int:
    (directory,) = cluster.replica_dirs(topic, 0).values()
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def children(cluster: RealCluster) -> list[int]:
    """The broker's child processes that clean."""
    (broker,) = cluster.description["brokers"]
    found = []
    for path in Path(f"/proc/{broker['pid']}/task").glob("*/children"):
        for pid in map(int, path.read_text().split()):
            if b"logyard.broker.cleaner.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found += [pid]
    return found


def last_of_keys(cluster: RealCluster, topic: str, end: int) -> tuple[dict[bytes, tuple[int, bytes]], int]:
    """Read up to an offset with a stock consumer: (offset, value) of each key's last record, and how many records."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: dict[bytes, tuple[int, bytes]] = {}
    count = 0
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def whole() -> bool:
            nonlocal count
            for message in consumer.consume(1000, 0.05):
                assert message.error() is None
                count += 1
                found[message.key()] = message.offset(), message.value()
            return bool(found) and max(offset for offset, _ in found.values()) >= end

        eventually(whole, f"offset {end} can be read")
        return found, count
    finally:
        consumer.close()


def commit_offsets(cluster: RealCluster, times: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "steady", "enable.auto.commit": False})
    try:
        for number in range(times):
            consumer.commit(offsets=[TopicPartition("latest", 0, number)], asynchronous=False)
    finally:
        consumer.close()


def throttle(cluster: RealCluster, bytes_per_second: int) -> None:
    """Set a bound for the cleaner while the broker runs."""
    entry = ConfigEntry(
        "log.cleaner.io.max.bytes.per.second", str(bytes_per_second), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker_id(cluster)), incremental_configs=[entry])
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def expected(acknowledged: dict[Any, int], sent: list[tuple[bytes, bytes]]) -> dict[bytes, tuple[int, bytes]]:
    return {key: (acknowledged[0, value], value) for key, value in sent}


def test_topics_stay_clean_under_load_and_over_a_kill(broker: RealCluster) -> None:
    topic = "latest"
    broker.create(topic, 1, 1, cleanup_policy="compact", segment_bytes="100000")
    acknowledged: dict[Any, int] = {}
    load = threading.Thread(target=lambda: acknowledged.update(broker.produce(topic, events(0, 12_000), **SMALL)))
    load.start()
    commit_offsets(broker, 300)
    load.join()
    written = 12_000 * 60
    eventually(lambda: log_bytes(broker, topic) < written / 3, f"{topic} is clean")
    eventually(lambda: cleaned_to(broker, "__consumer_offsets") > 200, "the offsets' topic is clean")
    assert log_bytes(broker, "__consumer_offsets") < 300 * 100 / 2
    found, count = last_of_keys(broker, topic, 11_999)
    assert found == expected(acknowledged, events(0, 12_000))
    assert count < 6000

    throttle(broker, 20_000)
    acknowledged |= broker.produce(topic, events(12_000, 6_000), **SMALL)
    (directory,) = broker.replica_dirs(topic, 0).values()
    eventually(lambda: children(broker) and list(directory.glob(".leases/*/links/*.log")), "a cleaning is under way")
    (child,) = children(broker)
    number = broker_id(broker)
    before = cleaned_to(broker, topic)
    broker.cluster.stop_broker(number, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{child}").exists(), "the cleaner's process ends with its broker")
    assert cleaned_to(broker, topic) == before

    broker.cluster.start_broker(number)
    throttle(broker, 1 << 40)
    eventually(lambda: cleaned_to(broker, topic) > before, "it is cleaned after the kill")
    found, _ = last_of_keys(broker, topic, 17_999)
    assert found == expected(acknowledged, events(0, 18_000))
    assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    committed = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "steady"})
    try:
        (position,) = committed.committed([TopicPartition(topic, 0)], timeout=20)
        assert position.offset == 299
    finally:
        committed.close()
