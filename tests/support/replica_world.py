"""A broker's replicas with everything around them in memory: manual time, timers, futures, an ISR port that records.

    world = World(lag_time_max_ms=100)  # broker 1 of 1, 2, 3; keywords are ReplicaSettings
    world.tell(world.order(replicas=(1, 2)))  # LeaderAndIsr: it leads T0
    waiting = produce(world, acks=-1)  # results, or a Pending that has them later
    follower_fetch(world, 2, 1)  # broker 2 asks for offset 1: it has what is below
    assert waiting.result()[0].error is ErrorCode.NONE

`world.advance(ms)` lets time pass and timers run. `world.log(tp)` and `world.partition(tp)` are what is here, and
`world.logs` (disk_logs.py) has faults to plant. AlterPartition waits in `world.submitted` until `accept()`; what a
thread would do waits in `world.blocked`: `work, finished = world.blocked.pop(); finished.set_result(work())`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicId, TopicPartition
from logyard.broker.replication.events import (
    FetchParams,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    PartitionFetch,
    StopReplica,
    StopReplicaPartition,
)
from logyard.broker.replication.fetch.fetch import Sessionless
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.replication.replicas import Replicas
from logyard.broker.replication.settings import ReplicaSettings
from tests.support.disk_logs import DiskLogs, ReplicaLog, batch

T0 = TopicPartition("flights", 0)
T1 = TopicPartition("flights", 1)


class Pending:
    """A future without a loop: callbacks run when the result is set."""

    def __init__(self) -> None:
        self._result: Any = None
        self._error: Exception | None = None
        self._done = False
        self._callbacks: list[Callable[[Any], object]] = []

    def set_result(self, result: Any) -> None:
        assert not self._done, "completed twice"
        self._result, self._done = result, True
        for callback in self._callbacks:
            callback(self)

    def set_exception(self, exception: BaseException) -> None:
        raise exception

    def fail(self, error: Exception) -> None:
        """What was to be done in a thread has raised this."""
        self._error = error
        self.set_result(None)

    def done(self) -> bool:
        return self._done

    def result(self) -> Any:
        assert self._done, "not there yet"
        if self._error is not None:
            raise self._error
        return self._result

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Any:
        yield self


@dataclass(eq=False)
class Timer:
    due: float
    callback: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Submitted:
    tp: TopicPartition
    topic_id: TopicId | None
    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    callback: Callable[[IsrChangeResult], None]
    broker_epochs: Mapping[int, int] | None

    def accept(self) -> None:
        """Answer as the controller does when it agrees."""
        self.callback(
            IsrChangeResult(
                error=ErrorCode.NONE,
                leader=1,
                leader_epoch=self.leader_epoch,
                isr=self.new_isr,
                partition_epoch=self.partition_epoch + 1,
            )
        )


class World:
    """One broker (id 1 unless said) and its surroundings."""

    def __init__(self, broker_id: int = 1, alive: Iterable[int] = (1, 2, 3), **settings: Any) -> None:
        self.clock = ManualClock()
        self.timers: list[Timer] = []
        self.logs = DiskLogs()
        self.metadata = MetadataCache()
        self.submitted: list[Submitted] = []
        self.blocked: list[tuple[Callable[[], Any], Pending]] = []
        self.config = TopicConfig()
        self.epoch = 7
        self.replicas = Replicas(
            ReplicaSettings(broker_id=broker_id, **settings),
            logs=self.logs,
            metadata=self.metadata,
            topic_config=lambda topic: self.config,
            isr_changes=self,
            clock=self.clock,
            timers=self,
            new_pending=Pending,
            run_blocking=self._run_blocking,
            broker_epoch=lambda: self.epoch,
        )
        self.hear(alive)

    # Ports

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        timer = Timer(self.clock.monotonic() + delay, callback)
        self.timers.append(timer)
        return timer

    def submit(self, *args: Any) -> None:
        self.submitted.append(Submitted(*args))

    def _run_blocking(self, work: Callable[[], Any]) -> Pending:
        pending = Pending()
        self.blocked.append((work, pending))
        return pending

    # Looking

    def log(self, tp: TopicPartition = T0) -> ReplicaLog:
        """The log of a replica that is here."""
        log = self.logs.get(tp)
        assert log is not None, f"no log of {tp}"
        return log

    def partition(self, tp: TopicPartition = T0) -> Partition:
        """A replica that is here."""
        partition = self.replicas.partition(tp)
        assert partition is not None, f"no replica of {tp}"
        return partition

    # Driving

    def advance(self, ms: int) -> None:
        """Let time pass, firing timers when they are due."""
        end = self.clock.monotonic() + ms / 1000
        while True:
            due = min(
                (t for t in self.timers if not t.cancelled and t.due <= end + 1e-9), key=lambda t: t.due, default=None
            )
            if due is None:
                break
            self.timers.remove(due)
            self.clock.advance(max(0.0, due.due - self.clock.monotonic()))
            due.callback()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))

    def hear(self, alive: Iterable[int], partitions: Iterable[PartitionUpdate] = (), **fields: Any) -> None:
        """UpdateMetadata with these live brokers."""
        brokers = tuple(
            BrokerInfo(b, (Endpoint("PLAINTEXT", "PLAINTEXT", f"host{b}", 9092),), rack=f"rack{b}") for b in alive
        )
        self.metadata.apply_update(UpdateMetadata(1, 1, -1, tuple(partitions), brokers, **fields))

    def order(self, tp: TopicPartition = T0, leader: int = 1, **fields: Any) -> LeaderAndIsrPartition:
        replicas = fields.pop("replicas", (1, 2, 3))
        return LeaderAndIsrPartition(
            tp=tp,
            leader=leader,
            leader_epoch=fields.pop("leader_epoch", 0),
            isr=fields.pop("isr", replicas),
            replicas=replicas,
            **fields,
        )

    def tell(
        self, *orders: LeaderAndIsrPartition, topic_ids: Mapping[str, TopicId] | None = None, **fields: Any
    ) -> Any:
        """LeaderAndIsr from controller epoch 1."""
        request = LeaderAndIsr(
            1, fields.get("controller_epoch", 1), fields.get("broker_epoch", -1), orders, topic_ids or {}
        )
        return self.replicas.requests.become_leader_or_follower(request)


@dataclass
class Leadership:
    """A listener that remembers what it was told."""

    heard: list[tuple[Any, ...]] = field(default_factory=list)

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("leader", tp, leader_epoch))

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("follower", tp, leader_epoch))

    def on_deleted(self, tp: TopicPartition) -> None:
        self.heard.append(("deleted", tp))


class Fetching:
    """Fetchers that only record their calls."""

    failed_count = 0

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def start(self, partitions: Any) -> None:
        self.log += [("start", p.tp, p.leader, p.leader_epoch) for p in partitions]

    def stop(self, partitions: Any) -> None:
        self.log += [("stop", tp) for tp in partitions]

    def refresh_topic_ids(self, partitions: Any) -> None:
        self.log += [("ids", p.tp, p.topic_id) for p in partitions]


class ControlledWorld(World):
    """A world whose fetchers and leadership listener record their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.fetching = Fetching()
        self.replicas.use_fetchers(self.fetching)
        self.leadership = Leadership()
        self.replicas.requests.add_listener(self.leadership)


