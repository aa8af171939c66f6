"""What the page counts in a snapshot, in one pass over its partitions; pure.

With 10,000 topics this takes a while, so it is done once for each change of the cluster, not for each viewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import BrokerNode, PartitionView, TopicView
from logyard.broker.model import Assignment, TopicPartition

UNHEALTHY_MAX = 100

TOPIC_COLUMNS = (
    "name",
    "partitions",
    "replication_factor",
    "under_replicated",
    "offline",
    "not_preferred",
    "internal",
)


@dataclass(slots=True)
class BrokerCounts:
    """Of one broker: replicas, partitions it leads, partitions whose preferred leader it is, replicas out of sync."""

    replicas: int = 0
    leaders: int = 0
    preferred_leaders: int = 0
    out_of_sync: int = 0


@dataclass(frozen=True, slots=True)
class UnhealthyPartition:
    """A partition whose ISR lacks a replica, or (`offline`) without a living leader."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: bool
    adding: tuple[int, ...] = ()  # by a running reassignment: not out of sync


@dataclass(slots=True)
class Totals:
    """Sums over all topics."""

    partitions: int = 0
    replicas: int = 0
    under_replicated: int = 0
    offline: int = 0
    not_preferred: int = 0


@dataclass(slots=True)
class ClusterCounts:
    """Counts of a whole cluster.

    `columns`: the ids of all brokers, alive or only named by a replica. `placed` and `led`: for each topic the number
    of replicas and of led partitions on each of these brokers. `rows`: for each topic the values of TOPIC_COLUMNS.
    """

    columns: list[int] = field(default_factory=list)
    rows: list[list[str | int]] = field(default_factory=list)
    placed: list[list[int]] = field(default_factory=list)
    led: list[list[int]] = field(default_factory=list)
    brokers: dict[int, BrokerCounts] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    unhealthy: list[UnhealthyPartition] = field(default_factory=list)


def count_cluster(
    topics: Mapping[str, TopicView], alive: Mapping[int, BrokerNode], moving: Mapping[TopicPartition, Assignment]
) -> ClusterCounts:
    """Count. Topics are in the order of their names; unhealthy partitions begin with the offline ones.

    `moving`: the running reassignments, as far as they are known. A replica that one of them adds is not out of sync.
    """
    known = set(alive)
    for topic in topics.values():
        for view in topic.partitions:
            known.update(view.replicas)
    columns = sorted(known)
    found = ClusterCounts(columns, brokers={broker: BrokerCounts() for broker in columns})
    place = {broker: index for index, broker in enumerate(columns)}
    offline: list[UnhealthyPartition] = []
    lagging: list[UnhealthyPartition] = []
    for name in sorted(topics):
        _count_topic(topics[name], alive, moving, place, found, offline, lagging)
    found.unhealthy = (offline + lagging)[:UNHEALTHY_MAX]
    return found


def wanted_replicas(view: PartitionView, move: Assignment | None) -> int:
    """How many replicas a partition is to have, without those that a move adds: as `kafka-topics` counts them."""
    return len(view.replicas) - (len(move.adding) if move is not None else 0)


def _count_topic(
    topic: TopicView,
    alive: Mapping[int, BrokerNode],
    moving: Mapping[TopicPartition, Assignment],
    place: Mapping[int, int],
    found: ClusterCounts,
    offline: list[UnhealthyPartition],
    lagging: list[UnhealthyPartition],
) -> None:
    placed, led = [0] * len(place), [0] * len(place)
    under = lost = moved = factor = 0
    for view in topic.partitions:
        replicas, isr, leader = view.replicas, view.isr, view.leader
        found.totals.replicas += len(replicas)
        move = moving.get(TopicPartition(topic.name, view.partition)) if moving else None
        adding = () if move is None else move.adding
        factor = max(factor, wanted_replicas(view, move))
        behind = view.is_under_replicated(move)
        for broker in replicas:
            counts = found.brokers[broker]
            counts.replicas += 1
            placed[place[broker]] += 1
            if broker not in isr and broker not in adding:
                counts.out_of_sync += 1
        if replicas:
            found.brokers[replicas[0]].preferred_leaders += 1
            moved += leader != replicas[0]
        if leader in place:
            found.brokers[leader].leaders += 1
            led[place[leader]] += 1
        under += behind
        lost += leader not in alive
        if behind or leader not in alive:
            unhealthy = lagging if leader in alive else offline
            if len(unhealthy) < UNHEALTHY_MAX:
                is_offline = leader not in alive
                unhealthy.append(
                    UnhealthyPartition(topic.name, view.partition, leader, replicas, isr, is_offline, tuple(adding))
                )
    found.totals.partitions += len(topic.partitions)
    found.totals.under_replicated += under
    found.totals.offline += lost
    found.totals.not_preferred += moved
    found.rows.append([topic.name, len(topic.partitions), factor, under, lost, moved, int(topic.internal)])
    found.placed.append(placed)
    found.led.append(led)
