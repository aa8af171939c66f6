"""A Fetch that names more partitions than there are: each would be read and answered in one turn of the event loop."""

from pathlib import Path

from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import encode_request
from logyard.broker.server.handlers import fetch
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient


async def is_served(broker: InsideBroker, topic: str, count: int) -> bool:
    client = await SaslClient.connect(broker.port)
    asks = [FetchPartition(topic, None, number % 100, 0, 1) for number in range(count)]
    client.send(encode_request(12, 1, "c", FetchRequest(-1, 0, 0, asks)))
    answer = await client.frame(60)
    await client.close()
    return answer is not None


async def test_its_connection_ends(tmp_path: Path) -> None:
    async with InsideBroker(tmp_path) as broker:
        most = fetch.BYTES_BESIDES // 35
        assert await is_served(broker, "no-such-topic", most - 100)
        assert not await is_served(broker, "no-such-topic", most + 2000)
        await broker.create_topic("wide", 300)
        assert await is_served(broker, "wide", most + 1000), "there are more, and so a request may be longer"
        assert not await is_served(broker, "wide", most + 10_000)