def stop(
    world: World,
    tp: TopicPartition = T0,
    leader_epoch: int = -1,
    delete: bool = False,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
) -> Any:
    order = StopReplicaPartition(tp, leader_epoch, delete)
    return world.replicas.requests.stop_replicas(StopReplica(1, controller_epoch, broker_epoch, (order,)))


def errors(answer: Any) -> Any:
    assert answer.error is ErrorCode.NONE
    return list(answer.partitions.values())


def follower_fetch(world: World, replica: int, offset: int, tp: TopicPartition = T0, **fields: Any) -> Any:
    """A follower at `offset` asks, without waiting."""
    params = FetchParams(0, 1, 10**6, replica_id=replica)
    return fetch_once(world.replicas, params, [PartitionFetch(tp, offset, 10**6, **fields)])


def produce(
    world: World, acks: int = 1, tp: TopicPartition = T0, count: int = 1, timeout_ms: int = 1000, **fields: Any
) -> Any:
    """A client's produce of one batch."""
    return world.replicas.producing.append(
        [(tp, batch(count))], acks=acks, timeout_ms=timeout_ms, origin=Origin.CLIENT, **fields
    )


def fetch_once(replicas: Replicas, params: FetchParams, asks: Sequence[PartitionFetch]) -> Any:
    """Fetch without a session: the answers, or what they will come from."""
    return replicas.fetching.fetch(params, Sessionless(asks)) if asks else []
