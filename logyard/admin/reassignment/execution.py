"""Finding, starting and cancelling moves in a cluster: the steps that the command and the operators share.

`throttles/book.py` sets and ends throttles, `waves.py` decides what is started when, and `cancellation.py` what may be
cancelled.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from logyard.admin.cluster.presence import settled
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import ClusterClient, ClusterUnreachable
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.waves import MovesUnknown
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition


class ReassignmentAlterer(Protocol):
    """The call that is needed; `ports.ClusterClient` has it."""

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]: ...


def look_at_moves(client: ClusterClient, moves: Iterable[Move] = ()) -> ClusterSnapshot:
    """A snapshot that knows which moves run; waits for a controller that tells it, as long as any request may take.

    It also knows which partitions of these moves are gone. Raises MovesUnknown: silence does not mean that nothing
    moves, nor that a topic is gone; and ApiError, such as for a missing right.
    """
    snapshot = client.snapshot(reassignments=True)
    try:
        if snapshot.reassignments is None:
            running = client.list_reassignments()
            snapshot = replace(client.snapshot(), reassignments=running)
        return settled(client, snapshot, (move.tp for move in moves))
    except (ClusterUnreachable, ApiError) as problem:
        if isinstance(problem, ApiError) and problem.code is not ErrorCode.NOT_CONTROLLER:
            raise
        raise MovesUnknown(f"no controller tells which replicas move, so nothing was started: {problem}") from None


def start_moves(client: ReassignmentAlterer, moves: Iterable[Move]) -> dict[TopicPartition, ApiError]:
    """Start moves; returns those that were refused. Raises ApiError, and ClusterUnreachable if nothing was answered."""
    answers = client.alter_reassignments({move.tp: move.target for move in moves})
    return {tp: refusal for tp, refusal in sorted(answers.items()) if refusal is not None}


def cancel_moves(client: ReassignmentAlterer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ApiError]:
    """Cancel the running moves of these partitions; returns those refused. A move that is over is not among them.

    Raises ApiError, and ClusterUnreachable if nothing was answered.
    """
    targets = dict.fromkeys(partitions)
    answers = client.alter_reassignments(targets) if targets else {}
    return {
        tp: refusal
        for tp, refusal in sorted(answers.items())
        if refusal is not None and refusal.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
