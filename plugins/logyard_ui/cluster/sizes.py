"""Bytes of replicas by DescribeLogDirs, broker by broker: one that does not answer costs only its own numbers."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.errors import LogyardError
from logyard.admin.ports import DescribingClient
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.responses.document import Document

BUDGET_S = 10.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """`replicas`: everything that was told, future replicas too; `held` without those: partition → broker → replica.

    `brokers`: bytes by broker. `document`: bytes by topic and broker, written out once for all who ask.
    """

    replicas: tuple[ReplicaSize, ...]
    answered: frozenset[int]
    problems: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[TopicPartition, Mapping[int, ReplicaSize]] = field(default_factory=dict)
    brokers: Mapping[int, int] = field(default_factory=dict)
    document: Document | None = None


def read_sizes(
    client: DescribingClient,
    brokers: Sequence[int],
    wanted: frozenset[TopicPartition] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Sizes:
    """Ask those brokers, each by itself, for ten seconds at most; only `wanted` is kept (all with None).

    Raises what the first of them met where none answers.
    """
    deadline = clock() + BUDGET_S
    told: list[ReplicaSize] = []
    answered: set[int] = set()
    problems: dict[int, str] = {}
    first: LogyardError | None = None
    for broker in brokers:
        if clock() >= deadline:
            problems[broker] = "not asked: the others took too long"
            continue
        try:
            found = client.replica_sizes([broker])
        except LogyardError as problem:
            problems[broker] = str(problem)
            first = first or problem
            continue
        answered.add(broker)
        told += found if wanted is None else [replica for replica in found if replica.tp in wanted]
    if first is not None and not answered:
        raise first
    by_broker = dict.fromkeys(sorted(answered), 0)
    for replica in told:
        by_broker[replica.broker] += replica.size
    return Sizes(tuple(told), frozenset(answered), problems, _held(told), by_broker)


def _held(told: Iterable[ReplicaSize]) -> dict[TopicPartition, dict[int, ReplicaSize]]:
    held: dict[TopicPartition, dict[int, ReplicaSize]] = {}
    for replica in told:
        if not replica.is_future:
            held.setdefault(replica.tp, {})[replica.broker] = replica
    return held


def sizes_json(sizes: Sizes, snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Bytes by topic and by broker; topics that have gone meanwhile are left out."""
    topics: dict[str, dict[str, int]] = {name: {"bytes": 0, "leader_bytes": 0} for name in snapshot.topics}
    leaders = {tp: view.leader for tp, view in snapshot.partitions()}
    for replica in sizes.replicas:
        entry = topics.get(replica.tp.topic)
        if entry is not None:
            entry["bytes"] += replica.size
            if not replica.is_future and leaders.get(replica.tp) == replica.broker:
                entry["leader_bytes"] += replica.size
    return {
        "topics": topics,
        "brokers": {str(broker): size for broker, size in sizes.brokers.items()},
    }


def directories_json(sizes: Sizes, broker: int) -> list[dict[str, Any]] | None:
    """The directories of one broker that hold something; None where it did not answer."""
    if broker not in sizes.answered:
        return None
    found: dict[str, dict[str, Any]] = {}
    for replica in sizes.replicas:
        if replica.broker == broker:
            path = replica.log_dir
            entry = found.setdefault(path, {"path": path, "bytes": 0, "replicas": 0, "future_replicas": 0})
            entry["bytes"] += replica.size
            entry["future_replicas" if replica.is_future else "replicas"] += 1
    return [found[path] for path in sorted(found)]
