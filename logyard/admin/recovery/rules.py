"""What a recovery may do, and why not: pure functions of what was seen, for how long, and of what was done before.

Each answers None where the step may be taken, else the reason why it is withheld, for a person to read. The rules:
1. nothing is done while no broker answers, with these credentials, from here, in this very look (but see 6);
2. who gives a sign of life, to us or to its own host, is never stopped; a refused login or right is such a sign;
3. two witnesses before anything is fenced or stopped, and both for `grace_s` and three looks on end;
4. never two brokers at a time, never one whose end would take a partition below its min.insync.replicas;
5. so many fencings and stops an hour, whoever made them; none of a controller that was elected a moment ago;
6. where no broker answers, ZooKeeper and the brokers' own hosts decide: gone from both is dead, and is started.
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
# How long one that was stopped is waited for before another may be, where it does not come back.
STOP_SPACING_MS = 600_000
# How long one that was stopped is given until it may be again: another run may have started it meanwhile.
AGAIN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """For how long something has looked ill without a break: seconds since the recovery began, and looks."""

    since: float
    looks: int = 1

    def lasts(self, now: float, grace_s: float) -> bool:
        return self.looks >= LOOKS_MIN and now - self.since >= grace_s


def once_more(doubt: Doubt | None, now: float) -> Doubt:
    return Doubt(now) if doubt is None else Doubt(doubt.since, doubt.looks + 1)


def hold_any(evidence: Evidence) -> str | None:
    """Whether anything may be done to a cluster that is registered."""
    if evidence.answering:
        return None
    return "no broker answers from here with this connection's credentials"


def hold_fence(evidence: Evidence, journal: Journal, grace_s: float, *, disputed: bool = False) -> str | None:
    """Whether /controller may be deleted. `disputed`: it works, but does not tell all brokers so."""
    others = [broker for broker in evidence.answering if broker != evidence.view.holder]
    if not others:
        return "no other broker answers that could be controller instead"
    if not disputed and evidence.exercised is not False:
        return "whether it works through its queue cannot be seen in ZooKeeper"
    age_ms = max(journal.now_ms - evidence.view.elected_ms, 0)
    if age_ms < grace_s * 1000:
        return f"it was elected less than {grace_s:g} s ago and may be taking over"
    fences = _lately(journal, FENCE)
    if fences >= FENCES_PER_HOUR:
        return f"{fences} controllers were fenced within the last hour: a person has to look"
    return None


def hold_stop(broker: int, evidence: Evidence, journal: Journal) -> str | None:
    """Whether that broker may be stopped, as far as the others and what was done before are concerned."""
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
        return f"{stops} brokers were stopped within the last hour: a person has to look"
    return None


def hold_start(evidence: Evidence, broker: int, host_state: HostState, doubt: bool) -> str | None:
    """Whether a broker that is not registered may be started as it is. `doubt`: it has been missing for long."""
    if evidence.wire(broker).is_alive or host_state is HostState.ANSWERS:
        return "it lives and is not registered: can it reach ZooKeeper?"
    if host_state is HostState.GONE:
        return None
    if host_state in (HostState.RUNS, HostState.STARTING, HostState.SILENT):
        return f"{host_state.value}: it may be starting, or slow"
    # Nobody on its host can tell. A start does no harm where it runs; but only what looks dead is started.
    if evidence.wire(broker) is Wire.CLOSED or (doubt and evidence.answering):
        return None
    if evidence.answering:
        return "it may be back by itself in a moment"
    return "no broker answers from here, and no broker_status_command tells whether it runs"


def is_hung(evidence: Evidence, broker: int, host_state: HostState, *, hung: bool, hushed: bool) -> bool:
    """Whether a broker that ZooKeeper has ended has a process that hangs, and has to be ended first.

    Its own host has said so for long (`hushed`); or says that a process is there (or nothing), while the port takes
    connections and says nothing for as long (`hung`), though other brokers answer from here. A process with a closed
    port (also where only its host sees that) is starting: loading logs may take long.
    """
    if evidence.wire(broker).is_alive or broker in evidence.view.brokers:
        return False
    if host_state is HostState.SILENT:
        return hushed
    return host_state in (HostState.RUNS, HostState.UNKNOWN) and hung and bool(evidence.answering)


def endangered(
    partitions: PartitionsView, live: Mapping[int, object], broker: int, min_isr: Mapping[str, int]
) -> list[TopicPartition]:
    """The partitions that would have too few replicas in sync without that broker, though it is registered."""
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
