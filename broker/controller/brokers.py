"""Brokers that join, fail, restart, change their registration, or lose a log directory.

Rule 1: a broker is new, dead, or bounced (same id, larger czxid: dead and new at once, KIP-380).
Rule 2: a new broker gets UpdateMetadata of all partitions before any LeaderAndIsr.
Rule 3: a replica that went offline first loses its leaderships (partition Offline → Online), then its place in the ISRs
(replica Offline).
Rule 4: a registration that cannot be read is logged and counts as absent; the other brokers are handled.
"""

from collections.abc import Collection, Sequence

from logyard.broker.controller import effects, notifications
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase
from logyard.broker.controller.effects import ClosePeer, OpenPeer, Steps
from logyard.broker.controller.events import BrokerModified, BrokersChanged, LeaderAndIsrAnswered, LogDirsFailed
from logyard.broker.controller.failover import controller_election
from logyard.broker.controller.partitions import partition_machine, reassignment, replica_machine
from logyard.broker.controller.partitions.replica_machine import Replica
from logyard.broker.controller.topics import deletion
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.znodes import brokers as znode
from logyard.broker.znodes import log_dir_events


def read_live() -> Steps[dict[int, BrokerInfo]]:
    """Read and watch every registration."""
    names = yield from effects.watch_children(znode.IDS_PATH, BrokersChanged())
    ids = sorted(int(name) for name in names or [] if name.isdecimal())
    znodes = yield from effects.watch_data([(znode.path(broker), BrokerModified(broker)) for broker in ids])
    live: dict[int, BrokerInfo] = {}
    for broker, found in zip(ids, znodes, strict=True):
        if found is None:
            continue
        try:
            live[broker] = znode.decode(broker, found)
        except CorruptData as problem:
            yield from effects.note("a broker's registration cannot be read", level="error", reason=str(problem))
    return live


def on_brokers_changed(context: ControllerContext) -> Steps[None]:
    """Handle the children of /brokers/ids."""
    live = yield from read_live()
    known = context.brokers
    new = [b for b in live if b not in known]
    dead = [b for b in known if b not in live]
    bounced = [b for b in live if b in known and live[b].epoch > known[b].epoch]
    if not (new or dead or bounced):
        return
    yield from effects.note("brokers changed", new=new, dead=dead, bounced=bounced, live=sorted(live))
    for broker in (*dead, *bounced):
        del context.brokers[broker]
        yield from effects.perform(ClosePeer(broker))
    if dead or bounced:
        yield from on_failure(context, sorted((*dead, *bounced)))
    started = sorted((*new, *bounced))
    for broker in started:
        context.brokers[broker] = live[broker]
        yield from effects.perform(OpenPeer(live[broker]))
    if started:
        yield from on_startup(context, started)


def on_broker_modified(context: ControllerContext, broker: int) -> Steps[None]:
    """Handle a changed registration: all brokers get the new endpoints."""
    if broker not in context.brokers:
        return
    found = (yield from effects.watch_data([(znode.path(broker), BrokerModified(broker))]))[0]
    if found is None:
        return
    try:
        info = znode.decode(broker, found)
    except CorruptData as problem:
        yield from effects.note("a broker's registration cannot be read", level="error", reason=str(problem))
        return
    before = context.brokers[broker]
    if info == before or info.epoch != before.epoch:
        return  # nothing new, or a bounce, which is handled when the children of /brokers/ids change
    context.brokers[broker] = info
    yield from effects.note("a broker's registration changed", broker=broker)
    yield from sending.metadata(context)
    if info.endpoints != before.endpoints:
        # The old sender may have held requests that the broker has not received: send everything again.
        yield from effects.perform(OpenPeer(info))
        yield from sending.metadata(context, context.partitions(), [broker])
        theirs = yield from _replicas_on(context, [broker])
        yield from replica_machine.change(context, theirs, ReplicaPhase.ONLINE)


def on_startup(context: ControllerContext, started: Sequence[int]) -> Steps[None]:
    """Give new brokers, whose senders are open, the cluster's state, and bring their replicas online."""
    for broker in started:
        context.failed_dirs.pop(broker, None)
    others = [b for b in context.reachable_ids() if b not in started]
    yield from sending.metadata(context, (), others)
    yield from sending.metadata(context, context.partitions(), started)
    theirs = yield from _replicas_on(context, started)
    yield from replica_machine.change(context, theirs, ReplicaPhase.ONLINE)
    yield from bring_online(context)
    yield from reassignment.resume(context, lambda p: any(b in started for b in p.assignment.target))
    waiting = list(dict.fromkeys(p.tp.topic for p, _ in theirs if context.is_deleting(p.tp.topic)))
    if waiting:
        yield from deletion.resume_for(context, waiting)


def on_failure(context: ControllerContext, dead: Sequence[int]) -> Steps[None]:
    """Handle dead brokers, which are already removed from `context.brokers`."""
    for broker in dead:
        context.failed_dirs.pop(broker, None)
        context.shutting_down.discard(broker)
    theirs = yield from _replicas_on(context, dead)
    yield from on_replicas_offline(context, theirs)


