"""The brokers of a cluster: which is controller, what each one leads and holds, and which partitions are unhealthy.
Pure.

Epochs and listeners are known to ZooKeeper only, bytes to the brokers only; values that were not requested are None.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from logyard.admin.cluster.snapshot import NO_CONTROLLER, ClusterSnapshot, DirectorySpace, PartitionView, ReplicaSize
from logyard.admin.quantities import size
from logyard.broker.model import BrokerInfo, TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """One broker. `leads` and `preferred` count partitions; `bytes` is the size of all its replicas.

    `lives` False: it is not registered, although replicas are assigned to it.
    """

    id: int
    lives: bool
    address: str | None = None
    rack: str | None = None
    epoch: int | None = None
    listeners: tuple[str, ...] | None = None
    leads: int = 0
    preferred: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    bytes: int | None = None
    directories: tuple[DirectorySpace, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """One unhealthy partition."""

    tp: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int

    def __str__(self) -> str:
        isr = ",".join(map(str, self.isr)) or "none"
        leader = self.leader if self.leader >= 0 else "none"
        replicas = ",".join(map(str, self.replicas))
        return f"{self.tp}  leader {leader}  isr {isr}  replicas {replicas}  min.insync.replicas {self.min_isr}"


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Brokers by id; partitions by name. `offline`: without a live leader."""

    cluster_id: str
    controller: int | None
    controller_epoch: int | None
    topics: int
    partitions: int
    brokers: tuple[BrokerReport, ...]
    under_replicated: tuple[PartitionProblem, ...] = field(default=())
    under_min_isr: tuple[PartitionProblem, ...] = field(default=())
    offline: tuple[PartitionProblem, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "controller_epoch": self.controller_epoch,
            "topics": self.topics,
            "partitions": self.partitions,
            "brokers": [_broker_json(broker, broker.id == self.controller) for broker in self.brokers],
            "under_replicated": [_problem_json(problem) for problem in self.under_replicated],
            "under_min_isr": [_problem_json(problem) for problem in self.under_min_isr],
            "offline": [_problem_json(problem) for problem in self.offline],
        }


def report(
    snapshot: ClusterSnapshot,
    min_isr: Mapping[str, int],
    *,
    sizes: Iterable[ReplicaSize] | None = None,
    directories: Iterable[DirectorySpace] = (),
    untold: Container[int] = (),
    registrations: Mapping[int, BrokerInfo] | None = None,
    controller_epoch: int | None = None,
) -> ClusterReport:
    """Count leaders, replicas and problems; with the directories of the brokers that told.

    `min_isr`: topic → min.insync.replicas; a topic that is missing has 1. `untold`: brokers whose bytes nobody knows.
    """
    views = list(snapshot.partitions())
    problems = [_problem(tp, view, min_isr.get(tp.topic, 1)) for tp, view in views]
    counts = _counted(view for _, view in views)
    known = set(snapshot.brokers) | set(counts)
    dirs: dict[int, list[DirectorySpace]] = {}
    for each in directories:
        dirs.setdefault(each.broker, []).append(each)
    held: dict[int, int] | None = None
    if sizes is not None:
        held = {broker: 0 for broker in snapshot.brokers if broker not in untold}
        for one in sizes:
            held[one.broker] = held.get(one.broker, 0) + one.size
    return ClusterReport(
        cluster_id=snapshot.cluster_id,
        controller=snapshot.controller if snapshot.controller != NO_CONTROLLER else None,
        controller_epoch=controller_epoch,
        topics=len(snapshot.topics),
        partitions=len(views),
        brokers=tuple(
            replace(
                _broker(broker, snapshot, counts.get(broker, _Counts()), held, (registrations or {}).get(broker)),
                directories=tuple(dirs.get(broker, ())),
            )
            for broker in sorted(known)
        ),
        under_replicated=tuple(p for p in problems if not set(p.replicas) <= set(p.isr)),
        under_min_isr=tuple(p for p in problems if p.leader < 0 or len(p.isr) < min(p.min_isr, len(p.replicas))),
        offline=tuple(p for p in problems if p.leader not in snapshot.brokers),
    )


@dataclass
class _Counts:
    leads: int = 0
    preferred: int = 0
    replicas: int = 0
    out_of_sync: int = 0


