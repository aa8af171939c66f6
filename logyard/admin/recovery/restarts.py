"""Starts brokers that should run, and stops hung ones first.

`rules.py` decides what may be done; this module asks the witnesses and takes the steps, at most one stop per round. A
broker is started only when its registration is gone: while its old session exists, a new process would be refused
(facts §1).
"""

import math
from collections.abc import Callable, Mapping

from logyard.admin.ports import ClusterClient, ClusterUnreachable, Ensemble, Launcher, PartitionsView
from logyard.admin.recovery import rules
from logyard.admin.recovery.case import BrokerAddress, Case, Limits
from logyard.admin.recovery.diagnosis import Evidence
from logyard.admin.recovery.witnesses import STOP, HostState
from logyard.broker.errors import LogyardError

_MIN_ISR = "min.insync.replicas"


class BrokerRestarts:
    """Starts and stops brokers by their launcher. `did` is called with each step; `case.withheld` has those not
    taken."""

    def __init__(
        self,
        ensemble: Ensemble,
        client: ClusterClient,
        launcher: Launcher,
        limits: Limits,
        case: Case,
        did: Callable[[str], None],
    ) -> None:
        self._ensemble, self._client, self._launcher = ensemble, client, launcher
        self._limits, self._case, self._did = limits, case, did
        self._stopped = False

    def care(self, evidence: Evidence, partitions: PartitionsView, now: float, fenced: int | None) -> None:
        """Handle every broker that is not registered, or that is registered and gives no sign of life.

        `fenced`: the holder of /controller, if it is to be fenced instead.
        """
        self._stopped = False
        for broker in evidence.missing:
            self._bring_back(broker, evidence, now)
        for broker in evidence.silent:
            if broker != fenced:
                self._end_silent(broker, evidence, partitions, now)

    def end_deaf(self, brokers: list[int], evidence: Evidence, partitions: PartitionsView, now: float) -> None:
        """Stop one of the brokers that believe another broker to be controller even after a new election."""
        for broker in brokers:
            self._stop_registered(broker, evidence, partitions, now, "believes another broker to be the controller")

    def place(self, broker: int) -> BrokerAddress:
        return self._case.places.get(broker, BrokerAddress())

    def _bring_back(self, broker: int, evidence: Evidence, now: float) -> None:
        case, limits = self._case, self._limits
        if now - case.tried.get(broker, -math.inf) < limits.restart_every_s:
            return
        host_state = HostState.UNKNOWN if evidence.wire(broker).is_alive else self._host_state(broker, now)
        if host_state is None:
            return
        gone, hung, hushed = (self._lasts(doubts, broker, now) for doubts in (case.gone, case.hung, case.hushed))
        if gone and rules.is_hung(evidence, broker, host_state, hung=hung, hushed=hushed):
            hold = self._stop(broker, evidence, f"stopped the process of broker {broker}, which hung", now)
            if hold is not None:
                self._hold(broker, f"hangs, and is not stopped: {hold}")
                return
        else:
            hold = rules.hold_start(evidence, broker, host_state, gone)
            if hold is not None:
                self._hold(broker, f"is not registered, and not started: {hold}")
                return
        self._start(broker, now)

    def _start(self, broker: int, now: float) -> None:
        case, place = self._case, self.place(broker)
        case.tried[broker] = now
        try:
            self._launcher.start(broker, place.host, place.rack)
        except LogyardError as problem:
            # Tried again later: the old process may still hold its port or its session.
            self._did(f"broker {broker} did not start: {problem}")
        else:
            case.restarted.add(broker)
            case.forget_doubts_of(broker)
            self._did(f"started broker {broker}")

    def _end_silent(self, broker: int, evidence: Evidence, partitions: PartitionsView, now: float) -> None:
        """If the session of a hung broker does not expire, stop the process that keeps it alive."""
        case = self._case
        said = f"is registered and {evidence.wire(broker).value}"
        host_state = self._host_state(broker, now)
        if host_state is None or not self._lasts(case.quiet, broker, now):
            return
        if host_state is HostState.SILENT:
            if self._lasts(case.hushed, broker, now):
                self._stop_registered(broker, evidence, partitions, now, said)
        elif host_state is HostState.GONE:
            self._hold(broker, f"{said}: it has no process; its session has to expire first")
        else:
            self._hold(broker, f"{said}; nothing else confirms that it is unhealthy ({host_state.value})")

    def _stop_registered(
        self, broker: int, evidence: Evidence, partitions: PartitionsView, now: float, why: str
    ) -> None:
        if now - self._case.tried.get(broker, -math.inf) < self._limits.restart_every_s:
            return
        hold = rules.hold_any(evidence) or self._hold_for_partitions(broker, evidence, partitions)
        hold = hold or self._stop(broker, evidence, f"stopped broker {broker}, which {why}", now)
        if hold is not None:
            self._hold(broker, f"{why}, and is not stopped: {hold}")

    def _hold_for_partitions(self, broker: int, evidence: Evidence, partitions: PartitionsView) -> str | None:
        held = {tp.topic for tp, state in partitions.states.items() if broker in state.isr}
        try:
            found = self._client.topics_configs(sorted(held))
            minimum = {topic: int(values[_MIN_ISR].value or 1) for topic, values in found.items()}
        except (LogyardError, ClusterUnreachable, KeyError, ValueError) as problem:
            return f"{_MIN_ISR} of its partitions cannot be read ({problem})"
        if held - set(minimum):
            return f"{_MIN_ISR} of {', '.join(sorted(held - set(minimum))[:5])} cannot be read"
        few = rules.endangered(partitions, evidence.view.brokers, broker, minimum)
        return f"{len(few)} partitions, {few[0]} among them, would fall below {_MIN_ISR}" if few else None

    def _stop(self, broker: int, evidence: Evidence, action: str, now: float) -> str | None:
        """Record the stop and do it; returns the reason if it was not done."""
        if not self._launcher.can_stop:
            return "there is no broker_stop_command"
        if self._stopped:
            return "another broker was stopped just now"
        journal = self._ensemble.journal()
        hold = rules.hold_stop(broker, evidence, journal)
        if hold is not None:
            return hold
        if not self._ensemble.note(journal, STOP, broker):
            return "another recovery is at work"
        place = self.place(broker)
        try:
            if self._launcher.stop(broker, place.host, place.rack):
                self._stopped = True
                self._case.forget_doubts_of(broker)
                self._did(action)
        except LogyardError as problem:
            self._case.tried[broker] = now
            return str(problem)
        return None

    def _host_state(self, broker: int, now: float) -> HostState | None:
        """Its state according to its own host; None if that was asked a moment ago."""
        case, place = self._case, self.place(broker)
        if now - case.asked.get(broker, -math.inf) < self._limits.ask_every_s:
            return None
        case.asked[broker] = now
        host_state = self._launcher.host_state(broker, place.host, place.rack)
        if host_state is HostState.SILENT:
            case.hushed[broker] = rules.once_more(case.hushed.get(broker), now)
        else:
            case.hushed.pop(broker, None)
        return host_state

    def _lasts(self, doubts: Mapping[int, rules.Doubt], broker: int, now: float) -> bool:
        return broker in doubts and doubts[broker].lasts(now, self._limits.grace_s)

    def _hold(self, broker: int, why: str) -> None:
        self._case.withheld[broker] = f"broker {broker} {why}"
