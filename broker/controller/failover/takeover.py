"""Taking over as controller: everything between a won election and the first ordinary event.

Rule 1: the steps come in the order of facts §3, each finished before the next: watches, old notifications, memory,
deletions, UpdateMetadata, replicas, partitions, moves, elections.
Rule 2: memory is built from ZooKeeper alone. Work that a dead controller left unfinished shows in ZooKeeper, and is
completed by the usual procedures (missing states of topics, moves, deletions).
Rule 3: a znode that cannot be parsed is logged and left out; only a failure of ZooKeeper itself stops a failover. If a
partition state is of a later epoch, this controller first moves above it.
Rule 4: a broker that registered after a state was last written has restarted, and no controller saw it die. It leaves
that ISR and is started like any bounced broker, if another member of the ISR has not restarted: what it had not synced
may be lost, and Kafka would let it lead on. If all members of an ISR have restarted, the leader at least gets a new
epoch, by which followers tell its later records from its earlier ones.
Rule 5: what is done for all partitions takes turns of the event loop: the new controller has clients, too. Nobody else
changes its memory meanwhile, since the next event waits for the end of this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from logyard.broker.controller import brokers, effects, features, notifications
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase
from logyard.broker.controller.effects import OpenPeer, Schedule, Steps
from logyard.broker.controller.events import (
    DeletionRequested,
    IsrsChanged,
    LeadersImbalanceDue,
    LogDirsFailed,
    PreferredElectionRequested,
    ReassignmentRequested,
    TopicsChanged,
)
from logyard.broker.controller.failover import controller_election
from logyard.broker.controller.partitions import (
    partition_machine,
    reassignment,
    replica_machine,
    requested_elections,
    state_znodes,
)
from logyard.broker.controller.partitions.replica_machine import Replica
from logyard.broker.controller.topics import deletion, topics
from logyard.broker.errors import CorruptData
from logyard.broker.model import NO_LEADER, PartitionState, TopicPartition
from logyard.broker.znodes import (
    controller,
    delete_topics,
    isr_notifications,
    log_dir_events,
    partition_state,
    preferred_election,
    reassignments,
)
from logyard.broker.znodes import topics as topic_znode

Written = dict[Partition, int]
"""The transaction id of the last write of a partition's state, where it is before the last registration of a broker."""


@dataclass(slots=True)
class Loaded:
    """What is seen while the states are read: all partitions are not looked at once more for it."""

    written: Written = field(default_factory=dict)
    epochs: set[int] = field(default_factory=set)
    """The controller epochs of the states."""


def take_over(context: ControllerContext) -> Steps[None]:
    """Become a working controller (the election is won: `context.epoch` is set)."""
    yield from features.set_up(context)
    yield from _watch()
    yield from notifications.clear(context, log_dir_events.PATH)
    yield from notifications.clear(context, isr_notifications.PATH)
    loaded = yield from _load(context)
    yield from controller_election.rise_above(context, controller.believed(loaded.epochs))
    yield from deletion.on_failover(context)
    yield from sending.metadata(context)
    yield from _pass_over_bounced(context, loaded.written)
    yield from _start_replicas(context)
    yield from _start_partitions(context)
    yield from reassignment.on_failover(context)
    yield from deletion.resume(context)
    yield from requested_elections.on_preferred_requested(context)
    settings = context.settings
    if settings.auto_leader_rebalance_enable:
        yield from effects.perform(Schedule(settings.first_leader_imbalance_check_s, LeadersImbalanceDue()))
    yield from effects.note(
        "controller is ready",
        epoch=context.epoch,
        brokers=context.reachable_ids(),
        topics=len(context.topics),
        partitions=sum(len(topic.partitions) for topic in context.topics.values()),
    )


def _watch() -> Steps[None]:
    """Set every watch before anything is read, so that no change is missed."""
    yield from effects.perform(
        effects.WatchChildren(
            [
                (topic_znode.PATH, TopicsChanged()),
                (delete_topics.PATH, DeletionRequested()),
                (log_dir_events.PATH, LogDirsFailed()),
                (isr_notifications.PATH, IsrsChanged()),
            ]
        )
    )
    yield from effects.perform(
        effects.WatchData(
            [
                (preferred_election.PATH, PreferredElectionRequested()),
                (reassignments.PATH, ReassignmentRequested()),
            ]
        )
    )


