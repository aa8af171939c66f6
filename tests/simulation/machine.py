"""One simulated machine: a disk that outlives its brokers, and one broker process after another on it."""

import random
import uuid
from collections.abc import Callable
from typing import Any

from logyard.broker.broker import Broker
from logyard.broker.components import Components
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.environment import Environment
from logyard.broker.log.disk.memory import MachineStopped, MemoryDisk, MemoryFile
from logyard.broker.log.disk.memory_nodes import Choose
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.model import Endpoint
from logyard.broker.server.connection import Connection
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.logins.logins import BeginLogin
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from tests.simulation.blocking import breathe, breathing
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import NOBODY, Process
from tests.simulation.trace import Trace

WALL_CLOCK_AT_0_MS = 1_700_000_000_000
PORT = 9092
LISTENER = "PLAINTEXT"


class SimClock:
    """A monotonic clock over the loop's virtual time, and a wall clock that is wrong by `error_ms`."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.error_ms = 0

    def now_ms(self) -> int:
        return WALL_CLOCK_AT_0_MS + int(self._loop.now * 1000) + self.error_ms

    def monotonic(self) -> float:
        return self._loop.now


class SeededChance:
    """The controller's randomness, out of the seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def below(self, bound: int) -> int:
        return self._chance.randrange(bound)

    def topic_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128) & ~(1 << 127), version=4)


class SimFile(MemoryFile):
    """A file that threads wait for."""

    write_at = breathing(MemoryFile.write_at)
    truncate = breathing(MemoryFile.truncate)
    size = breathing(MemoryFile.size)
    sync = breathing(MemoryFile.sync)

    def read_at(self, size: int, position: int) -> bytes:
        breathe()
        data = super().read_at(size, position)
        breathe(slowly=self._disk.cold)  # it has the bytes, and does not know yet what became of them since
        return data


class SimDisk(MemoryDisk):
    """A disk that threads wait for. Tells at once when the machine stops in the midst of an operation."""

    stopped: Callable[[], None]

    list = breathing(MemoryDisk.list)
    exists = breathing(MemoryDisk.exists)
    status = breathing(MemoryDisk.status)
    rename = breathing(MemoryDisk.rename)
    link = breathing(MemoryDisk.link)
    remove = breathing(MemoryDisk.remove)
    remove_tree = breathing(MemoryDisk.remove_tree)
    make_directory = breathing(MemoryDisk.make_directory)
    sync_directory = breathing(MemoryDisk.sync_directory)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        breathe()
        super().open(path, create=create, write=write)
        return SimFile(self, path, self.inode(path))

    @property
    def is_failing(self) -> bool:
        return bool(self._failing)

    def step(self, path: str, boot: int | None = None, torn: Callable[[Choose], None] | None = None) -> None:
        try:
            super().step(path, boot, torn)
        except MachineStopped:
            self.stopped()
            raise


class SimZooKeeper(MemoryZooKeeper):
    """The ZooKeeper session of one process: its requests always arrive, answers reach it only while it runs."""

    def __init__(self, tree: ZooKeeperTree, process: Process, loop: SimLoop, chance: random.Random) -> None:
        self._process, self._loop, self._chance = process, loop, chance
        super().__init__(tree, latency=lambda: chance.uniform(0.0005, 0.004), reconnect_s=0.05)

    @property
    def is_connected(self) -> bool:
        return self._connected

    def _hop(self, step: Callable[[], None]) -> None:
        context = self._process.context if step == self._deliver else NOBODY
        self._loop.call_later(self._latency(), step, context=context)

    def killed(self) -> None:
        """What was sent arrives, up to some request."""
        for _ in range(self._chance.randrange(len(self._outbound) + 1) if self._outbound else 0):
            self._arrive()
        self.crash()


class SimListener:
    """What server/listener.py is on real sockets."""

    def __init__(self, endpoint: Endpoint, network: Network, process: Process, frame_bytes_max: int) -> None:
        self.name, self.host, self.port = endpoint.listener, endpoint.host, endpoint.port
        self._network, self._process, self._frame_bytes_max = network, process, frame_bytes_max
        self._connections: dict[int, Connection] = {}
        self._last_id = 0

    async def serve(self, dispatcher: Dispatcher, begin_login: BeginLogin | None = None) -> None:
        assert begin_login is None, "simulated listeners have no SASL"

        def connection() -> Connection:
            self._last_id += 1
            return Connection(
                dispatcher,
                self.name,
                self._last_id,
                self._frame_bytes_max,
                self._opened,
                self._closed,
            )

        self._network.listen(self._process, self.host, self.port, connection)

    async def drain(self) -> None:
        self._network.unlisten(self._process, self.host, self.port)
        for connection in list(self._connections.values()):
            connection.drain()

    async def close(self, grace_s: float = 5.0) -> None:
        await self.drain()
        loop = self._network.loop
        deadline = loop.time() + grace_s
        while self._connections and loop.time() < deadline:
            await _pause()
        for connection in list(self._connections.values()):
            connection.close()

    def _opened(self, connection: Connection) -> bool:
        self._connections[connection.session.connection_id] = connection
        return True

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection.session.connection_id, None)


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.02)


