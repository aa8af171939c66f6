"""A whole broker that stops while clients wait: each is answered at once, and the listeners close together."""

import asyncio
import time
from pathlib import Path
from typing import Any

from logyard.broker.broker import Broker, real_environment
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.environment import Environment
from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import encode_request as encode_fetch
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree

FETCH, FIND_COORDINATOR, JOIN_GROUP, CREATE_TOPICS = 1, 10, 11, 19
LONG_MS = 60_000
SETTINGS = """
broker.id=1
listeners=ONE://127.0.0.1:0,TWO://127.0.0.1:0
listener.security.protocol.map=ONE:PLAINTEXT,TWO:PLAINTEXT
inter.broker.listener.name=ONE
zookeeper.connect=in.memory:2181
log.cleaner.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=60000
"""


class Client:
    """One connection that has one request under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, frame: bytes) -> None:
        self._writer.write(frame)

    async def answer(self, api_key: int, version: int) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return codec.decode_response(api_key, version, memoryview(await self._reader.readexactly(size)))[1]

    async def ask(self, api_key: int, version: int, fields: Any) -> Any:
        self.send(codec.encode_request(api_key, version, 1, "c", fields))
        return await self.answer(api_key, version)

    async def ended(self) -> bool:
        found = await self._reader.read() == b""
        self._writer.close()
        return found


async def started(directory: Path) -> tuple[Broker, Environment]:
    config = BrokerConfig.parse(f"{SETTINGS}\nlog.dirs={directory / 'logs'}")
    world = real_environment(config)
    tree = ZooKeeperTree(world.clock)
    world.open_zookeeper = lambda: MemoryZooKeeper(tree)
    world.open_http = None
    broker = Broker(config, world)
    await broker.start()
    return broker, world


def joining() -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": b""}]
    member = {"member_id": "", "protocol_type": "consumer", "protocols": protocols}
    return {"group_id": "g", "session_timeout_ms": 30_000, "rebalance_timeout_ms": LONG_MS, **member}


async def test_who_waits_is_answered_at_once(tmp_path: Path) -> None:
    broker, world = await started(tmp_path)
    async with asyncio.timeout(60):
        ports = [listener.port for listener in broker.listeners]
        first = await Client.to(ports[0])
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        await first.ask(CREATE_TOPICS, 2, {"topics": [topic], "timeout_ms": 30_000})
        while (await first.ask(FIND_COORDINATOR, 1, {"key": "g", "key_type": 0})).error_code:
            await asyncio.sleep(0.05)
        fetch = FetchRequest(-1, LONG_MS, 1, [FetchPartition("t", None, 0, 0, 1 << 20)], session_epoch=-1)
        fetchers = [await Client.to(port) for port in ports]
        for fetcher in fetchers:
            fetcher.send(encode_fetch(11, 1, "c", fetch))
        member = await Client.to(ports[1])
        member.send(codec.encode_request(JOIN_GROUP, 2, 1, "c", joining()))
        while sum(connection.busy for listener in broker.listeners for connection in listener.connections) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        await broker.close()
        took = time.monotonic() - begun
        for fetcher in fetchers:
            (found,) = (await fetcher.answer(FETCH, 11)).responses
            assert found.partitions[0].error_code == ErrorCode.NONE
            assert await fetcher.ended()
        assert (await member.answer(JOIN_GROUP, 2)).error_code == ErrorCode.NOT_COORDINATOR
        assert await member.ended()
        assert await first.ended()
    world.close()
    assert took < 3, "the grace of one listener is five seconds"