def _load(context: ControllerContext) -> Steps[Loaded]:
    live = yield from brokers.read_live()
    context.brokers.update(live)
    names = yield from effects.watch_children(topic_znode.PATH, TopicsChanged())
    yield from topics.load(context, names or [])
    yield [effects.Turn()]
    loaded = yield from _load_states(context, list(context.partitions()))
    yield from effects.perform(*(OpenPeer(live[broker]) for broker in sorted(live)))
    return loaded


def _load_states(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[Loaded]:
    """Read a portion of the states at a time, and decode it before the next: in between others have their turns."""
    problems: dict[TopicPartition, str] = {}
    loaded = Loaded()
    last_registered = max((broker.epoch for broker in context.brokers.values()), default=-1)
    for start in range(0, len(partitions), effects.READ_PER_TURN):
        portion = partitions[start : start + effects.READ_PER_TURN]
        paths = [partition_state.path(p.tp) for p in portion]
        znodes = yield from effects.read(paths)
        for number, (partition, path, znode) in enumerate(zip(portion, paths, znodes, strict=True), 1):
            if number % effects.DONE_PER_TURN == 0:
                yield [effects.Turn()]
            if partition.assignment.is_reassigning:
                context.reassigning[partition.tp] = None
            if znode is not None:
                if -1 < znode.mzxid < last_registered:
                    loaded.written[partition] = znode.mzxid
                try:
                    partition.state = partition_state.decode(znode.data, znode.version, path)
                    loaded.epochs.add(partition.state.controller_epoch)
                except CorruptData as problem:
                    problems[partition.tp] = str(problem)
    if problems:
        reasons = {str(tp): why for tp, why in problems.items()}
        yield from effects.note("partition states cannot be read", level="error", reasons=reasons)
    return loaded


def _pass_over_bounced(context: ControllerContext, written: Written) -> Steps[None]:
    """Remove members that registered after their ISR was written (rule 4)."""
    away: dict[int, None] = {}

    def decide(partition: Partition, state: PartitionState) -> PartitionState | None:
        tp, replicas = partition.tp, partition.assignment.replicas
        living = [b for b in state.isr if context.is_online(b, tp)]
        anew = [b for b in living if written[partition] < context.brokers[b].epoch]
        if not anew:
            return None
        away.update(dict.fromkeys(anew))
        if len(anew) == len(living):
            return state_znodes.next_state(context, state) if state.leader in anew and len(replicas) > 1 else None
        isr = tuple(b for b in state.isr if b not in anew)
        leader = state.leader
        if leader in anew:
            leader = next((r for r in replicas if r in isr and r in living), NO_LEADER)
        return state_znodes.next_state(context, state, leader=leader, isr=isr)

    deleting = context.deleting
    known = [p for p in written if p.state is not None and p.tp.topic not in deleting]
    yield from state_znodes.change(context, known, decide, just_read=True)
    if away:
        yield from effects.note(
            "brokers restarted while there was no controller", level="warning", brokers=sorted(away)
        )


def _start_replicas(context: ControllerContext) -> Steps[None]:
    """Set the first phases, send LeaderAndIsr to the online replicas, and remove the others from their ISRs."""
    online: list[tuple[Partition, Sequence[int]]] = []
    offline: list[Replica] = []
    online_of = context.online_now()
    for number, partition in enumerate(context.partitions(), 1):
        if number % effects.DONE_PER_TURN == 0:
            yield [effects.Turn()]
        replicas, living = partition.assignment.replicas, online_of(partition)
        online.append((partition, living))
        partition.replicas = dict.fromkeys(replicas, ReplicaPhase.ONLINE)
        for broker in replicas if len(living) < len(replicas) else ():
            if broker not in living:
                # This phase and not Offline, so that a deletion that waits for this broker counts as failed here.
                partition.replicas[broker] = ReplicaPhase.DELETION_INELIGIBLE
                offline.append((partition, broker))
    yield from replica_machine.tell(context, online)
    yield from replica_machine.change(context, offline, ReplicaPhase.OFFLINE)


def _start_partitions(context: ControllerContext) -> Steps[None]:
    waiting: list[Partition] = []
    for number, partition in enumerate(context.partitions(), 1):
        if number % effects.DONE_PER_TURN == 0:
            yield [effects.Turn()]
        if partition.state is not None and context.is_online(partition.state.leader, partition.tp):
            partition.phase = PartitionPhase.ONLINE
            continue
        partition.phase = PartitionPhase.NEW if partition.state is None else PartitionPhase.OFFLINE
        if not context.is_deleting(partition.tp.topic):
            waiting.append(partition)
    if waiting:
        yield from partition_machine.change(context, waiting, PartitionPhase.ONLINE)
