"""The state of a cluster as the page keeps it: the snapshot, its counts, and the two long lists as documents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from logyard.admin.cluster.snapshot import NO_CONTROLLER, ClusterSnapshot
from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.ports import ClusterUnreachable, DescribingClient
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.controllers import ControllerHistory
from logyard.plugins.logyard_ui.cluster.counts import TOPIC_COLUMNS, ClusterCounts, count_cluster
from logyard.plugins.logyard_ui.responses.document import Document

CELLS_MAX = 640_000

Moves = Callable[[bool], Mapping[TopicPartition, Assignment] | None]


def moves_unknown(_newest: bool) -> None:
    """`Moves` where nobody knows them."""


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller. `kind`: zookeeper or kraft; `known` False: the cluster refuses to tell this user."""

    kind: str
    known: bool
    id: int | None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """What ZooKeeper said about the controller, and when it was asked, on the clock that never goes back."""

    holder: int | None
    epoch: int | None
    asked_s: float


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`topics`, `replicas`: the list of topics and the replica map. `controllers`: the history, the current one first.

    `expected`: the brokers that the connection says should run; empty where it says nothing.
    """

    snapshot: ClusterSnapshot
    counts: ClusterCounts
    topics: Document
    replicas: Document
    controller: Controller
    controllers: tuple[dict[str, Any], ...]
    expected: tuple[int, ...]


def read_state(
    client: DescribingClient,
    settings: ClusterSettings,
    before: ClusterState | None,
    history: ControllerHistory,
    epoch: ControllerEpoch | None,
    now_ms: int,
    now_s: float,
    moves: Moves = moves_unknown,
) -> ClusterState:
    """Read the cluster; counts and documents of `before` are reused where nothing has changed.

    `moves`: gives the running reassignments, as they were read last or the newest. The newest are asked for only where
    a partition has too few replicas in sync without them, since the controller may hang.

    Raises ClusterUnreachable, ApiError.
    """
    snapshot = _with_moves(client.snapshot(), moves)
    moving = snapshot.reassignments
    controller = read_controller(client, snapshot)
    if controller.known:
        history.add(controller.id, controller.epoch, now_ms, now_s)
        current = history.current
        if epoch is not None and current is not None and epoch.holder == current.id:
            # An answer from before this term began is about an earlier one.
            history.add(current.id, epoch.epoch if epoch.asked_s >= current.begun_s else None, now_ms, now_s)
    if before is not None and _counted(before.snapshot) == _counted(snapshot):
        counts, topics, replicas = before.counts, before.topics, before.replicas
    else:
        counts = count_cluster(snapshot.topics, snapshot.brokers, moving or {})
        topics, replicas = topics_document(counts), replicas_document(counts, snapshot)
    return ClusterState(
        snapshot=snapshot,
        counts=counts,
        topics=topics,
        replicas=replicas,
        controller=controller,
        controllers=tuple(history.as_json()),
        expected=_expected(settings),
    )


def _with_moves(snapshot: ClusterSnapshot, moves: Moves) -> ClusterSnapshot:
    """The snapshot with the moves that hold for it: those that began after the last read of them too.

    A move that ended in between is in the last read only, and the snapshot may be from before its end.
    """
    before = moves(False)
    newest = moves(True) if _lacks_replicas(snapshot, before or {}) else None
    return replace(snapshot, reassignments=before if newest is None else {**(before or {}), **newest})


def _lacks_replicas(snapshot: ClusterSnapshot, moving: Mapping[TopicPartition, Assignment]) -> bool:
    return any(
        view.is_under_replicated(moving.get(TopicPartition(name, view.partition)))
        for name, topic in snapshot.topics.items()
        for view in topic.partitions
        if len(view.isr) < len(view.replicas)
    )


def _counted(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """What the counts are made of."""
    return snapshot.topics, snapshot.brokers, snapshot.reassignments or {}


def read_controller(client: DescribingClient, snapshot: ClusterSnapshot) -> Controller:
    """The controller by Metadata, or the quorum's leader where there is a quorum."""
    try:
        quorum = client.quorum()
    except ApiError as refusal:
        # CLUSTER_AUTHORIZATION_FAILED says nothing about the quorum; any other error does.
        return Controller("kraft", refusal.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    except ClusterUnreachable:
        return Controller("kraft", True, None)  # brokers answered Metadata, but no quorum leader answers
    if quorum is not None:
        return Controller("kraft", True, quorum.leader if quorum.leader >= 0 else None, quorum.epoch)
    named = snapshot.controller
    # Brokers may still name a controller that is no longer alive.
    alive = named != NO_CONTROLLER and named in snapshot.brokers
    return Controller("zookeeper", True, named if alive else None)


def topics_document(counts: ClusterCounts) -> Document:
    return Document.versioned({"columns": TOPIC_COLUMNS, "rows": counts.rows})


def replicas_document(counts: ClusterCounts, snapshot: ClusterSnapshot) -> Document:
    """The replica map; topics at the end are left out where it would have more than CELLS_MAX cells."""
    alive = [broker for broker in counts.columns if broker in snapshot.brokers]
    shown = CELLS_MAX // max(len(counts.columns), 1)
    totals = [counts.brokers[broker] for broker in counts.columns]
    return Document.versioned(
        {
            "brokers": counts.columns,
            "alive": [int(broker in snapshot.brokers) for broker in counts.columns],
            "racks": [snapshot.brokers[b].rack if b in snapshot.brokers else None for b in counts.columns],
            "topics_total": len(counts.rows),
            "topics": [row[0] for row in counts.rows[:shown]],
            "internal": [row[TOPIC_COLUMNS.index("internal")] for row in counts.rows[:shown]],
            "replicas": counts.placed[:shown],
            "leaders": counts.led[:shown],
            "total": {"replicas": [c.replicas for c in totals], "leaders": [c.leaders for c in totals]},
            "mean": {
                "replicas": mean([counts.brokers[broker].replicas for broker in alive]),
                "leaders": mean([counts.brokers[broker].leaders for broker in alive]),
            },
        }
    )


def mean(numbers: list[int]) -> float:
    return round(sum(numbers) / len(numbers), 3) if numbers else 0.0


def _expected(settings: ClusterSettings) -> tuple[int, ...]:
    try:
        return tuple(sorted(settings.expected_brokers()))
    except (BadSettings, LogyardError):
        return ()  # the connection's test says what is wrong with it
