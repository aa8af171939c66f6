"""How far reassignments are: the bytes of the replicas that they add."""

from collections.abc import Mapping
from dataclasses import dataclass

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import DescribingClient
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.sizes import Sizes, read_sizes

Running = Mapping[TopicPartition, Assignment]


@dataclass(frozen=True, slots=True)
class Progress:
    """`added`: (partition, broker) → bytes that the added replica has; `at_s`: when they were read.

    `bytes_per_s`: how fast these bytes grow; None at the first read.
    """

    sizes: Sizes
    added: Mapping[tuple[TopicPartition, int], int]
    at_s: float
    bytes_per_s: float | None = None


def read_progress(
    client: DescribingClient, running: Running, snapshot: ClusterSnapshot, before: Progress | None, now_s: float
) -> Progress:
    """Ask the leaders and the brokers that get replicas. Raises ClusterUnreachable, ApiError where none answers."""
    views = dict(snapshot.partitions(list({tp.topic for tp in running})))
    asked: set[int] = {views[tp].leader for tp in running if tp in views}
    for assignment in running.values():
        asked.update(assignment.adding)
    alive = sorted(asked & set(snapshot.brokers))
    sizes = read_sizes(client, alive, frozenset(running))
    added = {
        (tp, broker): sizes.held[tp][broker].size
        for tp, assignment in running.items()
        for broker in assignment.adding
        if broker in sizes.held.get(tp, {})
    }
    return Progress(sizes, added, now_s, _rate(before, added, now_s))


def _rate(before: Progress | None, added: Mapping[tuple[TopicPartition, int], int], now_s: float) -> float | None:
    if before is None or now_s <= before.at_s:
        return None
    # A replica that was missing in the last read has grown from 0.
    grown = sum(max(size - before.added.get(replica, 0), 0) for replica, size in added.items())
    return grown / (now_s - before.at_s)
