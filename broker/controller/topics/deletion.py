"""Deleting topics: from DeleteTopics and its znode in /admin/delete_topics to the last znode of the topic.

Rule 1: partitions become Offline and NonExistent, brokers get leader -2, then every replica is stopped and its files
are deleted; the topic's znodes are removed only when all replicas have reported success.
Rule 2: a replica on a dead broker (or one whose deletion failed) makes the topic ineligible: it waits until that broker
starts, and is then tried again. What a live broker failed to delete is also tried again after a minute (Kafka waits for
its restart). A running reassignment does not delay the deletion: it might never finish, and ends with the request.
Rule 3: /brokers/topics/T is removed first, then /config/topics/T, the request last: if the controller dies in between,
the request is still there and the next controller finishes.
Rule 4: with delete.topic.enable=false requests are removed and topics stay.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.context import ControllerContext, PartitionPhase, ReplicaPhase
from logyard.broker.controller.effects import Answer, Enqueue, Schedule, Steps
from logyard.broker.controller.events import (
    DeleteTopics,
    DeletionRequested,
    DeletionRetryDue,
    Outcome,
    ReassignmentRequested,
    ReplicasDeleted,
)
from logyard.broker.controller.partitions import partition_machine, replica_machine
from logyard.broker.controller.partitions.replica_machine import Replica
from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import config_changes, configs, delete_topics, partition_state, topics
from logyard.broker.znodes.ops import Create, Delete, ZkCode, ZkOp

RETRY_S = 60.0

_STARTED, _SUCCESSFUL, _INELIGIBLE = (
    ReplicaPhase.DELETION_STARTED,
    ReplicaPhase.DELETION_SUCCESSFUL,
    ReplicaPhase.DELETION_INELIGIBLE,
)

_DISABLED = Outcome(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable).")
_OTHER_ID = Outcome(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id any more.")
_UNKNOWN = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")


# Requests


def on_delete_topics(context: ControllerContext, request: DeleteTopics) -> Steps[None]:
    """Answer DeleteTopics with a request znode per topic; the topics still exist when the answer is sent.

    A topic that is already queued counts as success (facts §7). Of a topic that was asked for by id the controller
    compares the id: who looked the name up may not have heard yet that another topic has it now.
    """
    outcomes: dict[str, Outcome] = {}
    known: list[str] = []
    for number, name in enumerate(request.topics, 1):
        yield from effects.done(number)
        if not context.settings.delete_topic_enable:
            outcomes[name] = _DISABLED
        elif name in request.ids and context.names_by_id.get(request.ids[name]) != name:
            outcomes[name] = _OTHER_ID
        elif name not in context.topics:
            outcomes[name] = _UNKNOWN
        elif name not in outcomes:
            outcomes[name] = Outcome()
            known.append(name)
    for start in range(0, len(known), effects.DONE_PER_TURN):
        portion = known[start : start + effects.DONE_PER_TURN]
        results = yield from fencing.write(context, [[Create(delete_topics.path(name))] for name in portion])
        for name, result in zip(portion, results, strict=True):
            if result[0].code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
                why = f"ZooKeeper refused the request: {result[0].code.value}"
                outcomes[name] = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    yield from effects.perform(Answer(outcomes))


def on_requested(context: ControllerContext) -> Steps[None]:
    """Handle the children of /admin/delete_topics."""
    names = (yield from effects.watch_children(delete_topics.PATH, DeletionRequested())) or []
    unknown = [name for name in names if name not in context.topics and not context.is_deleting(name)]
    if unknown:
        yield from effects.note("topics to be deleted do not exist", level="warning", topics=unknown)
        yield from remove_requests(context, unknown)
    fresh = [name for name in names if name in context.topics and not context.is_deleting(name)]
    if not fresh:
        return
    if not context.settings.delete_topic_enable:
        yield from effects.note("delete.topic.enable is false: topics stay", topics=fresh)
        yield from remove_requests(context, fresh)
        return
    context.deleting.update(dict.fromkeys(fresh))
    yield from effects.note("topics are queued for deletion", topics=fresh)
    yield from _end_moves(context)
    yield from resume(context)


def on_failover(context: ControllerContext) -> Steps[None]:
    """Queue the requests in /admin/delete_topics that the last controller left; nothing is deleted yet (facts §3, step
    6)."""
    names = (yield from effects.children([delete_topics.PATH]))[0] or []
    if not context.settings.delete_topic_enable:
        yield from remove_requests(context, names)
        return
    context.deleting.update(dict.fromkeys(names))
    mark_ineligible(context, (yield from _waiting(context, names)))
    yield from _end_moves(context)


def _waiting(context: ControllerContext, names: Iterable[str]) -> Steps[set[str]]:
    """Return those of these topics that have a replica that is not online."""
    waiting: set[str] = set()
    for number, partition in enumerate(context.partitions_of(names), 1):
        if any(not context.is_online(broker, partition.tp) for broker in partition.assignment.replicas):
            waiting.add(partition.tp.topic)
        yield from effects.done(number)
    return waiting


def _end_moves(context: ControllerContext) -> Steps[None]:
    """End the moves of topics that are to be deleted; /admin/reassign_partitions is read again."""
    ended = [tp for tp in context.reassigning if context.is_deleting(tp.topic)]
    for tp in ended:
        del context.reassigning[tp]
    if ended:
        yield from effects.note("moves end with the deletion of their topics", partitions=[str(tp) for tp in ended])
        yield from effects.perform(Enqueue(ReassignmentRequested()))


def remove_requests(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Delete requests; a missing one is no error."""
    yield from fencing.write(context, [[Delete(delete_topics.path(name))] for name in names])


