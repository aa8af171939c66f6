"""Everything that the page counts of a snapshot, in one pass over its partitions; pure.

A list of 10,000 topics is made here once for each change of the cluster, not for each viewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import BrokerNode, TopicView

TROUBLES_MAX = 100

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
    """What one broker has: replicas, partitions it leads, those it ought to lead, replicas that are not in sync."""

    replicas: int = 0
    leaders: int = 0
    preferred_leaders: int = 0
    out_of_sync: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition whose ISR lacks a replica, or (`offline`) without a living leader."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: bool


@dataclass(slots=True)
class Tally:
    """`columns`: the brokers' ids, living or only named by a replica; `placed` and `led` have a row for each topic with
    a number for each of them. `rows` are by TOPIC_COLUMNS."""

    columns: list[int] = field(default_factory=list)
    rows: list[list[str | int]] = field(default_factory=list)
    placed: list[list[int]] = field(default_factory=list)
    led: list[list[int]] = field(default_factory=list)
    brokers: dict[int, BrokerCounts] = field(default_factory=dict)
    partitions: int = 0
    replicas: int = 0
    under_replicated: int = 0
    offline: int = 0
    not_preferred: int = 0
    troubles: list[Trouble] = field(default_factory=list)


def tally(topics: Mapping[str, TopicView], alive: Mapping[int, BrokerNode]) -> Tally:
    """Count; topics in the order of their names, troubles with the offline ones first."""
    known = set(alive)
    for topic in topics.values():
        for view in topic.partitions:
            known.update(view.replicas)
    columns = sorted(known)
    found = Tally(columns, brokers={broker: BrokerCounts() for broker in columns})
    place = {broker: index for index, broker in enumerate(columns)}
    offline: list[Trouble] = []
    lagging: list[Trouble] = []
    for name in sorted(topics):
        _count_topic(topics[name], alive, place, found, offline, lagging)
    found.troubles = (offline + lagging)[:TROUBLES_MAX]
    return found


def _count_topic(
    topic: TopicView,
    alive: Mapping[int, BrokerNode],
    place: Mapping[int, int],
    found: Tally,
    offline: list[Trouble],
    lagging: list[Trouble],
) -> None:
    placed, led = [0] * len(place), [0] * len(place)
    under = lost = moved = factor = 0
    for view in topic.partitions:
        replicas, isr, leader = view.replicas, view.isr, view.leader
        factor = max(factor, len(replicas))
        found.replicas += len(replicas)
        behind = 0
        for broker in replicas:
            counts = found.brokers[broker]
            counts.replicas += 1
            placed[place[broker]] += 1
            if broker not in isr:
                counts.out_of_sync += 1
                behind += 1
        if replicas:
            found.brokers[replicas[0]].preferred_leaders += 1
            moved += leader != replicas[0]
        if leader in place:
            found.brokers[leader].leaders += 1
            led[place[leader]] += 1
        under += behind > 0
        lost += leader not in alive
        if behind or leader not in alive:
            troubles = lagging if leader in alive else offline
            if len(troubles) < TROUBLES_MAX:
                troubles.append(Trouble(topic.name, view.partition, leader, replicas, isr, leader not in alive))
    found.partitions += len(topic.partitions)
    found.under_replicated += under
    found.offline += lost
    found.not_preferred += moved
    found.rows.append([topic.name, len(topic.partitions), factor, under, lost, moved, int(topic.internal)])
    found.placed.append(placed)
    found.led.append(led)
