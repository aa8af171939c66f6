"""One look at a cluster as the page keeps it: the snapshot, what is counted of it, the two long lists written out."""

from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import NO_CONTROLLER, ClusterSnapshot
from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.ports import ClusterUnreachable, DescribingClient
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.plugins.logyard_ui.cluster.controllers import ControllerHistory
from logyard.plugins.logyard_ui.cluster.counts import TOPIC_COLUMNS, Tally, tally
from logyard.plugins.logyard_ui.responses.document import Document

CELLS_MAX = 640_000


@dataclass(frozen=True, slots=True)
class Controller:
    """Who it is, as far as that can be told. `kind`: zookeeper or kraft; `known` False: we are not told."""

    kind: str
    known: bool
    id: int | None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class EpochView:
    """What ZooKeeper said about the controller, and when it was asked, on the clock that never goes back."""

    holder: int | None
    epoch: int | None
    asked_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """`controllers`: the history up to this look. `expected`: the brokers that ought to run, if anybody says."""

    snapshot: ClusterSnapshot
    tally: Tally
    topics: Document
    replicas: Document
    controller: Controller
    controllers: tuple[dict[str, Any], ...]
    expected: tuple[int, ...]


def look(
    client: DescribingClient,
    settings: ClusterSettings,
    before: Seen | None,
    history: ControllerHistory,
    epoch: EpochView | None,
    now_ms: int,
    now_s: float,
) -> Seen:
    """Look once. What did not change since `before` is taken from there. Raises ClusterUnreachable, ApiError."""
    snapshot = client.snapshot()
    controller = who_controls(client, snapshot)
    if controller.known:
        history.saw(controller.id, controller.epoch, now_ms, now_s)
        current = history.current
        if epoch is not None and current is not None and epoch.holder == current.id:
            # What was asked before this reign began tells of another one.
            history.saw(current.id, epoch.epoch if epoch.asked_s >= current.begun_s else None, now_ms, now_s)
    same = before is not None and (before.snapshot.topics, before.snapshot.brokers) == (
        snapshot.topics,
        snapshot.brokers,
    )
    if before is not None and same:
        counted, topics, replicas = before.tally, before.topics, before.replicas
    else:
        counted = tally(snapshot.topics, snapshot.brokers)
        topics, replicas = topics_document(counted), replicas_document(counted, snapshot)
    return Seen(
        snapshot=snapshot,
        tally=counted,
        topics=topics,
        replicas=replicas,
        controller=controller,
        controllers=tuple(history.as_json()),
        expected=_expected(settings),
    )


def who_controls(client: DescribingClient, snapshot: ClusterSnapshot) -> Controller:
    """The controller by Metadata, or the quorum's leader where there is a quorum."""
    try:
        quorum = client.quorum()
    except ApiError as refusal:
        # Not to be allowed to ask says nothing about the quorum; any other refusal does.
        return Controller("kraft", refusal.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    except ClusterUnreachable:
        return Controller("kraft", True, None)  # brokers answered Metadata, and have nobody to ask about this
    if quorum is not None:
        return Controller("kraft", True, quorum.leader if quorum.leader >= 0 else None, quorum.epoch)
    named = snapshot.controller
    # A name whose broker is gone is a rumour of the time before.
    alive = named != NO_CONTROLLER and named in snapshot.brokers
    return Controller("zookeeper", True, named if alive else None)


def topics_document(counted: Tally) -> Document:
    return Document.versioned({"columns": TOPIC_COLUMNS, "rows": counted.rows})


def replicas_document(counted: Tally, snapshot: ClusterSnapshot) -> Document:
    """The map of replicas, topics cut where there would be too many cells."""
    alive = [broker for broker in counted.columns if broker in snapshot.brokers]
    shown = CELLS_MAX // max(len(counted.columns), 1)
    totals = [counted.brokers[broker] for broker in counted.columns]
    return Document.versioned(
        {
            "brokers": counted.columns,
            "alive": [int(broker in snapshot.brokers) for broker in counted.columns],
            "racks": [snapshot.brokers[b].rack if b in snapshot.brokers else None for b in counted.columns],
            "topics_total": len(counted.rows),
            "topics": [row[0] for row in counted.rows[:shown]],
            "replicas": counted.placed[:shown],
            "leaders": counted.led[:shown],
            "total": {"replicas": [c.replicas for c in totals], "leaders": [c.leaders for c in totals]},
            "mean": {
                "replicas": mean([counted.brokers[broker].replicas for broker in alive]),
                "leaders": mean([counted.brokers[broker].leaders for broker in alive]),
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
