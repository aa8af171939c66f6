"""Controllers over one ZooKeeper tree, with brokers that are scripts: they take every request and answer it.

    world = World(delete_topic_enable=True)  # keywords are ControllerSettings
    await world.start(1, 2, 3)
    await world.make_topic("t", (1, 2), (2, 3))  # its partitions' replicas, as znodes
    await world.kill(1)
    assert world.state("t").leader == 2

Each broker has a session, its registration and its own ControllerRunner. Requests go from the active controller's
peers straight to the scripted broker of that id: `world.brokers[2].told(api_key)` has them. `world.controller` is the
active one, `settle` waits until nothing is queued, `write`, `set` and `remove` change znodes as another client would.
A broker may be `silent`, refuse deletions, or `die_after` so many writes of its controller.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from logyard.broker.controller.effects import Effect
from logyard.broker.controller.events import AlterPartition, IsrChange
from logyard.broker.controller.queue import Envelope
from logyard.broker.controller.runner import ControllerRunner, Observer
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.model import (
    Assignment,
    BrokerInfo,
    Endpoint,
    LevelRange,
    PartitionState,
    TopicAssignment,
    TopicId,
    TopicPartition,
)
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import brokers as broker_znode
from logyard.broker.znodes import partition_state, paths
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, ZkOp
from tests.support.controller_ports import FixedChance, RecordingPeers, SentRequest
from tests.support.guarded_zookeeper import GuardedZooKeeper

_QUIET_TURNS = 40


class ScriptedBroker:
    """One broker: a session, a registration, a controller, and a memory of what it was told."""

    def __init__(
        self, world: "World", broker_id: int, rack: str | None = None, observer: Observer | None = None
    ) -> None:
        self.world = world
        self.id = broker_id
        self.rack = rack
        self.zk = GuardedZooKeeper(world.tree)
        self.epoch = -1
        self.received: list[SentRequest] = []
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, dict[str, Any]] = {}
        self.deleted: list[TopicPartition] = []
        self.failed_partitions: set[TopicPartition] = set()
        self.deletes_failed = False  # failed partitions are in no failed directory: their logs cannot be opened
        self.refuse_deletion = False
        self.silent = False
        self.features: tuple[tuple[str, LevelRange], ...] = world.features.get(broker_id, ())
        self.controller_epoch = 0
        self.effects: list[tuple[int, Effect]] = []
        self.runner = ControllerRunner(
            self.zk,
            RecordingPeers(self._deliver),
            world.clock,
            world.settings(broker_id),
            chance=world.chance,
            observer=observer or self._observe,
            epoch_seen=lambda: self.controller_epoch,
        )
        self.zk.on_session_lost = self.runner.on_session_lost
        self.zk.on_session_established = self._session_established

    def info(self) -> BrokerInfo:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9000 + self.id)
        return BrokerInfo(self.id, (endpoint,), self.rack, self.epoch, features=self.features)

    def register(self) -> None:
        result = self.world.write(
            Create(broker_znode.path(self.id), broker_znode.encode(self.info(), 0), ephemeral=True),
            session=self.zk.session_id,
        )
        self.epoch = result[0].czxid

    def _session_established(self, _: int) -> None:
        self.register()
        self.runner.on_session_established()

    async def start(self) -> None:
        self.register()
        await self.runner.start()

    async def die(self) -> None:
        """kill -9: the process is gone at once, the session ends a moment later."""
        self.zk.crash()
        await self.runner.stop()
        self.world.tree.expire(self.zk.session_id)
        del self.world.brokers[self.id]

    def die_after(self, writes: int) -> None:
        """Let the controller's next `writes` writes through and fail every one behind them, as a kill there would."""
        real, written = self.zk.pipeline, 0

        async def dying(multis: Any) -> Any:
            nonlocal written
            written += 1
            if written > writes:
                raise RuntimeError("killed here")
            return await real(multis)

        self.zk.pipeline = dying  # type: ignore[method-assign]

    def _observe(self, envelope: Envelope, effect: Effect | None) -> None:
        if effect is not None:
            self.effects.append((envelope.id, effect))

    # The wire

    def _deliver(self, request: SentRequest) -> Any:
        target = self.world.brokers.get(request.broker_id)
        if target is None or target.silent:
            return None
        return target.handle(request)

    def handle(self, request: SentRequest) -> Any:
        self.received.append(request)
        fields = request.fields
        if fields["broker_epoch"] < self.epoch:
            return SimpleNamespace(error_code=77, partition_errors=[], topics=[])
        if fields["controller_epoch"] < self.controller_epoch:
            return SimpleNamespace(error_code=11, partition_errors=[], topics=[])
        self.controller_epoch = fields["controller_epoch"]
        match request.api_key:
            case k if k == LEADER_AND_ISR:
                return self._leader_and_isr(fields)
            case k if k == UPDATE_METADATA:
                return self._update_metadata(fields)
            case k if k == STOP_REPLICA:
                return self._stop_replica(fields)
        raise AssertionError(f"unexpected api key {request.api_key}")

    def _leader_and_isr(self, fields: Mapping[str, Any]) -> Any:
        topics = []
        for topic in fields["topic_states"]:
            errors = []
            for p in topic["partition_states"]:
                tp = TopicPartition(topic["topic_name"], p["partition_index"])
                failed = tp in self.failed_partitions
                if not failed:
                    self.leader_epochs[tp] = max(self.leader_epochs.get(tp, -1), p["leader_epoch"])
                code = 56 if failed else 0
                errors.append(SimpleNamespace(partition_index=tp.partition, error_code=code))
            topics.append(SimpleNamespace(topic_id=topic["topic_id"], partition_errors=errors))
        return SimpleNamespace(error_code=0, partition_errors=[], topics=topics)

    def _update_metadata(self, fields: Mapping[str, Any]) -> Any:
        for topic in fields["topic_states"]:
            for p in topic["partition_states"]:
                tp = TopicPartition(topic["topic_name"], p["partition_index"])
                if p["leader"] == -2:
                    self.metadata.pop(tp, None)
                else:
                    self.metadata[tp] = p
        return SimpleNamespace(error_code=0)

    def _stop_replica(self, fields: Mapping[str, Any]) -> Any:
        errors = []
        for topic in fields["topic_states"]:
            for p in topic["partition_states"]:
                tp = TopicPartition(topic["topic_name"], p["partition_index"])
                code = 0
                if p["delete_partition"]:
                    is_lost = tp in self.failed_partitions and not self.deletes_failed
                    code = 56 if self.refuse_deletion or is_lost else 0
                    if not code:
                        self.deleted.append(tp)
                        self.leader_epochs.pop(tp, None)
                errors.append(SimpleNamespace(topic_name=tp.topic, partition_index=tp.partition, error_code=code))
        return SimpleNamespace(error_code=0, partition_errors=errors)

    def told(self, api_key: int) -> list[Mapping[str, Any]]:
        """The fields of all requests of one kind, oldest first."""
        return [r.fields for r in self.received if r.api_key == api_key]


