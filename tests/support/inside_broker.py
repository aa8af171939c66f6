"""A whole broker inside this process: real handlers, replicas and logs, ZooKeeper in memory, and no sockets.

`async with InsideBroker(directory) as broker` starts and stops it. `broker.create_topic` makes a topic,
`broker.connect().feed(frame)` hands it what a socket would, and `broker.components.dispatcher(session, frame)` gives
the answer to one frame. What a request costs here is Python and the file: benchmarks and profiles are taken of it.
"""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import structlog

from logyard.broker.broker import Broker, real_environment
from logyard.broker.components import Components
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.protocol import codec
from logyard.broker.server.connection import Connection
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree

CREATE_TOPICS = 19
SETTINGS = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.connect": "in.memory:2181",
    "log.cleaner.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "controlled.shutdown.retry.backoff.ms": "100",  # there is nobody whom it could hand its leadership to
}


class Wire:
    """A transport that takes what is written and keeps only the last piece and the number of writes."""

    def __init__(self) -> None:
        self.writes = self.bytes = 0
        self.last = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes += 1
        self.bytes += len(data)
        self.last = bytes(data[:64])

    def writelines(self, pieces: Any) -> None:
        self.writes += 1
        self.bytes += sum(map(len, pieces))
        self.last = bytes(pieces[0][:64])

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4000)


class InsideBroker:
    """One broker on this loop; `async with` starts and stops it."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        lines = {**SETTINGS, "log.dirs": str(directory / "logs"), **(settings or {})}
        self._config = BrokerConfig.parse("\n".join(f"{key}={value}" for key, value in lines.items()))
        self._broker: Broker | None = None

    async def __aenter__(self) -> "InsideBroker":
        self._logging = structlog.get_config()  # other tests in this process look at what is logged
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        world = self._world = real_environment(self._config)
        tree = ZooKeeperTree(world.clock)
        world.open_zookeeper = lambda: MemoryZooKeeper(tree)
        world.open_http = None
        self._broker = Broker(self._config, world)
        await self._broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._broker is not None
        try:
            await self._broker.close()
        finally:
            self._world.close()
            structlog.configure(**self._logging)
            # Its files close with what names them, in circles: before the next broker has the collector leave all out.
            self._broker = None
            gc.collect()

    @property
    def components(self) -> Components:
        assert self._broker is not None
        assert self._broker.components is not None
        return self._broker.components

    @property
    def port(self) -> int:
        """That of its first listener."""
        assert self._broker is not None
        port: int = self._broker.listeners[0].port
        return port

    def port_of(self, listener: str) -> int:
        """That of the listener of this name."""
        assert self._broker is not None
        return next(int(each.port) for each in self._broker.listeners if each.name == listener)

    @property
    def connections(self) -> list[Connection]:
        """The connections of all listeners."""
        assert self._broker is not None
        return [connection for listener in self._broker.listeners for connection in listener.connections]

    def connect(self) -> "InsideConnection":
        """A connection as a listener would make it, with nothing behind its transport: what is fed to it has one turn,
        however long that takes."""
        dispatcher = self.components.dispatcher
        connection = Connection(dispatcher, "PLAINTEXT", 1, 100 << 20, lambda _: True, lambda _: None)
        connection.clock = lambda: 1.0
        return InsideConnection(connection)

    async def create_topic(self, name: str, partitions: int) -> None:
        """Ask for a topic on the wire and wait until every partition is led, and known to be."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        asked = {"topics": [topic], "timeout_ms": 30_000}
        self.connect().feed(codec.encode_request(CREATE_TOPICS, 5, 1, "inside", asked))
        led = self.components.replicas.hosted.partitions
        async with asyncio.timeout(60):
            while sum(tp.topic == name and p.is_leader for tp, p in led.items()) < partitions:
                await asyncio.sleep(0.01)
            while len(self.components.metadata.partitions(name)) < partitions:
                await asyncio.sleep(0.01)


class InsideConnection:
    """Feeds frames as a socket would: into the buffer that the connection hands out."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.wire = Wire()
        connection.connection_made(self.wire)  # type: ignore[arg-type]  # the transport's twin

    def feed(self, data: bytes) -> None:
        """Hand over all of `data`, in as many pieces as the connection's buffer asks for."""
        connection, at = self.connection, 0
        while at < len(data):
            buffer = connection.get_buffer(65536)
            taken = min(len(buffer), len(data) - at)
            buffer[:taken] = data[at : at + taken]
            connection.buffer_updated(taken)
            at += taken
        if self.wire.closed:
            raise RuntimeError("the broker closed the connection")
