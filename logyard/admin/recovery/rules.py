"""What a recovery may do: pure functions of what was observed, for how long, and of earlier steps.

Each returns None if the step may be taken, else the reason why it is withheld, for a person to read. The rules:
1. nothing is done unless a broker answered from here, with these credentials, in this round (but see 6);
2. a broker that gives a sign of life, to us or to its own host, is never stopped; a refused login is such a sign;
3. fencing and stopping need two witnesses, both for `grace_s` and three rounds in a row;
4. never two brokers at a time, and never one whose stop would take a partition below its min.insync.replicas;
5. a limit of fencings and stops per hour, whoever made them; a controller that was just elected is not fenced;
6. if no broker answers, ZooKeeper and the brokers' own hosts decide: a broker missing in both is dead, and is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from logyard.admin.ports import PartitionsView
from logyard.admin.recovery.diagnosis import Evidence
from logyard.admin.recovery.witnesses import FENCE, STOP, HostState, Journal, Step, Wire
from logyard.broker.model import TopicPartition

LOOKS_MIN = 3
FENCES_PER_HOUR = 3
STOPS_PER_HOUR = 6
HOUR_MS = 3_600_000
# How long another broker may not be stopped, if a stopped one does not come back.
STOP_SPACING_MS = 600_000
# How long a stopped broker may not be stopped again: another run may have started it meanwhile.
AGAIN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """How long something has looked unhealthy without a break: since when (seconds of the recovery), and rounds."""

    since: float
    looks: int = 1

    def lasts(self, now: float, grace_s: float) -> bool:
        return self.looks >= LOOKS_MIN and now - self.since >= grace_s


def once_more(doubt: Doubt | None, now: float) -> Doubt:
    return Doubt(now) if doubt is None else Doubt(doubt.since, doubt.looks + 1)


def hold_any(evidence: Evidence) -> str | None:
    """Whether anything may be done to a registered broker."""
    if evidence.answering:
        return None
    return "no broker answers from here with this connection's credentials"


def hold_fence(evidence: Evidence, journal: Journal, grace_s: float, *, disputed: bool = False) -> str | None:
    """Whether /controller may be deleted. `disputed`: it works, but some brokers do not accept it."""
    others = [broker for broker in evidence.answering if broker != evidence.view.holder]
    if not others:
        return "no other broker answers that could be controller instead"
    if not disputed and evidence.exercised is not False:
        return "ZooKeeper does not show whether it processes its queue"
    age_ms = max(journal.now_ms - evidence.view.elected_ms, 0)
    if age_ms < grace_s * 1000:
        return f"it was elected less than {grace_s:g} s ago and may be taking over"
    fences = _lately(journal, FENCE)
    if fences >= FENCES_PER_HOUR:
        return f"{fences} controllers were fenced within the last hour: an operator has to check"
    return None


def hold_stop(broker: int, evidence: Evidence, journal: Journal) -> str | None:
    """Whether that broker may be stopped, as far as other brokers and earlier steps are concerned."""
    others = [other for other in evidence.missing if other != broker]
    if others and broker in evidence.view.brokers:
        return f"brokers {others} are missing: never two at a time"
    for step in journal.steps:
        age_ms = journal.now_ms - step.at_ms
        if step.kind == STOP and step.broker == broker and age_ms < AGAIN_MS:
            return "it was stopped a few minutes ago, maybe by another recovery, and is given time"
        recent = step.kind == STOP and age_ms < STOP_SPACING_MS
        if recent and step.broker != broker and not _is_back(step, evidence):
            return f"broker {step.broker} was stopped and is not back: never two at a time"
    stops = _lately(journal, STOP)
    if stops >= STOPS_PER_HOUR:
        return f"{stops} brokers were stopped within the last hour: an operator has to check"
    return None


def hold_start(evidence: Evidence, broker: int, host_state: HostState, doubt: bool) -> str | None:
    """Whether an unregistered broker may be started. `doubt`: it has been missing for long."""
    if evidence.wire(broker).is_alive or host_state is HostState.ANSWERS:
        return "it is alive but not registered: can it reach ZooKeeper?"
    if host_state is HostState.GONE:
        return None
    if host_state in (HostState.RUNS, HostState.STARTING, HostState.SILENT):
        return f"{host_state.value}: it may be starting, or slow"
    # Its host cannot tell. Starting a running broker does no harm, but only one that looks dead is started.
    if evidence.wire(broker) is Wire.CLOSED or (doubt and evidence.answering):
        return None
    if evidence.answering:
        return "it may come back by itself"
    return "no broker answers from here, and no broker_status_command tells whether it runs"


def is_hung(evidence: Evidence, broker: int, host_state: HostState, *, hung: bool, hushed: bool) -> bool:
    """Whether an expired broker has a hung process that has to be stopped first.

    Either its own host has reported that for long (`hushed`); or the host reports a process (or nothing), while the
    port accepts connections without answering for as long (`hung`), and other brokers answer from here. A process with
    a closed port (even if only its host sees that) is starting: loading logs may take long.
    """
    if evidence.wire(broker).is_alive or broker in evidence.view.brokers:
        return False
    if host_state is HostState.SILENT:
        return hushed
    return host_state in (HostState.RUNS, HostState.UNKNOWN) and hung and bool(evidence.answering)


def endangered(
    partitions: PartitionsView, live: Mapping[int, object], broker: int, min_isr: Mapping[str, int]
) -> list[TopicPartition]:
    """The partitions that would have too few in-sync replicas if that registered broker stopped."""
    if broker not in live:
        return []
    return [
        tp
        for tp, state in sorted(partitions.states.items())
        if broker in state.isr
        and sum(1 for b in state.isr if b in live and b != broker) < max(min_isr.get(tp.topic, 1), 1)
    ]


def _lately(journal: Journal, kind: str) -> int:
    return sum(1 for step in journal.steps if step.kind == kind and journal.now_ms - step.at_ms < HOUR_MS)


def _is_back(step: Step, evidence: Evidence) -> bool:
    """Whether that broker registered after the step: a registration's czxid is the broker's epoch."""
    registered = evidence.view.brokers.get(step.broker)
    return registered is not None and registered.epoch > step.czxid