class World:
    """A tree, a clock, and brokers by id."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.tree = ZooKeeperTree(self.clock)
        self.chance = FixedChance()
        # What each broker registers as supported; nothing, as Kafka's do, where it is not named.
        self.features: dict[int, tuple[tuple[str, LevelRange], ...]] = {}
        self.brokers: dict[int, ScriptedBroker] = {}
        self._settings = settings
        self._outside = MemoryZooKeeper(self.tree)
        for path in paths.PERSISTENT:
            self.make(path)

    def settings(self, broker_id: int) -> ControllerSettings:
        return ControllerSettings(broker_id=broker_id, **self._settings)

    async def start(self, *ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Start brokers one after the other; the first of an empty world becomes controller."""
        for broker_id in ids:
            broker = ScriptedBroker(self, broker_id, (racks or {}).get(broker_id))
            self.brokers[broker_id] = broker
            await broker.start()
            await self.settle()

    async def stop(self) -> None:
        for broker in list(self.brokers.values()):
            await broker.runner.stop()

    async def kill(self, *ids: int) -> None:
        for broker_id in ids:
            await self.brokers[broker_id].die()
        await self.settle()

    async def settle(self) -> None:
        """Let everything happen that is going to happen without time passing."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            await asyncio.sleep(0)
            busy = any(broker.runner.queue_size for broker in self.brokers.values())
            quiet = 0 if busy else quiet + 1

    @property
    def controller(self) -> ScriptedBroker:
        active = [b for b in self.brokers.values() if b.runner.is_active]
        assert len(active) == 1, f"{len(active)} controllers"
        return active[0]

    # Znodes by hand

    def write(self, *ops: ZkOp, session: int | None = None) -> list[OpResult]:
        results = self.tree.multi(self._outside.session_id if session is None else session, ops)
        assert all(r.ok for r in results), results
        return results

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a znode with its parents."""
        for parent in (*paths.ancestors(path),):
            if self.tree.read(parent) is None:
                self.write(Create(parent))
        if self.tree.read(path) is None:
            self.write(Create(path, data))

    def set(self, path: str, data: bytes) -> None:
        self.write(SetData(path, data))

    def remove(self, path: str) -> None:
        self.write(Delete(path))

    def read(self, path: str) -> bytes | None:
        found = self.tree.read(path)
        return None if found is None else found.data

    def state(self, topic: str, partition: int = 0) -> PartitionState | None:
        found = self.tree.read(partition_state.path(TopicPartition(topic, partition)))
        return None if found is None else partition_state.decode(found.data, found.version)

    def topic(self, name: str) -> TopicAssignment:
        data = self.read(topic_znode.topic_path(name))
        assert data is not None, f"no topic {name}"
        return topic_znode.decode(data)

    def topic_data(
        self, placement: Mapping[int, Sequence[int]] | Iterable[Sequence[int]], topic_id: TopicId | None = None
    ) -> bytes:
        pairs = placement.items() if isinstance(placement, Mapping) else enumerate(placement)
        content = TopicAssignment({p: Assignment(tuple(r)) for p, r in pairs}, topic_id)
        return topic_znode.encode(content, 2 if topic_id is None else 3)

    async def make_topic(self, name: str, *placement: Sequence[int]) -> None:
        """Write a topic znode by hand and let it come alive."""
        self.make(topic_znode.topic_path(name), self.topic_data(placement))
        await self.settle()

    async def grow_isr(self, topic: str, partition: int, *isr: int) -> None:
        """Let the leader report an ISR by AlterPartition."""
        state = self.state(topic, partition)
        assert state is not None
        change = IsrChange(partition, state.leader_epoch, tuple(isr), state.partition_epoch, topic=topic)
        leader = self.brokers[state.leader]
        answer = await self.controller.runner.ask(AlterPartition(leader.id, leader.epoch, (change,)))
        assert answer.error == 0, answer
        assert answer.partitions[0].error == 0, answer
        await self.settle()


def known_state(world: World, topic: str = "t", partition: int = 0) -> PartitionState:
    """The state of a partition that has one."""
    found = world.state(topic, partition)
    assert found is not None
    return found