class Machine:
    """Host of broker `id`. `process` is None between a death and the next start."""

    def __init__(
        self, broker_id: int, seed: str, settings: dict[str, str], loop: SimLoop, network: Network, trace: Trace
    ) -> None:
        self.id = broker_id
        self.name = f"b{broker_id}"
        self.boots = 0
        self.clock = SimClock(loop)
        self.disk: SimDisk = SimDisk(self.clock.now_ms, self._choose)
        self.disk.stopped = self._stopped_in_write
        self.disk.make_directory(f"/{self.name}")
        self.disk.sync_directory("/")
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.zk: SimZooKeeper | None = None
        self.graveyard: list[Process] = []
        self.loses_power = False
        self.is_leaving = False  # told to stop: it serves on for a while
        self._chance = random.Random(f"{seed} machine {broker_id}")
        self._settings = settings
        self._loop, self._network, self._trace = loop, network, trace

    def _choose(self, bound: int) -> int:
        return self._chance.randrange(bound)

    # What it is now

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def components(self) -> Components | None:
        """The broker's parts, while its process lives."""
        return self.broker.components if self.broker is not None and self.process is not None else None

    @property
    def is_serving(self) -> bool:
        components = self.components
        return components is not None and components.running

    # Life

    def start(self, tree: ZooKeeperTree) -> None:
        assert self.process is None, "one broker at a time"
        self.boots += 1
        self.broker = None
        self.disk.heal()
        self.disk.restart(self._choose if self.loses_power else None)
        self.loses_power = False
        process = self.process = Process(self.name)
        process.spawn(self._run(process, tree))

    async def _run(self, process: Process, tree: ZooKeeperTree) -> None:
        broker = self.broker = Broker(self._config(), self._environment(process, tree))
        failure = ""
        try:
            status = await broker.run()
        except Exception as error:  # whatever it is: the process ends, and the trace says of what
            status, failure = 1, f"{type(error).__name__}: {error}"
        self._trace.event(f"{self.name} ended with status {status} {failure}")
        if process.alive:
            self._end("exit")

    def _config(self) -> BrokerConfig:
        settings = {
            "broker.id": str(self.id),
            "listeners": f"{LISTENER}://{self.name}:{PORT}",
            "log.dirs": f"/{self.name}/one,/{self.name}/two",
            "zookeeper.connect": "zk:2181",
            **self._settings,
        }
        return BrokerConfig.parse("\n".join(f"{key}={value}" for key, value in settings.items()))

    def _environment(self, process: Process, tree: ZooKeeperTree) -> Environment:
        loop, chance = self._loop, random.Random(self._chance.getrandbits(64))

        def open_zookeeper() -> SimZooKeeper:
            self.zk = SimZooKeeper(tree, process, loop, chance)
            return self.zk

        return Environment(
            clock=self.clock,
            disk=self.disk,
            chance=SeededChance(chance),
            new_uuid=lambda: uuid.UUID(int=chance.getrandbits(128), version=4),
            new_session_id=lambda: chance.randrange(1, 2**31),
            run_blocking=lambda work: loop.run_in_executor(None, work),
            open_zookeeper=open_zookeeper,
            open_listener=lambda endpoint, _: SimListener(endpoint, self._network, process, 1 << 20),
            open_http=None,
            close=lambda: None,
        )

    def kill(self, *, power: bool = False) -> None:
        """The process is gone at once; with `power` its machine too, and some of what was not synced."""
        if self.process is not None:
            self.loses_power = power
            self._end("power loss" if power else "kill")

    def _stopped_in_write(self) -> None:
        if self.process is not None:
            self._end("kill in a disk operation")

    def _end(self, how: str) -> None:
        assert self.process is not None
        process, self.process = self.process, None
        self.is_leaving = False
        self._trace.event(f"{self.name} is down: {how}")
        process.die()
        self._network.kill(process)
        if self.zk is not None:
            self.zk.killed()
        self.graveyard.append(process)

    def stop(self) -> None:
        """SIGTERM."""
        if self.process is not None and self.broker is not None:
            self.is_leaving = True
            self._loop.call_soon(self.broker.stop, context=self.process.context)

    def bury(self) -> None:
        if self.process is not None:
            self.graveyard.append(self.process)
        for process in self.graveyard:
            process.bury()

    def __repr__(self) -> str:
        return self.name

    def settings(self) -> dict[str, Any]:
        return dict(self._settings)
