"""Clients in plain text get records from the brokers' files: stock ones, slow ones, and while segments are deleted."""

import hashlib
import random
import threading
import time
import urllib.request
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.dropped import skip_unless_told
from tests.support.lease_job import broker_https
from tests.support.other_clients import client_or_skip
from tests.support.real_cluster import RealCluster

KB = 1000
GAUGE = "\nlogyard_answer_bytes_sent_from_files "
# Every byte of a batch is checked against what the producer wrote.
CHECKED = {"check.crcs": True, "fetch.message.max.bytes": 1_000_000, "auto.offset.reset": "earliest"}


def values(count: int, size: int) -> list[bytes]:
    """Values that say in themselves whether they are whole."""
    chance = random.Random(count)
    made = []
    for _ in range(count):
        content = chance.randbytes(size - 20)
        made.append(hashlib.sha1(content).digest() + content)
    return made


def is_whole(value: bytes) -> bool:
    return hashlib.sha1(value[20:]).digest() == value[:20]


def sent_from_files(cluster: RealCluster) -> float:
    """How many bytes all brokers have sent from files."""
    total = 0.0
    for broker in broker_https(cluster.description).values():
        with urllib.request.urlopen(f"http://{broker.address}/metrics") as answer:
            total += float(answer.read().decode().split(GAUGE)[1].split("\n")[0])
    return total


def reader(cluster: RealCluster, topic: str, **more: Any) -> Consumer:
    made = Consumer({**cluster.client_options, **CHECKED, "group.id": topic, "enable.auto.commit": False, **more})
    made.assign([TopicPartition(topic, 0, 0)])
    return made


@pytest.fixture(autouse=True)
def _told(cluster: RealCluster) -> None:
    skip_unless_told(cluster.directory)


def test_many_megabytes_are_read_by_fast_and_by_slow_readers(cluster: RealCluster) -> None:
    topic = f"files-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, 1, 3)
    sent = values(200, 50 * KB)
    assert len(cluster.produce(topic, [(None, value) for value in sent])) == len(sent)
    before = sent_from_files(cluster)
    fast = reader(cluster, topic)
    # The broker's answers wait in the sockets of one that reads little and pauses.
    slow = reader(cluster, topic, **{"socket.receive.buffer.bytes": 20 * KB, "queued.max.messages.kbytes": 100})
    read: dict[Consumer, list[bytes]] = {fast: [], slow: []}
    try:
        deadline = time.monotonic() + 60
        while any(len(each) < len(sent) for each in read.values()) and time.monotonic() < deadline:
            for consumer, count in ((fast, 100), (slow, 10)):
                found = consumer.consume(min(count, len(sent) - len(read[consumer])), 0.05)
                assert not [message.error() for message in found if message.error()]
                read[consumer] += [message.value() for message in found]
    finally:
        fast.close()
        slow.close()
    assert read[fast] == sent
    assert read[slow] == sent
    assert sent_from_files(cluster) - before > 7_000 * KB


def test_what_other_clients_read_is_whole(cluster: RealCluster) -> None:
    topic = f"files-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, 2, 3)
    sent = [f"{number}-".encode() + b"x" * 20 * KB for number in range(300)]
    assert len(cluster.produce(topic, [(None, value) for value in sent])) == len(sent)
    for name in ("kafkajs", "sarama"):
        before = sent_from_files(cluster)
        wanted: dict[str, Any] = {"topic": topic, "group": f"g-{name}-{topic}", "count": len(sent)}
        read = client_or_skip(name).do("consume", bootstrap=cluster.bootstrap, **wanted)
        assert sorted(read["values"]) == sorted(value.decode() for value in sent)
        assert sent_from_files(cluster) - before > 2_000 * KB


def test_readers_of_segments_that_are_deleted_meanwhile_get_whole_records(cluster: RealCluster) -> None:
    topic = f"files-{uuid.uuid4().hex[:8]}"
    sizes = {"segment_bytes": str(1000 * KB), "retention_bytes": str(3000 * KB), "file_delete_delay_ms": "0"}
    cluster.create(topic, 1, 1, **sizes)
    sent = values(60, 50 * KB)
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            cluster.produce(topic, [(None, value) for value in sent])

    writer = threading.Thread(target=write)
    writer.start()
    consumer, seen = reader(cluster, topic), 0

    def is_done() -> bool:
        """Whether enough was read, with segments deleted meanwhile (brokers begin with that half a minute late)."""
        return seen > 200 and consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[0] > len(sent)

    try:
        deadline = time.monotonic() + 90
        while not is_done() and time.monotonic() < deadline:
            for message in consumer.consume(200, 0.2):
                assert message.error() is None, message.error()
                assert is_whole(message.value())
                seen += 1
        assert is_done()
    finally:
        ends.set()
        writer.join()
        consumer.close()