def _counted(views: Iterable[PartitionView]) -> dict[int, _Counts]:
    found: dict[int, _Counts] = {}
    for view in views:
        for broker in view.replicas:
            counts = found.setdefault(broker, _Counts())
            counts.replicas += 1
            counts.leads += view.leader == broker
            counts.preferred += view.preferred == broker
            counts.out_of_sync += broker not in view.isr
    return found


def _broker(
    broker: int, snapshot: ClusterSnapshot, counts: _Counts, held: Mapping[int, int] | None, info: BrokerInfo | None
) -> BrokerReport:
    node = snapshot.brokers.get(broker)
    return BrokerReport(
        id=broker,
        lives=node is not None,
        address=f"{node.host}:{node.port}" if node is not None else None,
        rack=node.rack if node is not None else None,
        epoch=info.epoch if info is not None else None,
        listeners=tuple(f"{e.listener}://{e.host}:{e.port}" for e in info.endpoints) if info is not None else None,
        leads=counts.leads,
        preferred=counts.preferred,
        replicas=counts.replicas,
        out_of_sync=counts.out_of_sync,
        bytes=held.get(broker) if held is not None else None,
    )


def _problem(tp: TopicPartition, view: PartitionView, min_isr: int) -> PartitionProblem:
    return PartitionProblem(tp, view.leader, view.replicas, view.isr, min_isr)


def _broker_json(broker: BrokerReport, controls: bool) -> dict[str, Any]:
    return {
        "id": broker.id,
        "lives": broker.lives,
        "controller": controls,
        "address": broker.address,
        "rack": broker.rack,
        "epoch": broker.epoch,
        "listeners": list(broker.listeners) if broker.listeners is not None else None,
        "leaders": broker.leads,
        "preferred_leaders": broker.preferred,
        "replicas": broker.replicas,
        "out_of_sync": broker.out_of_sync,
        "bytes": broker.bytes,
        "log_dirs": [
            {"path": one.path, "online": one.is_online, "total_bytes": one.total, "usable_bytes": one.usable}
            for one in broker.directories
        ],
    }


def _problem_json(problem: PartitionProblem) -> dict[str, Any]:
    return {
        "topic": problem.tp.topic,
        "partition": problem.tp.partition,
        "leader": problem.leader,
        "replicas": list(problem.replicas),
        "isr": list(problem.isr),
        "min_isr": problem.min_isr,
    }


def text(found: ClusterReport) -> list[str]:
    """The report as lines: the cluster, a table of brokers, then the problems."""
    controller = "none" if found.controller is None else str(found.controller)
    epoch = "" if found.controller_epoch is None else f" (epoch {found.controller_epoch})"
    lines = [
        f"cluster {found.cluster_id}  controller {controller}{epoch}  brokers {sum(b.lives for b in found.brokers)}  "
        f"topics {found.topics}  partitions {found.partitions}"
    ]
    head = ("BROKER", "ADDRESS", "RACK", "EPOCH", "LEADERS", "PREFERRED", "REPLICAS", "OUT-OF-SYNC", "BYTES", "")
    lines += columns([head, *(_row(broker, found.controller) for broker in found.brokers)])
    lines += [
        f"broker {broker.id} listens on {' '.join(broker.listeners)}"
        for broker in found.brokers
        if broker.listeners is not None
    ]
    lines += [f"broker {broker.id} {_disk(one)}" for broker in found.brokers for one in broker.directories]
    for name, problems in (
        ("under-replicated", found.under_replicated),
        ("under-min-isr", found.under_min_isr),
        ("offline", found.offline),
    ):
        lines.append(f"{name}: {len(problems) or 'none'}")
        lines += [f"  {problem}" for problem in problems]
    return lines


def _disk(one: DirectorySpace) -> str:
    if not one.is_online:
        return f"{one.path}: offline"
    if one.total is None or one.usable is None or one.used is None:
        return f"{one.path}: free bytes not known"
    share = f" ({one.used / one.total:.0%} used)" if one.total else ""
    return f"{one.path}: {size(one.usable)} free of {size(one.total)}{share}"


def _row(broker: BrokerReport, controller: int | None) -> tuple[str, ...]:
    cells = (broker.id, broker.address, broker.rack, broker.epoch, broker.leads, broker.preferred, broker.replicas)
    notes = "controller" if broker.id == controller else "" if broker.lives else "down"
    return (*("-" if cell is None else str(cell) for cell in (*cells, broker.out_of_sync, broker.bytes)), notes)


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows as lines with aligned columns, two blanks apart."""
    table = list(rows)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