def mark_ineligible(context: ControllerContext, names: Iterable[str]) -> None:
    """Suspend the deletion of those of these topics that are queued."""
    context.deletion_ineligible.update(name for name in names if context.is_deleting(name))


# Progress


def resume_for(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Try suspended topics again."""
    waiting = [name for name in names if context.is_deleting(name)]
    if waiting:
        context.deletion_ineligible.difference_update(waiting)
        yield from resume(context)


def resume(context: ControllerContext) -> Steps[None]:
    """Take every queued topic as far as possible now."""
    left: set[str] = set()
    busy: set[str] = set()
    failed: list[Replica] = []
    for number, partition in enumerate(context.partitions_of(context.deleting), 1):
        if any(partition.replica_phase(broker) is not _SUCCESSFUL for broker in partition.assignment.replicas):
            left.add(partition.tp.topic)
        for broker, phase in partition.replicas.items():
            if phase is _STARTED:
                busy.add(partition.tp.topic)
            elif phase is _INELIGIBLE:
                failed.append((partition, broker))
        yield from effects.done(number)
    done = [name for name in context.deleting if name not in left]
    if done:
        yield from _complete(context, done)
    for_retry = yield from effects.picked(failed, lambda replica: replica[0].tp.topic not in busy)
    yield from replica_machine.change(context, for_retry, ReplicaPhase.OFFLINE)
    waiting = busy | context.deletion_ineligible
    eligible = [name for name in context.deleting if name not in waiting]
    if eligible:
        yield from _delete(context, eligible)


def _delete(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    unseen = [name for name in names if name not in context.deletion_started]
    if unseen:
        yield from effects.note("topic deletion starts", topics=unseen)
        theirs = context.partitions_of(unseen)
        yield from partition_machine.change(context, theirs, PartitionPhase.OFFLINE)
        yield from partition_machine.change(context, theirs, PartitionPhase.NON_EXISTENT)
        context.deletion_started.update(unseen)
    yield from sending.metadata(context, context.partitions_of(names))
    yield from _delete_replicas(context, names)


def _delete_replicas(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    dead: list[Replica] = []
    alive: list[Replica] = []
    for number, partition in enumerate(context.partitions_of(names), 1):
        yield from effects.done(number)
        for broker in partition.assignment.replicas:
            # One that is offline on a live broker is tried: its broker knows whether a directory of it is, or only the
            # log cannot be opened.
            if not context.is_live(broker):
                dead.append((partition, broker))
            elif partition.replica_phase(broker) is not _SUCCESSFUL:
                alive.append((partition, broker))
    yield from replica_machine.change(context, (yield from effects.picked(dead, _may_fail)), _INELIGIBLE)
    yield from replica_machine.change(context, alive, ReplicaPhase.OFFLINE)
    yield from replica_machine.change(context, alive, _STARTED)
    if dead:
        waiting = list(dict.fromkeys(p.tp.topic for p, _ in dead))
        mark_ineligible(context, waiting)
        yield from effects.note("topic deletion waits for offline replicas", level="warning", topics=waiting)


def _may_fail(replica: Replica) -> bool:
    """Whether a replica can be marked as failed: one that does not exist (yet) is left; the topic waits for its
    start."""
    partition, broker = replica
    return partition.replica_phase(broker) in replica_machine.PREVIOUS[_INELIGIBLE]


def fail(context: ControllerContext, failed: Sequence[Replica]) -> Steps[None]:
    """Record that replicas could not be deleted."""
    theirs = yield from effects.picked(failed, lambda replica: context.is_deleting(replica[0].tp.topic))
    if not theirs:
        return
    yield from replica_machine.change(context, (yield from effects.picked(theirs, _may_fail)), _INELIGIBLE)
    names = list(dict.fromkeys(p.tp.topic for p, _ in theirs))
    mark_ineligible(context, names)
    yield from effects.note("replicas could not be deleted", level="warning", topics=names)
    if any(context.is_live(broker) for _, broker in theirs):
        yield from effects.perform(Schedule(RETRY_S, DeletionRetryDue(tuple(names))))
    yield from resume(context)


def on_retry_due(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Try those again that wait for nothing else."""
    moving = {tp.topic for tp in context.reassigning}
    blocked = yield from _waiting(context, names)
    yield from resume_for(context, [name for name in names if name not in moving | blocked])


def on_replicas_deleted(context: ControllerContext, event: ReplicasDeleted) -> Steps[None]:
    """Handle a broker's answer to StopReplica with deletion.

    STALE_BROKER_EPOCH says nothing of the replicas: the request was for the broker's earlier registration, and its new
    one resumes the deletion by itself, perhaps before this answer.
    """
    if event.error is ErrorCode.STALE_BROKER_EPOCH:
        return
    yield from effects.spread(event.answered.translate(context.names_by_id))
    codes = event.answered.codes
    good: list[Replica] = []
    bad: list[Replica] = []
    for number, tp in enumerate(event.partitions, 1):
        yield from effects.done(number)
        partition = context.partition(tp) if context.is_deleting(tp.topic) else None
        if partition is not None and partition.replica_phase(event.broker_id) is _STARTED:
            is_deleted = event.error is ErrorCode.NONE and codes.get(tp, event.error) is ErrorCode.NONE
            (good if is_deleted else bad).append((partition, event.broker_id))
    if bad:
        yield from fail(context, bad)
    if good:
        yield from replica_machine.change(context, good, _SUCCESSFUL)
        yield from resume(context)


# The end


def _complete(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Remove everything that is left of topics in ZooKeeper and in memory."""
    replicas = ((p, broker) for p in context.partitions_of(names) for broker in p.replicas)
    gone = yield from effects.picked(replicas, lambda replica: replica[0].replica_phase(replica[1]) is _SUCCESSFUL)
    yield from replica_machine.change(context, gone, ReplicaPhase.NON_EXISTENT)
    stuck = yield from _remove_topic_znodes(context, names)
    if stuck:
        yield from effects.note("topic znodes could not be removed", level="error", reasons=stuck)
    gone_topics = [name for name in names if name not in stuck]
    yield from _remove_configs(context, gone_topics)
    yield from remove_requests(context, gone_topics)
    del gone
    yield from effects.spread(cost for name in gone_topics for cost in context.forgetting(name))
    yield from effects.note("topics are deleted", topics=gone_topics)


def _remove_configs(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Delete settings and notify the brokers, so that a new topic of the same name starts with defaults.

    Those that may not be read may be deleted all the same: their parent's ACL decides.
    """
    found = yield from effects.read_each([configs.topic_path(name) for name in names])
    units: list[list[ZkOp]] = []
    for name, znode in zip(names, found, strict=True):
        if znode is not None:
            unit: list[ZkOp] = [Delete(configs.topic_path(name))]
            if isinstance(znode, LogyardError) or znode.data != configs.encode({}):
                unit.append(config_changes.notice(configs.TOPICS, name))
            units.append(unit)
    yield from fencing.write(context, units)


def _remove_topic_znodes(context: ControllerContext, names: Sequence[str]) -> Steps[dict[str, str]]:
    """Delete /brokers/topics/T with everything below it, leaves first; return why some could not be deleted.

    A missing znode is no error.
    """
    found = yield from effects.children([topics.partitions_path(name) for name in names])
    leaves = (
        [
            Delete(partition_state.path(TopicPartition(name, int(number)))),
            Delete(topics.partition_path(name, int(number))),
        ]
        for name, numbers in zip(names, found, strict=True)
        for number in numbers or []
        if number.isdecimal()
    )
    while some := list(islice(leaves, fencing.UNITS_AT_ONCE)):
        results = yield from fencing.write(context, some)
        # For a partition without a state (no replica was ever online) the first op fails: only the parent exists.
        stateless = [unit[1:] for unit, result in zip(some, results, strict=True) if not result[0].ok]
        yield from fencing.write(context, stateless)
    yield from fencing.write(context, [[Delete(topics.partitions_path(name))] for name in names])
    ends = yield from fencing.write(context, [[Delete(topics.topic_path(name))] for name in names])
    return {
        name: end[0].code.value
        for name, end in zip(names, ends, strict=True)
        if end[0].code not in (ZkCode.OK, ZkCode.NO_NODE)
    }
