"""The end of a reassignment whose task is killed: in a worker, or in the triggerer while it is deferred."""

import logging
from collections.abc import Sequence

from logyard.admin.cluster.presence import settled
from logyard.admin.ports import ClusterClient, Pause
from logyard.admin.reassignment.cancellation import plan_cancellation
from logyard.admin.reassignment.execution import cancel_moves
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.waves import adopt
from logyard.operators.throttles import book_of

_log = logging.getLogger(__name__)


def end_moves(
    client: ClusterClient, moves: Sequence[Move], throttle_owner: str | None, pause: Pause, cluster_id: str
) -> None:
    """Cancel the running moves whose former replicas could lead, and end the throttle.

    The throttle stays while a move goes on; VerifyReassignmentOperator ends it later.

    :param cluster_id: the cluster in which they run; empty: not known.
    """
    snapshot = client.snapshot(reassignments=True)
    if cluster_id and snapshot.cluster_id != cluster_id:
        # Somebody else's moves there may look like these.
        _log.warning(
            "nothing is cancelled: the moves are in cluster %s, and the connection leads to %s now",
            cluster_id,
            snapshot.cluster_id,
        )
        return
    if snapshot.reassignments is None:
        _log.warning("nothing is cancelled, and the throttle stays: no controller tells which moves run")
        return
    running = {move.tp: move.target for move in adopt(moves, snapshot).under_way}
    snapshot = settled(client, snapshot, running)
    found = plan_cancellation(snapshot, snapshot.reassignments or {}, expected=running)
    going_on = dict(found.kept)
    refusals = cancel_moves(client, [move.tp for move in found.moves])
    going_on |= {tp: str(refusal) for tp, refusal in refusals.items()}
    for tp, reason in going_on.items():
        _log.warning("%s continues, under its throttle: %s", tp, reason)
    if throttle_owner is not None and not going_on:
        book_of(client, snapshot, pause).release(throttle_owner)
