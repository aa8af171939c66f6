"""ISR changes: AlterPartition from leaders, and the notifications of leaders that write state znodes themselves.

Rule 1: the checks of AlterPartition come in the order of facts §22; the first failure is the answer.
Rule 2: an accepted change is written on the partition epoch that the leader knew; leader and leader epoch stay, only
the partition epoch grows.
Rule 3: all brokers get UpdateMetadata, never LeaderAndIsr, of every partition named; then the leader is answered; then
moves whose targets are in sync are finished.
"""

from dataclasses import replace

from logyard.broker.controller import effects, fencing, notifications
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.context import ControllerContext, Partition
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionResult,
    IsrChange,
    IsrsChanged,
)
from logyard.broker.controller.partitions import reassignment, state_znodes
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import NO_EPOCH, PartitionState, TopicPartition
from logyard.broker.znodes import isr_notifications, partition_state
from logyard.broker.znodes.ops import SetData

_VERSION_WITH_INELIGIBLE = 2  # KIP-841; before it the code is OPERATION_NOT_ATTEMPTED


# AlterPartition


def on_alter(context: ControllerContext, request: AlterPartition) -> Steps[None]:
    """Answer AlterPartition."""
    broker = context.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        yield from effects.perform(Answer(AlterPartitionResult(ErrorCode.STALE_BROKER_EPOCH)))
        return
    answers: list[AlteredPartition] = []
    accepted: dict[int, tuple[Partition, PartitionState]] = {}
    named: dict[TopicPartition, Partition] = {}
    for index, change in enumerate(request.changes):
        yield from effects.done(index + 1)
        partition = _find(context, change)
        if partition is not None:
            named[partition.tp] = partition
        try:
            wanted = _check(context, partition, change, request)
        except ApiError as refused:
            answers.append(AlteredPartition(change, refused.code))
            continue
        assert partition is not None
        answers.append(AlteredPartition(change, state=partition.state))
        if wanted is not None:
            accepted[index] = (partition, wanted)
    yield from _commit(context, answers, accepted)
    yield from sending.metadata(context, named.values())
    yield from effects.perform(Answer(AlterPartitionResult(partitions=tuple(answers))))
    yield from reassignment.complete_ready(context, [accepted[index][0].tp for index in accepted])


def _find(context: ControllerContext, change: IsrChange) -> Partition | None:
    name = change.topic if change.topic_id is None else context.names_by_id.get(change.topic_id)
    return None if name is None else context.partition(TopicPartition(name, change.partition))


def _check(
    context: ControllerContext, partition: Partition | None, change: IsrChange, request: AlterPartition
) -> PartitionState | None:
    """Return the state to write, or None if it is so already; raises ApiError."""
    if change.topic_id is not None and change.topic_id not in context.names_by_id:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if partition is None or partition.state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    now = partition.state
    if change.partition_epoch > now.partition_epoch or change.leader_epoch > now.leader_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)  # the leader knows of a newer controller
    if change.leader_epoch < now.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if change.new_isr == now.isr and change.recovering == now.recovering and request.broker_id == now.leader:
        return None
    if change.partition_epoch < now.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    if _is_invalid(partition, now, change, request.broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if not all(context.is_live(broker) for broker in change.new_isr) or _has_stale_member(context, change):
        ineligible = request.version >= _VERSION_WITH_INELIGIBLE
        raise ApiError(ErrorCode.INELIGIBLE_REPLICA if ineligible else ErrorCode.OPERATION_NOT_ATTEMPTED)
    return now._replace(isr=change.new_isr, recovering=change.recovering, controller_epoch=context.epoch)


def _has_stale_member(context: ControllerContext, change: IsrChange) -> bool:
    """Whether a member restarted since the leader saw it, so that it may lack records (KIP-903; in Kafka only KRaft
    checks)."""
    epochs = zip(change.new_isr, change.isr_epochs, strict=False)
    return any(epoch not in (NO_EPOCH, context.brokers[broker].epoch) for broker, epoch in epochs)


def _is_invalid(partition: Partition, now: PartitionState, change: IsrChange, requester: int) -> bool:
    """Whether a correct leader would not send this; the last three tests are ours, to keep the invariants of facts
    §23."""
    isr = change.new_isr
    return (
        (change.recovering and len(isr) > 1)
        or (change.recovering and not now.recovering)
        or requester != now.leader
        or requester not in isr
        or len(set(isr)) != len(isr)
        or any(broker not in partition.assignment.replicas for broker in isr)
    )


def _commit(
    context: ControllerContext,
    answers: list[AlteredPartition],
    accepted: dict[int, tuple[Partition, PartitionState]],
) -> Steps[None]:
    """Write accepted changes, some at a time, and store the results in their answers; failed ones are removed from
    `accepted`."""
    indexes = list(accepted)
    stale: list[Partition] = []
    for start in range(0, len(indexes), fencing.UNITS_AT_ONCE):
        some = indexes[start : start + fencing.UNITS_AT_ONCE]
        results = yield from fencing.write(context, [[_write_of(*accepted[index])] for index in some])
        for index, result in zip(some, results, strict=True):
            partition, state = accepted[index]
            if result[0].ok:
                partition.state = state._replace(partition_epoch=result[0].version)
                answers[index] = replace(answers[index], state=partition.state)
            else:
                # Another broker wrote the znode: our memory is out of date, and so is the leader's.
                stale.append(partition)
                answers[index] = replace(answers[index], error=ErrorCode.INVALID_UPDATE_VERSION, state=None)
                del accepted[index]
    yield from state_znodes.refresh(stale)


def _write_of(partition: Partition, state: PartitionState) -> SetData:
    return SetData(partition_state.path(partition.tp), partition_state.encode(state), state.partition_epoch)


# Notifications


def on_notified(context: ControllerContext) -> Steps[None]:
    """Handle /isr_change_notification: read the states again, send UpdateMetadata, finish moves."""
    notices = yield from notifications.take(isr_notifications.PATH, IsrsChanged())
    tps: dict[TopicPartition, None] = {}
    for path, data in notices.items():
        try:
            tps.update(dict.fromkeys(isr_notifications.decode(data, path)))
        except CorruptData as problem:
            yield from effects.note("a notification cannot be read", level="warning", reason=str(problem))
    known = [p for tp in tps if (p := context.partition(tp)) is not None]
    before = {p.tp: p.state for p in known}
    failures = yield from state_znodes.refresh(known)
    for partition in known:
        if partition.tp in failures:
            partition.state = before[partition.tp]
    if known:
        yield from sending.metadata(context, known)
        yield from reassignment.complete_ready(context, [p.tp for p in known])
    yield from notifications.remove(context, list(notices))
