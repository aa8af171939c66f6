"""Plays a scenario of commands to a world of controllers and writes down what they did: events in, effects out.

Commands: start N…, kill N…, topic T 1,2,3 …, create T partitions replicas, delete T, move T-P 1,2|cancel,
elect T-P, in-sync T-P 1,2,3, shut-down N, expire N, remove PATH, put PATH TEXT, fail-directory N T-P.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from logyard.broker.controller import events
from logyard.broker.controller.broker_requests.batch import (
    BrokerRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    MetadataPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from logyard.broker.controller.broker_requests.partition_states import PartitionCodes
from logyard.broker.controller.effects import Answer, ClosePeer, Effect, Note, OpenPeer, Send, ZkMulti
from logyard.broker.controller.queue import Envelope
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.errors import ApiError
from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import log_dir_events
from logyard.broker.znodes.ops import Check, Create, Delete, SetData, ZkOp
from tests.support.controller_world import ScriptedBroker, World


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


class Transcript:
    """One scenario being played."""

    def __init__(self) -> None:
        self.world = World()
        self.lines: list[str] = []
        self._event: Envelope | None = None

    async def play(self, command: str) -> list[str]:
        """Do one command, let everything happen, and return what was written down."""
        self.lines = []
        self._event = None
        name, *words = command.split()
        await getattr(self, "do_" + name.replace("-", "_"))(*words)
        await self.world.settle()
        return self.lines

    # Commands

    async def do_start(self, *ids: str) -> None:
        for broker_id in map(int, ids):
            broker = self.world.brokers[broker_id] = ScriptedBroker(
                self.world, broker_id, observer=self._observer(broker_id)
            )
            await broker.start()
            await self.world.settle()

    async def do_kill(self, *ids: str) -> None:
        await self.world.kill(*map(int, ids))

    async def do_topic(self, name: str, *placement: str) -> None:
        await self.world.make_topic(name, *map(numbers, placement))

    async def do_create(self, name: str, partitions: str, replicas: str) -> None:
        topic = events.NewTopic(name, int(partitions), int(replicas))
        await self._ask(lambda runner: runner.ask(events.CreateTopics((topic,))))

    async def do_delete(self, name: str) -> None:
        await self._ask(lambda runner: runner.ask(events.DeleteTopics((name,))))

    async def do_move(self, tp: str, target: str) -> None:
        wanted = None if target == "cancel" else numbers(target)
        request = events.AlterReassignments(((partition(tp), wanted),))
        await self._ask(lambda runner: runner.ask(request))

    async def do_elect(self, tp: str) -> None:
        request = events.ElectLeaders(events.ElectionKind.PREFERRED, (partition(tp),))
        await self._ask(lambda runner: runner.ask(request))

    async def do_in_sync(self, tp: str, isr: str) -> None:
        topic, number = partition(tp)
        await self.world.grow_isr(topic, number, *numbers(isr))

    async def do_shut_down(self, broker: str) -> None:
        request = events.ControlledShutdown(int(broker), self.world.brokers[int(broker)].epoch)
        await self._ask(lambda runner: runner.ask(request))

    async def do_expire(self, broker: str) -> None:
        self.world.tree.expire(self.world.brokers[int(broker)].zk.session_id)

    async def do_remove(self, path: str) -> None:
        self.world.remove(path)

    async def do_put(self, path: str, text: str) -> None:
        if self.world.read(path) is None:
            self.world.make(path, text.encode())
        else:
            self.world.set(path, text.encode())

    async def do_fail_directory(self, broker: str, tp: str) -> None:
        self.world.brokers[int(broker)].failed_partitions.add(partition(tp))
        notice = Create(log_dir_events.SEQUENCE_PREFIX, log_dir_events.encode(int(broker)), sequential=True)
        self.world.write(notice)

    async def _ask(self, call: Callable[[ControllerRunner], Any]) -> None:
        try:
            await call(self.world.controller.runner)
        except ApiError as refused:
            self.lines.append(f"refused: {refused.code.name}")

    # Writing down

    def _observer(self, broker_id: int) -> Callable[[Envelope, Effect | None], None]:
        def observe(envelope: Envelope, effect: Effect | None) -> None:
            told = [] if effect is None else list(describe(effect))
            if told and self._event is not envelope:
                self._event = envelope
                self.lines.append(f"[{broker_id}] {text(envelope.event)}")
            self.lines.extend(f"    {line}" for line in told)

        return observe


def describe(effect: Effect) -> list[str]:
    """What changes the world, in words; reads and watches are left out."""
    match effect:
        case ZkMulti(multis):
            return [line for ops in multis for op in ops for line in _operation(op)]
        case Send(request):
            return [_request(request)]
        case Answer(value):
            return [f"answer {text(value)}"]
        case OpenPeer(broker):
            return [f"open a sender to {broker.id}"]
        case ClosePeer(broker_id):
            return [f"close the sender to {broker_id}"]
        case Note() if effect.level in ("warning", "error"):
            return [f"{effect.level}: {effect.text} {text(effect.fields)}"]
    return []


def _operation(op: ZkOp) -> list[str]:
    match op:
        case Check():
            return []
        case Delete():
            return [f"delete {op.path}"]
        case Create() | SetData():
            verb = "create" if isinstance(op, Create) else f"set version {op.version} of"
            return [f"{verb} {op.path} {op.data.decode()}".rstrip()]


def _request(request: BrokerRequest) -> str:
    match request:
        case LeaderAndIsrRequest():
            body = "; ".join(map(_leader_and_isr, request.partitions))
            return f"LeaderAndIsr to {request.broker_id}: {body}"
        case UpdateMetadataRequest():
            live = ",".join(str(b.id) for b in request.live_brokers)
            body = "; ".join([f"live {live}", *map(_metadata, request.partitions)])
            return f"UpdateMetadata to {request.broker_id}: {body}"
        case StopReplicaRequest():
            body = "; ".join(
                f"{e.tp}{' with its files' if e.delete else ''} epoch {e.leader_epoch}" for e in request.partitions
            )
            return f"StopReplica to {request.broker_id}: {body}"


def _leader_and_isr(entry: LeaderAndIsrPartition) -> str:
    state, move = entry.state, entry.assignment
    moving = f" adding {_ids(move.adding)} removing {_ids(move.removing)}" if move.is_reassigning else ""
    replicas = f"replicas {_ids(move.replicas)}{moving}"
    new = " new" if entry.is_new else ""
    return f"{entry.tp} leader {state.leader} epoch {state.leader_epoch} isr {_ids(state.isr)} {replicas}{new}"


def _metadata(entry: MetadataPartition) -> str:
    offline = f" offline {_ids(entry.offline)}" if entry.offline else ""
    return f"{entry.tp} leader {entry.leader} epoch {entry.state.leader_epoch} isr {_ids(entry.state.isr)}{offline}"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def text(value: Any) -> str:
    """A value on one line, without the noise of its defaults."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, PartitionCodes):
        return text(value.codes)
    names = (
        PartitionState._fields if isinstance(value, PartitionState) else getattr(value, "__dataclass_fields__", None)
    )
    if names is not None:
        fields = [getattr(value, name) for name in names]
        inner = " ".join(text(f) for f in fields if f not in (None, (), {}, -1))
        return f"{type(value).__name__}({inner})" if inner else type(value).__name__
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(text, value)) + "]"
    return str(value)
