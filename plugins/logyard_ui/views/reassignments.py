"""How far reassignments are, by the bytes of the replicas that are added."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, PartitionView
from logyard.admin.ports import DescribingClient
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.sizes import Sizes, read_sizes

MOVES_MAX = 1000

Running = Mapping[TopicPartition, Assignment]


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes that the added replicas hold, (partition, broker) → bytes, when, and how fast they grow (bytes/s)."""

    sizes: Sizes
    added: Mapping[tuple[TopicPartition, int], int]
    at_s: float
    bytes_per_s: float | None = None


def read_progress(
    client: DescribingClient, running: Running, snapshot: ClusterSnapshot, before: Progress | None, now_s: float
) -> Progress:
    """Ask the brokers that give and take. Raises ClusterUnreachable, ApiError where none answers."""
    views = _views(running, snapshot)
    asked: set[int] = {views[tp].leader for tp in running if tp in views}
    for placed in running.values():
        asked.update(placed.adding)
    alive = sorted(asked & set(snapshot.brokers))
    sizes = read_sizes(client, alive, frozenset(running))
    added = {
        (tp, broker): sizes.held[tp][broker].size
        for tp, placed in running.items()
        for broker in placed.adding
        if broker in sizes.held.get(tp, {})
    }
    return Progress(sizes, added, now_s, _rate(before, added, now_s))


def _rate(before: Progress | None, added: Mapping[tuple[TopicPartition, int], int], now_s: float) -> float | None:
    if before is None or now_s <= before.at_s:
        return None
    # A replica that is new since then has grown from nothing.
    grown = sum(max(size - before.added.get(replica, 0), 0) for replica, size in added.items())
    return grown / (now_s - before.at_s)


def moves_json(running: Running | None, progress: Progress | None, snapshot: ClusterSnapshot) -> dict[str, Any]:
    """All moves summed up, and the first thousand one by one. `running` None: no controller tells."""
    if running is None:
        return {"running": None, "moves": [], "moves_total": None, **_sums([], None)}
    views = _views(running, snapshot)
    entries = [_move(tp, placed, progress, views.get(tp), snapshot) for tp, placed in sorted(running.items())]
    return {
        "running": bool(entries),
        "moves": entries[:MOVES_MAX],
        "moves_total": len(entries),
        **_sums(entries, progress.bytes_per_s if progress is not None else None),
    }


def _views(running: Running, snapshot: ClusterSnapshot) -> dict[TopicPartition, PartitionView]:
    return dict(snapshot.partitions(list({tp.topic for tp in running})))


def _move(
    tp: TopicPartition,
    placed: Assignment,
    progress: Progress | None,
    view: PartitionView | None,
    snapshot: ClusterSnapshot,
) -> dict[str, Any]:
    leader, isr = (view.leader, view.isr) if view is not None else (-1, ())
    caught_up = [broker for broker in placed.adding if broker in isr]
    full = done = None
    if progress is not None and leader in progress.sizes.held.get(tp, {}):
        one = progress.sizes.held[tp][leader].size
        full = one * len(placed.adding)
        # Who is in sync has everything, whatever was told of it a moment ago.
        done = sum(one if b in caught_up else min(progress.added.get((tp, b), 0), one) for b in placed.adding)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": list(placed.replicas),
        "adding": list(placed.adding),
        "removing": list(placed.removing),
        "target": list(placed.target),
        "leader": leader,
        "isr": list(isr),
        "bytes_total": full,
        "bytes_done": done,
        "progress": _share(done, full),
        "caught_up": caught_up,
        "waits_for": [broker for broker in placed.target if broker not in snapshot.brokers],
    }


def _sums(entries: list[dict[str, Any]], rate: float | None) -> dict[str, Any]:
    known = [entry for entry in entries if entry["bytes_total"] is not None]
    full = sum(entry["bytes_total"] for entry in known) if known else None
    done = sum(entry["bytes_done"] for entry in known) if known else None
    left = None if full is None or done is None else full - done
    return {
        "bytes_total": full,
        "bytes_done": done,
        "progress": _share(done, full),
        "bytes_per_s": None if rate is None else round(rate),
        "seconds_left": round(left / rate) if left is not None and rate else None,
    }


def _share(done: int | None, full: int | None) -> float | None:
    if done is None or full is None:
        return None
    return round(done / full, 4) if full else 1.0