def on_replicas_offline(context: ControllerContext, offline: Sequence[Replica]) -> Steps[None]:
    """Elect other leaders, shrink ISRs, suspend deletions."""

    def is_leaderless(p: Partition) -> bool:
        return (
            p.state is not None
            and p.phase is PartitionPhase.ONLINE
            and not context.is_deleting(p.tp.topic)
            and not context.is_online(p.state.leader, p.tp)
        )

    leaderless = yield from effects.picked(context.partitions(), is_leaderless)
    yield from partition_machine.change(context, leaderless, PartitionPhase.OFFLINE)
    came_online = yield from bring_online(context)
    living = [(p, b) for p, b in offline if not context.is_deleting(p.tp.topic)]
    doomed = [(p, b) for p, b in offline if context.is_deleting(p.tp.topic)]
    yield from replica_machine.change(context, living, ReplicaPhase.OFFLINE)
    if doomed:
        yield from deletion.fail(context, doomed)
    if not living and not came_online:
        yield from sending.metadata(context)


def bring_online(context: ControllerContext) -> Steps[bool]:
    """Try to bring every New or Offline partition online, except of deleted topics; return whether one came online."""

    def waits(p: Partition) -> bool:
        return p.phase in (PartitionPhase.NEW, PartitionPhase.OFFLINE) and not context.is_deleting(p.tp.topic)

    waiting = yield from effects.picked(context.partitions(), waits)
    if not waiting:
        return False
    failures = yield from partition_machine.change(context, waiting, PartitionPhase.ONLINE)
    return len(failures) < len(waiting)


def _replicas_on(context: ControllerContext, brokers: Sequence[int]) -> Steps[list[Replica]]:
    chosen = frozenset(brokers)
    theirs = yield from effects.picked(context.partitions(), lambda p: not chosen.isdisjoint(p.assignment.replicas))
    return [(p, b) for p in theirs for b in p.assignment.replicas if b in chosen]


# Log directories


def on_log_dirs_failed(context: ControllerContext) -> Steps[None]:
    """Handle /log_dir_event_notification: ask those brokers again which replicas they have."""
    notices = yield from notifications.take(log_dir_events.PATH, LogDirsFailed())
    brokers: dict[int, None] = {}
    for path, data in notices.items():
        try:
            brokers[log_dir_events.decode(data, path)] = None
        except CorruptData as problem:
            yield from effects.note("a notification cannot be read", level="warning", reason=str(problem))
    affected = [b for b in brokers if b in context.brokers]
    if affected:
        yield from effects.note("brokers lost a log directory", level="warning", brokers=affected)
    # Each replica on the failed directory answers this LeaderAndIsr with KAFKA_STORAGE_ERROR.
    theirs = yield from _replicas_on(context, affected)
    yield from replica_machine.change(context, theirs, ReplicaPhase.ONLINE)
    yield from notifications.remove(context, list(notices))


def on_leader_and_isr_answered(context: ControllerContext, event: LeaderAndIsrAnswered) -> Steps[None]:
    """Record a broker's replicas on failed directories, and elect other leaders."""
    broker = context.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return  # a broker that has restarted since
    if event.error is ErrorCode.STALE_CONTROLLER_EPOCH:
        yield from controller_election.outdo(context, event.broker_id)
    if event.error is not ErrorCode.NONE:
        yield from effects.note(
            "LeaderAndIsr was refused", level="error", broker=event.broker_id, error=event.error.name
        )
        return
    before = context.failed_dirs.get(event.broker_id, set())
    yield from effects.spread(event.partitions.translate(context.names_by_id))
    codes = event.partitions.codes
    refused = (tp for tp, code in codes.items() if code is ErrorCode.KAFKA_STORAGE_ERROR)
    failed = {tp for tp in refused if context.partition(tp) is not None}
    healthy = {tp for tp in before if codes.get(tp) is ErrorCode.NONE}
    now = (before - healthy) | failed
    if now == before:
        return
    context.failed_dirs[event.broker_id] = now
    newly = [p for tp in sorted(now - before) if (p := context.partition(tp)) is not None]
    if newly:
        yield from effects.note(
            "replicas are offline", level="warning", broker=event.broker_id, partitions=[str(p.tp) for p in newly]
        )
        yield from on_replicas_offline(context, [(p, event.broker_id) for p in newly])
    if healthy:
        yield from _on_replicas_back(context, event.broker_id, healthy)


def _on_replicas_back(context: ControllerContext, broker: int, healthy: Collection[TopicPartition]) -> Steps[None]:
    """A broker has opened logs that it could not open before: these replicas may lead again, or be deleted."""
    back = [p for tp in sorted(healthy) if (p := context.partition(tp)) is not None]
    yield from effects.note("replicas are back", broker=broker, partitions=[str(p.tp) for p in back])
    yield from sending.metadata(context, back)
    yield from bring_online(context)
    yield from deletion.resume_for(context, list(dict.fromkeys(p.tp.topic for p in back)))
