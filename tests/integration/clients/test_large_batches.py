"""Batches of many records, which a compiled loop looks at once a broker has loaded it: three real brokers."""

import random
import struct
import uuid

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.records.crc import crc32c
from tests.support.real_cluster import RealCluster, eventually
from tests.support.wire_client import ask

PRODUCE = 0
NOW = 1_700_000_000_000
LOADED = "many records are read in compiled loops"
CODECS = range(5)


def records(count: int) -> list[Record]:
    chance = random.Random(count)
    return [Record(n, NOW + n, b"k" * (n % 40), chance.randbytes(50) + bytes(n % 200)) for n in range(count)]


def send(cluster: RealCluster, topic: str, sent: bytes) -> tuple[int, int]:
    """Send a batch to the topic's leader; return the error's code and the base offset."""
    leader = cluster.describe(topic)[0].leader
    partition = {"index": 0, "records": sent}
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 20_000}
    topic_data = [{"name": topic, "partition_data": [partition]}]
    answer = ask(cluster.address(leader), PRODUCE, 9, {**fields, "topic_data": topic_data})
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def one_too_many(some: list[Record], codec: int) -> bytes:
    """A batch whose header says that it has a record more."""
    made = batch.build(some, compression=codec)
    struct.pack_into(">i", made, 23, len(some))
    struct.pack_into(">i", made, 57, len(some) + 1)
    struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return bytes(made)


@pytest.fixture
def loaded(cluster: RealCluster) -> str:
    """A topic whose leader has loaded the loop; its records are old, and stay."""
    topic = f"large-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, 1, 3, retention_ms="-1")
    eventually(lambda: cluster.isrs_full(topic), "the topic is led")
    assert send(cluster, topic, bytes(batch.build(records(3000)))) == (0, 0)
    log = cluster.directory / "logs" / f"broker-{cluster.describe(topic)[0].leader}.log"
    eventually(lambda: LOADED in log.read_text(), f"{log.name} says that it is loaded", 60)
    return topic


def test_they_are_kept_or_refused_whichever_the_codec(cluster: RealCluster, loaded: str) -> None:
    many = records(5000)
    expected = 3000
    for codec in CODECS:
        assert send(cluster, loaded, bytes(batch.build(many, compression=codec))) == (0, expected)
        expected += len(many)
        assert send(cluster, loaded, one_too_many(many, codec)) == (ErrorCode.INVALID_RECORD, -1)
    read = cluster.consume(loaded, expected)
    assert [message.offset() for message in read[-5000:]] == list(range(expected - 5000, expected))
    assert [(m.key(), m.value()) for m in read[-5000:]] == [(r.key or b"", r.value) for r in many]
