"""A Fetch that names more partitions than there are: each would be read and answered in one turn of the event loop."""

import struct
from collections.abc import Sequence
from pathlib import Path

from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import encode_request
from logyard.broker.replication.fetch.sessions import PARTITIONS_BESIDES
from logyard.broker.server.handlers.fetch import SHORT_BYTES
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient


async def is_served(broker: InsideBroker, frame: bytes) -> bool:
    client = await SaslClient.connect(broker.port)
    client.send(frame)
    answer = await client.frame(60)
    await client.close()
    return answer is not None


def asking(topic: str, numbers: Sequence[int], version: int = 12) -> bytes:
    asks = [FetchPartition(topic, None, number, 0, 1) for number in numbers]
    return encode_request(version, 1, "c", FetchRequest(-1, 0, 0, asks))


def forgetting(count: int) -> bytes:
    return encode_request(12, 1, "c", FetchRequest(-1, 0, 0, [], forgotten=[("t", None, n) for n in range(count)]))


async def test_its_connection_ends(tmp_path: Path) -> None:
    async with InsideBroker(tmp_path) as broker:
        most = PARTITIONS_BESIDES - 1  # the topic is a part too
        for version in (4, 12):
            frame = asking("no-such-topic", range(most), version)
            assert len(frame) > SHORT_BYTES
            assert await is_served(broker, frame)
            assert not await is_served(broker, asking("no-such-topic", range(most + 1), version))
        assert not await is_served(broker, forgetting(20_000))
        await broker.create_topic("wide", 300)
        assert await is_served(broker, asking("wide", range(most + 600))), "there are more, so it may name more"
        assert not await is_served(broker, asking("wide", range(most + 1201)))


async def test_topics_without_partitions_count_too(tmp_path: Path) -> None:
    async with InsideBroker(tmp_path) as broker:
        head = asking("t", [])[4:]
        topics = head.index(b"\x01\x01\x01\x00", 20)  # none, none to forget, no rack, no tags
        many = head[:topics] + b"\x80\xf1\x04" + b"\x01\x01\x00" * 79_999 + head[topics + 1 :]
        assert not await is_served(broker, struct.pack(">i", len(many)) + many)
