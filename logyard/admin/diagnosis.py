"""What is wrong with a controller: evidence from ZooKeeper and from the brokers in, one finding out; pure.

The probe of a controller that holds /controller is ListPartitionReassignments, which passes through the
controller's event queue (in Kafka too), with Metadata on the same connection as control.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from logyard.admin.ports import ControllerView, PartitionsView, Probe
from logyard.broker.model import TopicPartition


class Finding(Enum):
    """What is wrong, in the order in which it is looked for."""

    NO_BROKER = "no broker is registered"
    EPOCH_WEDGED = "/controller_epoch is no number, nobody can be elected"
    NO_CONTROLLER = "brokers live, nobody holds /controller"
    CONTROLLER_DEAD = "the holder of /controller is gone, its session is not"
    CONTROLLER_HUNG = "the holder of /controller does not work through its queue"
    CONTROLLER_DISPUTED = "brokers disagree about who is controller"
    HEALTHY = "the controller answers"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look: ZooKeeper's view, the holder's probe (None: nobody could be asked), the brokers that ought to run.

    `silent`: brokers that were fenced, are registered still, and do not answer. `beliefs`: broker → whom it takes for
    the controller, where the brokers were asked.
    """

    view: ControllerView
    probe: Probe | None
    expected: Sequence[int] = ()
    silent: Sequence[int] = ()
    beliefs: Mapping[int, int] = field(default_factory=dict)

    @property
    def disputing(self) -> list[int]:
        """Brokers that take another broker for the controller than the one that holds /controller."""
        return sorted(broker for broker, believed in self.beliefs.items() if believed != self.view.holder)

    @property
    def missing(self) -> list[int]:
        """Brokers that ought to run and are not registered."""
        return sorted(set(self.expected) - set(self.view.brokers))


def diagnose(evidence: Evidence) -> Finding:
    """Name what is wrong with the controller (missing brokers are another matter: `Evidence.missing`)."""
    view, probe = evidence.view, evidence.probe
    if not view.brokers:
        return Finding.NO_BROKER
    if view.epoch is None and view.epoch_version >= 0:
        return Finding.EPOCH_WEDGED
    if view.holder is None:
        return Finding.NO_CONTROLLER
    if view.holder not in view.brokers or (probe is not None and not probe.reachable):
        return Finding.CONTROLLER_DEAD
    if probe is not None and not (probe.metadata and probe.queue):
        return Finding.CONTROLLER_HUNG
    return Finding.CONTROLLER_DISPUTED if evidence.disputing else Finding.HEALTHY


@dataclass(frozen=True, slots=True)
class Health:
    """What a recovered cluster has to show, counted from ZooKeeper's states.

    `lost`: no member of the ISR is alive. `moving`: reassignments that run; `stuck_moves` are those of them to a
    broker that is not alive. `stuck_deletions`: topics to be deleted all of whose replicas' brokers are alive.
    """

    partitions: int = 0
    led: int = 0
    unled: tuple[TopicPartition, ...] = ()
    under_replicated: tuple[TopicPartition, ...] = ()
    half_made: tuple[TopicPartition, ...] = ()
    deleting: tuple[str, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    moving: tuple[TopicPartition, ...] = ()
    stuck_moves: tuple[TopicPartition, ...] = ()
    stuck_deletions: tuple[str, ...] = ()

    @property
    def is_led(self) -> bool:
        """Every partition that has a live ISR member is led (one whose ISR is all dead cannot be, without loss)."""
        return not self.unled and not self.half_made and not self.stuck_deletions

    @property
    def is_full(self) -> bool:
        return self.is_led and not self.under_replicated and not self.lost and not self.stuck_moves


def health(view: PartitionsView, live: Mapping[int, object]) -> Health:
    """Judge every partition's state against the brokers that live; topics being deleted are left out."""
    unled: list[TopicPartition] = []
    under: list[TopicPartition] = []
    lost: list[TopicPartition] = []
    partitions = 0
    for tp, placed in sorted(view.assignments.items()):
        state = view.states.get(tp)
        if tp.topic in view.deleting or state is None:
            continue
        partitions += 1
        if state.leader not in live:
            (unled if any(broker in live for broker in state.isr) else lost).append(tp)
        # A replica that is being added may take hours to catch up: that is no damage.
        if not set(placed.replicas) - set(placed.adding) <= set(state.isr):
            under.append(tp)
    half_made = tuple(
        tp
        for tp in view.stateless
        if tp.topic not in view.deleting and any(b in live for b in view.assignments[tp].replicas)
    )
    moving = tuple(
        tp for tp, a in sorted(view.assignments.items()) if a.is_reassigning and tp.topic not in view.deleting
    )
    # Deletion waits for brokers that are away, and for moves to end.
    held_up = {tp.topic for tp, a in view.assignments.items() if a.is_reassigning or not set(a.replicas) <= set(live)}
    return Health(
        partitions=partitions + len(half_made),
        led=partitions - len(unled) - len(lost),
        unled=tuple(unled),
        under_replicated=tuple(under),
        half_made=half_made,
        deleting=tuple(view.deleting),
        lost=tuple(lost),
        moving=moving,
        stuck_moves=tuple(tp for tp in moving if not set(view.assignments[tp].target) <= set(live)),
        stuck_deletions=tuple(topic for topic in view.deleting if topic not in held_up),
    )
