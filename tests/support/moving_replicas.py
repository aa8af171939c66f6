"""A broker's replicas on real logs in two log directories, and their moves between these.

    broker = await led()  # it leads a-0, which lies in ONE and has 40 batches
    broker.moves.alter({A0: TWO})
    await broker.ended()
    await broker.stop()  # or `store.abandon()`, `disk.restart()`, and `Broker(disk)` again: as after kill -9

`reads_logs` cleared has threads that read logs wait; `disk.cold`, `disk.fail` are faults to plant.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicId, TopicPartition
from logyard.broker.replication.events import LeaderAndIsr, LeaderAndIsrPartition, StopReplica, StopReplicaPartition
from logyard.broker.replication.log_dir_moves import LogDirMoves
from logyard.broker.replication.replicas import Replicas
from logyard.broker.replication.settings import ReplicaSettings
from tests.support.logs import produced

ONE, TWO = "/disks/one", "/disks/two"
A0 = TopicPartition("a", 0)
CONFIG = TopicConfig(segment_bytes=2000, file_delete_delay_ms=10_000)
RATE = 2**63 - 1


class Broker:
    """A store on two directories, the replicas on it, and their moves."""

    def __init__(self, disk: MemoryDisk | None = None, rate: int = RATE) -> None:
        loop = asyncio.get_running_loop()
        self.disk = disk or MemoryDisk()
        self.disk.make_directory("/disks")
        self.disk.sync_directory("/")
        self.clock = ManualClock()
        self.notes: list[str] = []
        self.pauses: list[float] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.in_thread = False
        self.reads_logs = asyncio.Event()
        self.reads_logs.set()
        self.metadata = MetadataCache()
        self.store = LogStore(
            StoreSettings((ONE, TWO)),
            self.disk,
            self.clock,
            self.run,
            topic_config=lambda topic: CONFIG,
            on_offline=lambda path, gone: self.replicas.requests.take_offline(gone),
        )
        settings = ReplicaSettings(broker_id=1, fetch_max_bytes=500, alter_log_dirs_rate=rate)
        no_changes: Any = None
        self.replicas = Replicas(
            settings,
            logs=self.store.logs,
            metadata=self.metadata,
            topic_config=lambda topic: CONFIG,
            isr_changes=no_changes,
            clock=self.clock,
            timers=loop,
            new_pending=loop.create_future,
            run_blocking=lambda work: asyncio.ensure_future(self.run(work)),
            broker_epoch=lambda: 1,
        )
        self.moves = LogDirMoves(
            self.replicas.hosted, self.store.logs, self.store, self.spawn, self.pause, self.notes.append
        )
        self.replicas.requests.add_listener(self.moves)

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        if isinstance(getattr(work, "__self__", None), Reload):
            await self.reads_logs.wait()
        self.in_thread = True
        try:
            return work()
        finally:
            self.in_thread = False

    def spawn(self, work: Any) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def lead(self, epoch: int = 0, topic_id: TopicId | None = None) -> ErrorCode:
        broker = BrokerInfo(1, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),))
        update = PartitionUpdate(A0, 1, epoch, (1,), (1,), partition_epoch=epoch)
        self.metadata.apply_update(UpdateMetadata(1, 1, 1, (update,), (broker,)))
        order = LeaderAndIsrPartition(A0, 1, epoch, (1,), (1,), partition_epoch=epoch)
        ids = {} if topic_id is None else {A0.topic: topic_id}
        return self.replicas.requests.become_leader_or_follower(LeaderAndIsr(1, 1, 1, (order,), ids)).partitions[A0]

    def delete(self) -> ErrorCode:
        """StopReplica of a topic that is deleted."""
        order = StopReplica(1, 1, 1, (StopReplicaPartition(A0, -2, True),))
        return self.replicas.requests.stop_replicas(order).partitions[A0]

    @property
    def log(self) -> PartitionLog:
        log = self.store.logs.get(A0)
        assert log is not None
        return log

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            [result] = self.replicas.producing.append(  # type: ignore[misc]  # acks=1: never a future
                [(A0, produced([b"v" * 50] * 3))], acks=1, timeout_ms=0, origin=Origin.CLIENT
            )
            assert result.error is ErrorCode.NONE

    async def ended(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks)

    async def stop(self) -> None:
        self.moves.close()
        await self.ended()
        await self.store.close()


async def led(batches: int = 40, **kwargs: Any) -> Broker:
    broker = Broker(**kwargs)
    await broker.store.load()
    broker.store.logs.get_or_create(A0, uuid.UUID(int=1), CONFIG, is_new=True, directory=ONE)
    broker.lead()
    broker.write(batches)
    return broker
