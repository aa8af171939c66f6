"""Which assignment a requested move leads to, and why it is refused."""

from collections.abc import Sequence

from logyard.broker.controller.context import ControllerContext, Partition
from logyard.broker.controller.topics import placement
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, TopicPartition


def plan(
    context: ControllerContext, tp: TopicPartition, target: Sequence[int] | None, *, only_live: bool = True
) -> Assignment:
    """Return the assignment that the request leads to; raises ApiError."""
    partition = context.partition(tp)
    now = Assignment(()) if partition is None else partition.assignment
    if target is not None:
        placement.check_replicas(target)
        added = now.reassign_to(target).adding
        dead = [b for b in added if not context.is_live(b)]
        if only_live and dead and partition is not None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Replica assignment has brokers that are not alive: {dead}. Alive: {context.live_ids()}.",
            )
    if partition is None or context.is_deleting(tp.topic):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None and not now.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    move = now.reassign_to(now.origin if target is None else target)
    _check_keeps_data(partition, move)
    return move


def _check_keeps_data(partition: Partition, move: Assignment) -> None:
    """Refuse a move that would at once delete every in-sync replica (as KRaft does; Kafka's ZooKeeper mode loses them).

    That happens if the replicas added by a superseded or cancelled move are the only ones in sync.
    """
    state = partition.state
    if state is not None and not any(broker in move.replicas for broker in state.isr):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"None of {list(move.replicas)} is in sync (in sync: {list(state.isr)}): wait until one is, "
            "or keep one that is in sync among the replicas.",
        )


def is_running(context: ControllerContext, tp: TopicPartition, move: Assignment) -> bool:
    """Whether exactly this move is running: a rewritten znode must not start it again."""
    partition = context.partition(tp)
    return partition is not None and partition.assignment == move
