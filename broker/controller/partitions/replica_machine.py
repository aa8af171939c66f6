"""The replica state machine: starting, stopping and deleting single replicas.

Rule 1: legal moves are those of `PREVIOUS`; any other is logged and refused, the rest of the batch is done.
Rule 2: a replica that goes Offline is stopped and leaves the ISR in ZooKeeper, with leader epoch + 1 if it was in it.
If it led, the leader becomes -1; the last member of an ISR stays in it.
Rule 3: a replica that comes Online gets the known state; so does a New one, unless it is itself the leader.
Rule 4: NonExistent removes the replica from the assignment in memory; other modules write the topic znode.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from logyard.broker.controller import effects
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.broker_requests.batch import RequestBatch
from logyard.broker.controller.context import ControllerContext, Partition, ReplicaPhase
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.partitions import state_znodes
from logyard.broker.model import NO_LEADER, Assignment, PartitionState

Replica = tuple[Partition, int]

(
    NEW,
    ONLINE,
    OFFLINE,
    DELETION_STARTED,
    DELETION_SUCCESSFUL,
    DELETION_INELIGIBLE,
    NON_EXISTENT,
) = ReplicaPhase

PREVIOUS: Mapping[ReplicaPhase, frozenset[ReplicaPhase]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    DELETION_STARTED: frozenset({OFFLINE}),
    DELETION_SUCCESSFUL: frozenset({DELETION_STARTED}),
    DELETION_INELIGIBLE: frozenset({OFFLINE, DELETION_STARTED}),
    NON_EXISTENT: frozenset({DELETION_SUCCESSFUL}),
}


def change(context: ControllerContext, replicas: Sequence[Replica], target: ReplicaPhase) -> Steps[None]:
    """Move replicas to a phase, and send the result to the brokers once at the end."""
    if not replicas:
        return
    batch = RequestBatch(context)
    refused: dict[str, str] = {}
    moving: dict[int, list[Partition]] = {}
    for number, (partition, broker) in enumerate(replicas, 1):
        before = partition.replica_phase(broker)
        if before in PREVIOUS[target]:
            moving.setdefault(broker, []).append(partition)
        else:
            refused[f"{partition.tp}@{broker}"] = f"illegal move from {before.name} to {target.name}"
        yield from effects.done(number)
    for broker in sorted(moving):
        if target is OFFLINE:
            yield from _take_offline(context, broker, moving[broker], batch, refused)
        else:
            yield from _enter(target, broker, moving[broker], batch, refused)
    if refused:
        yield from effects.note("replicas were not moved", level="warning", target=target.name, reasons=refused)
    yield from sending.send(batch)


def tell(context: ControllerContext, online: Iterable[tuple[Partition, Sequence[int]]]) -> Steps[None]:
    """Send replicas that are Online what is known of them, as a change to Online would."""
    batch = RequestBatch(context)
    for number, (partition, brokers) in enumerate(online, 1):
        if brokers and partition.state is not None:
            batch.leader_and_isr(brokers, partition)
        yield from effects.done(number)
    yield from sending.send(batch)


def _enter(
    target: ReplicaPhase, broker: int, partitions: Sequence[Partition], batch: RequestBatch, refused: dict[str, str]
) -> Steps[None]:
    """The moves that need no answer from ZooKeeper."""
    for number, partition in enumerate(partitions, 1):
        yield from effects.done(number)
        match target:
            case ReplicaPhase.NEW:
                if partition.leader == broker:
                    refused[f"{partition.tp}@{broker}"] = "a new replica cannot be the leader already"
                    continue
                if partition.state is not None:
                    batch.leader_and_isr([broker], partition, is_new=True)
            case ReplicaPhase.ONLINE:
                _enter_online(broker, partition, batch)
            case ReplicaPhase.DELETION_STARTED:
                batch.stop_replica(broker, partition, delete=True)
            case ReplicaPhase.NON_EXISTENT:
                partition.assignment = without(partition.assignment, broker)
                partition.replicas.pop(broker, None)
                continue
        partition.replicas[broker] = target


def _enter_online(broker: int, partition: Partition, batch: RequestBatch) -> None:
    if partition.replica_phase(broker) is not NEW:
        if partition.state is not None:
            batch.leader_and_isr([broker], partition)
    elif broker not in partition.assignment.replicas:
        partition.assignment = replace(partition.assignment, replicas=(*partition.assignment.replicas, broker))


def without(assignment: Assignment, broker: int) -> Assignment:
    """Return the assignment with one replica removed from all of its lists."""
    return Assignment(
        tuple(r for r in assignment.replicas if r != broker),
        tuple(r for r in assignment.adding if r != broker),
        tuple(r for r in assignment.removing if r != broker),
    )


def _take_offline(
    context: ControllerContext,
    broker: int,
    partitions: Sequence[Partition],
    batch: RequestBatch,
    refused: dict[str, str],
) -> Steps[None]:
    for number, partition in enumerate(partitions, 1):
        batch.stop_replica(broker, partition, delete=False)
        yield from effects.done(number)
    known = [p for p in partitions if p.state is not None]

    def leave(partition: Partition, state: PartitionState) -> PartitionState | None:
        if broker not in state.isr:
            return None
        leader = NO_LEADER if state.leader == broker else state.leader
        isr = state.isr if len(state.isr) == 1 else tuple(r for r in state.isr if r != broker)
        return state_znodes.next_state(context, state, leader=leader, isr=isr)

    failures = yield from state_znodes.change(context, known, leave)
    for number, partition in enumerate(known, 1):
        yield from effects.done(number)
        reason = failures.get(partition.tp)
        if reason is not None and not context.is_deleting(partition.tp.topic):
            refused[f"{partition.tp}@{broker}"] = reason
            continue
        if partition.state is not None and not context.is_deleting(partition.tp.topic):
            others = [r for r in partition.assignment.replicas if r != broker]
            batch.leader_and_isr(others, partition)
        partition.replicas[broker] = OFFLINE
    stateless = [p for p in partitions if p.state is None]
    if stateless:
        batch.update_metadata(stateless)
        for partition in stateless:
            partition.replicas[broker] = OFFLINE
