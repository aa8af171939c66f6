"""The placement of replicas that `logyard reassign generate` proposes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from logyard.admin.cluster.presence import told, with_brokers
from logyard.admin.cluster.snapshot import ClusterSnapshot, LogDirs
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.reassignment.json_files import BadReassignment
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.broker.controller.topics.placement import place
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition


class ProposalClient(Protocol):
    """The calls that are needed; `ports.ClusterClient` has them."""

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot: ...

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs: ...


def propose(
    client: ProposalClient,
    topics: Sequence[str],
    brokers: Sequence[int],
    *,
    rack_aware: bool = True,
    minimal: bool = False,
    chance: random.Random,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, tuple[int, ...]]]:
    """Return (current replicas, proposed replicas) of these topics on these brokers.

    As in Kafka's tool, all replicas are placed anew, by racks if all brokers have one. With `minimal`, only replicas on
    other brokers move, and as many more as bring the counts within one; partitions that do not move are left out.
    A broker that one witness does not know is not away (presence.py).
    Raises BadReassignment, planner.PlanImpossible; ApiError if there are too few brokers; ApiError, ClusterUnreachable,
    EnsembleUnreachable if nobody can tell which live.
    """
    snapshot = with_brokers(client, require_topics(told(client, topics), topics), brokers)
    current = {tp: view.replicas for tp, view in snapshot.partitions(topics)}
    racks = {b: snapshot.brokers[b].rack if rack_aware else None for b in brokers if b in snapshot.brokers}
    if len({rack is None for rack in racks.values()}) > 1:
        raise BadReassignment(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    if minimal:
        dirs = told_dirs(client, sorted(snapshot.brokers)).dirs  # bytes only order the moves: some may be missing
        known = PlanInput.of(snapshot, topics, dirs.replicas)
        moves = plan_moves(replace(known, brokers=racks), Goals(balance=True, seed=chance.randrange(1 << 30)))
        return current, {move.tp: move.target for move in moves}
    proposed = {}
    for topic in topics:
        views = snapshot.topics[topic].partitions
        start, shift = (chance.randrange(max(len(racks), 1)) for _ in range(2))
        placed = place(list(racks.items()), len(views), len(views[0].replicas), start=start, shift=shift)
        proposed.update({TopicPartition(topic, number): replicas for number, replicas in placed})
    return current, proposed


def require_topics(snapshot: ClusterSnapshot, topics: Sequence[str]) -> ClusterSnapshot:
    """Return the snapshot if it has all these topics. Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
    for topic in topics:
        if topic not in snapshot.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")
    return snapshot
