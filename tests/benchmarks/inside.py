"""A whole broker inside this process: real handlers, replicas and logs, ZooKeeper in memory, and no sockets.

What a request costs here is Python and the file; the kernel's network is left out. It is what profiles are taken of.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from logyard.broker.broker import Broker, real_environment
from logyard.broker.components import Components
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.server.connection import Connection
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from tests.benchmarks import frames

SETTINGS = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.connect": "in.memory:2181",
    "log.cleaner.enable": "false",
    "offsets.topic.replication.factor": "1",
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
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        world = real_environment(self._config)
        tree = ZooKeeperTree(world.clock)
        world.open_zookeeper = lambda: MemoryZooKeeper(tree)
        world.open_http = None
        self._broker = Broker(self._config, world)
        await self._broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._broker is not None
        await self._broker.close()

    @property
    def components(self) -> Components:
        assert self._broker is not None
        assert self._broker.components is not None
        return self._broker.components

    def connect(self) -> "InsideConnection":
        """A connection as a listener would make it, with nothing behind its transport."""
        dispatcher = self.components.dispatcher
        connection = Connection(dispatcher, "PLAINTEXT", 1, 100 << 20, lambda _: True, lambda _: None)
        return InsideConnection(connection)

    async def create_topic(self, name: str, partitions: int) -> None:
        """Ask for a topic on the wire and wait until every partition is led."""
        self.connect().feed(frames.create_topic(name, partitions))
        led = self.components.replicas.hosted.partitions
        async with asyncio.timeout(60):
            while sum(tp.topic == name and p.is_leader for tp, p in led.items()) < partitions:
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


def least_cpu_us(work: Callable[[], None], calls: int, rounds: int) -> float:
    """CPU µs of one of the `calls` that one `work` makes, in the best of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - begun)
    return best / calls / 1000


def warm_page_cache(directory: Path, size: int) -> None:
    """Have the system map `size` bytes of memory: writing to pages it has never used costs a virtual machine more."""
    path = directory / "warm"
    with path.open("wb", buffering=0) as file:
        piece = bytes(1 << 20)
        for _ in range(size >> 20):
            os.write(file.fileno(), piece)
    path.unlink()
