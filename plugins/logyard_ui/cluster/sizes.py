"""Bytes of replicas by DescribeLogDirs, broker by broker: where one does not answer, only its bytes are missing."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, DirectorySpace, ReplicaSize
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.ports import DescribingClient
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.responses.document import Document

BUDGET_S = 10.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """`replicas`: all that brokers reported, future replicas too; `held`: partition → broker → replica, without those.

    `answered`: the brokers that did; `problems`: why others did not. `brokers`: bytes by broker. `document`: bytes by
    topic and broker, encoded once for all viewers. `directories`: with their disks' bytes. `taken_ms`: when they were
    read, in ms since 1970.
    """

    replicas: tuple[ReplicaSize, ...]
    answered: frozenset[int]
    problems: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[TopicPartition, Mapping[int, ReplicaSize]] = field(default_factory=dict)
    brokers: Mapping[int, int] = field(default_factory=dict)
    document: Document | None = None
    directories: tuple[DirectorySpace, ...] = ()
    taken_ms: int | None = None


def read_sizes(
    client: DescribingClient,
    brokers: Sequence[int],
    wanted: frozenset[TopicPartition] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Sizes:
    """Ask the brokers one after the other, for BUDGET_S at most; keeps the `wanted` partitions (all with None).

    Raises the first broker's error where none answers: ClusterUnreachable, ApiError.
    """
    deadline = clock() + BUDGET_S
    told = told_dirs(client, brokers, is_late=lambda: clock() >= deadline)
    replicas = [replica for replica in told.dirs.replicas if wanted is None or replica.tp in wanted]
    answered = frozenset(brokers) - told.untold.keys()
    by_broker = dict.fromkeys(sorted(answered), 0)
    for replica in replicas:
        by_broker[replica.broker] += replica.size
    return Sizes(tuple(replicas), answered, told.untold, _held(replicas), by_broker, None, told.dirs.directories)


def _held(replicas: Iterable[ReplicaSize]) -> dict[TopicPartition, dict[int, ReplicaSize]]:
    held: dict[TopicPartition, dict[int, ReplicaSize]] = {}
    for replica in replicas:
        if not replica.is_future:
            held.setdefault(replica.tp, {})[replica.broker] = replica
    return held


def sizes_json(sizes: Sizes, snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Bytes by topic and by broker; topics that were deleted meanwhile are left out."""
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
