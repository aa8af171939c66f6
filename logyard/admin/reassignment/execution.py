"""Starting and cancelling moves in a cluster: the steps that the command and the operators share.

Throttles are set and ended by `throttles/book.py`; what is started when is decided in `waves.py`, and what may be
cancelled in `cancellation.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from logyard.admin.reassignment.plan import Move
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition


class ReassignmentAlterer(Protocol):
    """The call that is needed; `ports.ClusterClient` has it."""

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]: ...


def start_moves(client: ReassignmentAlterer, moves: Iterable[Move]) -> dict[TopicPartition, ApiError]:
    """Start moves; returns those that were refused. Raises ApiError, ClusterUnreachable where nothing was answered."""
    answers = client.alter_reassignments({move.tp: move.target for move in moves})
    return {tp: refusal for tp, refusal in sorted(answers.items()) if refusal is not None}


def cancel_moves(client: ReassignmentAlterer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ApiError]:
    """Cancel what runs of these partitions; returns those that were refused. One that runs no more is none of them.

    Raises ApiError, ClusterUnreachable where nothing was answered.
    """
    targets = dict.fromkeys(partitions)
    answers = client.alter_reassignments(targets) if targets else {}
    return {
        tp: refusal
        for tp, refusal in sorted(answers.items())
        if refusal is not None and refusal.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
