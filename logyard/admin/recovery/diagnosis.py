"""What is wrong with a controller: the witnesses' observations in, one finding out. Pure.

The holder of /controller is asked ListPartitionReassignments, which passes through its event queue (in Kafka too), with
Metadata on the same connection as control. If it does not answer, `Ensemble.exercise` tests it through ZooKeeper: a
controller that works and does not answer is healthy, but unreachable from here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from logyard.admin.ports import PartitionsView
from logyard.admin.recovery.witnesses import ControllerView, Probe, Queue, Wire
from logyard.broker.model import TopicPartition


class Finding(Enum):
    """What is wrong, in the order of the checks."""

    NO_BROKER = "no broker is registered"
    EPOCH_WEDGED = "/controller_epoch is not a number, so no controller can be elected"
    NO_CONTROLLER = "brokers are alive, but there is no /controller"
    NOT_ALLOWED = "brokers refuse this connection's login or rights, so nothing is known of them"
    OUT_OF_REACH = "no broker answers from here, though they are registered: the fault may be on this side"
    CONTROLLER_OUT_OF_REACH = "the controller works but does not answer from here: the fault may be on this side"
    CONTROLLER_DEAD = "the holder of /controller is dead, but its session is not over"
    CONTROLLER_HUNG = "the holder of /controller does not process its queue"
    CONTROLLER_DISPUTED = "brokers disagree about who is controller"
    HEALTHY = "the controller answers"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observations of one round: ZooKeeper's view, brokers' answers, and which brokers should run.

    `exercised`: whether the controller handled a request through ZooKeeper; None if that was not tried.
    """

    view: ControllerView
    probes: Mapping[int, Probe]
    expected: Sequence[int] = ()
    exercised: bool | None = None

    @property
    def holder(self) -> Probe | None:
        return None if self.view.holder is None else self.probes.get(self.view.holder)

    @property
    def answering(self) -> list[int]:
        """Registered brokers that answered from here, with this connection's credentials, in this round."""
        return sorted(b for b in self.view.brokers if self.wire(b) is Wire.ANSWERS)

    @property
    def disputing(self) -> list[int]:
        """Brokers that believe another broker than the holder of /controller to be controller."""
        return [b for b in self.answering if self.probes[b].controller != self.view.holder]

    @property
    def missing(self) -> list[int]:
        """Brokers that should run and are not registered."""
        return sorted(set(self.expected) - set(self.view.brokers))

    @property
    def silent(self) -> list[int]:
        """Registered brokers that gave no sign of life."""
        return sorted(b for b in self.view.brokers if not self.wire(b).is_alive)

    def wire(self, broker: int) -> Wire:
        probe = self.probes.get(broker)
        return Wire.UNKNOWN if probe is None else probe.wire


def diagnose(evidence: Evidence) -> Finding:
    """Return what is wrong with the controller (missing brokers are separate: `Evidence.missing`)."""
    view = evidence.view
    if not view.brokers:
        return Finding.NO_BROKER
    if view.epoch is None and view.epoch_version >= 0:
        return Finding.EPOCH_WEDGED
    if view.holder is None:
        return Finding.NO_CONTROLLER
    probe = evidence.holder
    if probe is not None and probe.wire is Wire.ANSWERS:
        return _judge_answers(evidence, probe)
    if not evidence.answering:
        refused = any(p.wire is Wire.REFUSES for p in evidence.probes.values())
        return Finding.NOT_ALLOWED if refused else Finding.OUT_OF_REACH
    if evidence.exercised:
        return Finding.CONTROLLER_OUT_OF_REACH
    if probe is not None and probe.wire is Wire.REFUSES:
        return Finding.NOT_ALLOWED
    if probe is not None and probe.wire is Wire.SILENT and view.holder in view.brokers:
        return Finding.CONTROLLER_HUNG
    return Finding.CONTROLLER_DEAD


def _judge_answers(evidence: Evidence, probe: Probe) -> Finding:
    if probe.queue is Queue.ANSWERS or (probe.queue is Queue.FORBIDDEN and evidence.exercised):
        return Finding.CONTROLLER_DISPUTED if evidence.disputing else Finding.HEALTHY
    if evidence.exercised:
        return Finding.CONTROLLER_OUT_OF_REACH
    # One witness alone (ZooKeeper) is not enough if the other must not be asked.
    return Finding.NOT_ALLOWED if probe.queue is Queue.FORBIDDEN else Finding.CONTROLLER_HUNG


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a cluster, counted from the states in ZooKeeper.

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
        """Whether every partition with a live ISR member has a leader (one whose ISR is all dead cannot, without
        loss)."""
        return not self.unled and not self.half_made and not self.stuck_deletions

    @property
    def is_full(self) -> bool:
        return self.is_led and not self.under_replicated and not self.lost and not self.stuck_moves


def health(view: PartitionsView, live: Mapping[int, object]) -> Health:
    """Compare every partition's state with the live brokers; topics being deleted are left out."""
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
        # A replica that is being added may take hours to catch up, which is normal.
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
    # A deletion waits for dead brokers, and for the end of moves.
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
