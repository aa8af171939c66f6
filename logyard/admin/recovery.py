"""Bringing a controller back: diagnose, treat, look again, until the cluster is whole or the time is over.

Each round looks once and does at most one thing, so that a cure that somebody else (or the cluster itself) brought
about in between is found and not repeated. A broker is started only when its registration is gone: while its old
session lives the new process would be refused (facts §1).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.diagnosis import Evidence, Finding, Health, diagnose, health
from logyard.admin.ports import (
    ClusterClient,
    ControllerView,
    Ensemble,
    Launcher,
    Pause,
    Probe,
)
from logyard.broker.errors import LogyardError
from logyard.broker.model import BrokerInfo


class NotRecovered(LogyardError):
    """The cluster is not whole in time; the text says what was found last and what was done."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience, in seconds. `grace_s`: how long brokers are left to elect by themselves, and a session to expire."""

    total_s: float = 300.0
    grace_s: float = 45.0
    look_s: float = 1.0
    probe_s: float = 5.0
    restart_every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done; the operator's typed result. Times in seconds."""

    finding: Finding
    controller_before: int | None
    controller_after: int
    epoch_before: int | None
    epoch_after: int
    restarted: tuple[int, ...]
    missing: tuple[int, ...]
    health: Health
    actions: tuple[str, ...]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.name,
            "controller_before": self.controller_before,
            "controller_after": self.controller_after,
            "epoch_before": self.epoch_before,
            "epoch_after": self.epoch_after,
            "restarted": list(self.restarted),
            "partitions": self.health.partitions,
            "partitions_led": self.health.led,
            "under_replicated": len(self.health.under_replicated),
            "missing": list(self.missing),
            "actions": list(self.actions),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is known beforehand. `epoch`: an epoch that the recovered controller's must be above.

    `controller`: who was controller, where a new one may have been elected already. `brokers`: those that ought to
    run, id → (host, port); all that hold replicas where it is empty.
    """

    controller: int | None = None
    epoch: int | None = None
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    protocol: str = "PLAINTEXT"


class Recoverer:
    """One recovery. `launcher` None: brokers that are missing are reported, not started.

    `client` is used for probes only, so it need not reach any broker yet, and is closed at the end; `say` gets a
    line per finding and action.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        client: ClusterClient,
        launcher: Launcher | None,
        pause: Pause,
        say: Callable[[str], None],
        limits: Limits,
        expectation: Expectation,
    ) -> None:
        self._ensemble, self._launcher, self._pause, self._say = ensemble, launcher, pause, say
        self._limits, self._expected = limits, expectation
        self._prober = client
        self._actions: list[str] = []
        self._tried: dict[int, float] = {}
        self._restarted: set[int] = set()
        self._suspects: dict[int, float] = {}  # brokers that hung → since when they are given time
        self._known: dict[int, BrokerInfo] = {}
        self._said = ""
        self._first_epoch: int | None = None
        self._since: dict[Finding, float] = {}

    def run(self) -> Recovery:
        """Recover. Raises NotRecovered, or what ZooKeeper says when it does not answer."""
        started = self._pause.monotonic()
        first = self._look()
        finding = diagnose(first)
        before = first.view
        self._first_epoch = before.epoch
        try:
            evidence = first
            while True:
                state = self._state(evidence.view)
                now = diagnose(evidence)
                if self._is_whole(now, evidence, state, before, finding):
                    seconds = self._pause.monotonic() - started
                    return self._result(finding, before, evidence, state, seconds)
                self._tell(now, evidence, state)
                if self._pause.monotonic() - started > self._limits.total_s:
                    done = "; ".join(self._actions) or "nothing"
                    raise NotRecovered(f"not whole after {self._limits.total_s:g} s: {self._said}; done: {done}")
                self._treat(now, evidence)
                self._pause.sleep(self._limits.look_s)
                evidence = self._look()
        finally:
            self._prober.close()

    # -- looking -----------------------------------------------------------------------------------

    def _look(self) -> Evidence:
        view = self._ensemble.controller()
        self._known.update(view.brokers)
        suspects = [broker for broker in sorted(self._suspects) if broker in view.brokers and broker != view.holder]
        answers = {broker: self._probe(view.brokers[broker]) for broker in suspects}
        silent = [broker for broker, answer in answers.items() if answer is not None and not answer.metadata]
        holder = view.brokers.get(view.holder) if view.holder is not None else None
        return Evidence(view, self._probe(holder) if holder else None, self._expected_ids(), silent)

    def _expected_ids(self) -> Sequence[int]:
        if self._expected.brokers:
            return sorted(self._expected.brokers)
        holders = {b for placed in self._ensemble.partitions().assignments.values() for b in placed.replicas}
        return sorted(holders | set(self._known))

    def _probe(self, broker: BrokerInfo) -> Probe | None:
        endpoint = next((e for e in broker.endpoints if e.protocol == self._expected.protocol), None)
        if endpoint is None:
            return None
        return self._prober.probe(broker.id, endpoint.host, endpoint.port, self._limits.probe_s)

    def _state(self, view: ControllerView) -> Health:
        return health(self._ensemble.partitions(), view.brokers)

    def _is_whole(
        self, now: Finding, evidence: Evidence, state: Health, before: ControllerView, finding: Finding
    ) -> bool:
        if now is not Finding.HEALTHY:
            return False
        # Where nothing is to be started, brokers that are away (and their places in ISRs) are only reported.
        if self._launcher is not None and (evidence.missing or evidence.silent or not state.is_full):
            return False
        if not state.is_led:
            return False
        epoch = evidence.view.epoch or 0
        if self._expected.epoch is not None and epoch <= self._expected.epoch:
            return False
        # Whatever was wrong with the controller, its cure is an election, and that raises the epoch.
        return finding is Finding.HEALTHY or before.epoch is None or epoch > before.epoch or self._was_between(finding)

    def _was_between(self, finding: Finding) -> bool:
        """Nobody held /controller at the first look: the election that followed may be the one that had begun."""
        return finding in (Finding.NO_CONTROLLER, Finding.NO_BROKER)

    def _result(
        self, finding: Finding, before: ControllerView, evidence: Evidence, state: Health, seconds: float
    ) -> Recovery:
        after = evidence.view
        known_before = self._expected.controller if self._expected.controller is not None else before.holder
        epoch_before = self._expected.epoch if self._expected.epoch is not None else before.epoch
        assert after.holder is not None, "a healthy controller holds /controller"
        assert after.epoch is not None, "a healthy controller has written /controller_epoch"
        return Recovery(
            finding=finding,
            controller_before=known_before,
            controller_after=after.holder,
            epoch_before=epoch_before,
            epoch_after=after.epoch,
            restarted=tuple(sorted(self._restarted)),
            missing=tuple(evidence.missing),
            health=state,
            actions=tuple(self._actions),
            seconds=seconds,
        )

    # -- treating ------------------------------------------------------------------------------------

    def _treat(self, finding: Finding, evidence: Evidence) -> None:
        view = evidence.view
        first_seen = self._since.setdefault(finding, self._pause.monotonic())
        self._since = {finding: first_seen}
        patient = self._pause.monotonic() - first_seen < self._limits.grace_s
        if finding is Finding.CONTROLLER_HUNG and view.holder is not None:
            self._suspects.setdefault(view.holder, self._pause.monotonic())
        match finding:
            case Finding.CONTROLLER_HUNG if not patient or not self._may_be_taking_over(evidence):
                self._fence(view)
            case Finding.CONTROLLER_DEAD if not patient:
                # The session should have expired by now: the process lives on behind a dead port.
                self._fence(view)
            case Finding.EPOCH_WEDGED:
                self._repair_epoch(view)
            case Finding.NO_CONTROLLER if not patient:
                if self._ensemble.nudge_election():
                    self._did("made and removed /controller, so that the brokers elect again")
                self._since = {}
        if self._launcher is not None:
            self._end_silent(self._launcher, evidence)
            self._start(self._launcher, evidence)

    def _may_be_taking_over(self, evidence: Evidence) -> bool:
        """Whether the holder may only be busy becoming controller: it answers so, or was elected since we look."""
        refused = evidence.probe is not None and evidence.probe.refused
        return refused or evidence.view.epoch != self._first_epoch

    def _fence(self, view: ControllerView) -> None:
        if self._ensemble.fence(view):
            self._did(f"fenced broker {view.holder}: /controller deleted at epoch {view.epoch}")
            self._since = {}

    def _repair_epoch(self, view: ControllerView) -> None:
        epochs = [state.controller_epoch for state in self._ensemble.partitions().states.values()]
        epoch = max([*epochs, self._expected.epoch or 0, 0]) + 1
        if self._ensemble.repair_epoch(view, epoch):
            self._did(f"wrote {epoch} into /controller_epoch, above every epoch that a partition's state names")

    def _end_silent(self, launcher: Launcher, evidence: Evidence) -> None:
        """The session of a broker that hangs should end by itself; where it does not, end what keeps it alive."""
        now = self._pause.monotonic()
        for broker in evidence.silent:
            if now - self._suspects[broker] >= self._limits.grace_s:
                self._suspects[broker] = now
                if launcher.stop(broker, *self._place(broker)):
                    self._did(f"stopped broker {broker}, which was silent but registered")

    def _start(self, launcher: Launcher, evidence: Evidence) -> None:
        now = self._pause.monotonic()
        for broker in evidence.missing:
            if now - self._tried.get(broker, -math.inf) < self._limits.restart_every_s:
                continue
            host, rack = self._place(broker)
            tried_before = broker in self._tried
            self._tried[broker] = now
            try:
                # It hung: its session has ended, but what is left of its process may still hold its port.
                was_hung = broker in self._suspects or (broker == self._expected.controller and tried_before)
                if was_hung and launcher.stop(broker, host, rack):
                    self._did(f"stopped what was left of broker {broker}")
                launcher.start(broker, host, rack)
            except LogyardError as problem:
                # Tried again later: its port or its session may still be held by what is left of the old process.
                self._did(f"broker {broker} did not start: {problem}")
            else:
                self._restarted.add(broker)
                self._did(f"started broker {broker}")

    def _place(self, broker: int) -> tuple[str, str]:
        info = self._known.get(broker)
        host = info.endpoints[0].host if info and info.endpoints else self._expected.brokers.get(broker, ("", 0))[0]
        return host, (info.rack if info else None) or ""

    def _did(self, action: str) -> None:
        self._actions.append(action)
        self._say(action)

    def _tell(self, finding: Finding, evidence: Evidence, state: Health) -> None:
        parts = [finding.value if finding is not Finding.HEALTHY else f"controller {evidence.view.holder} answers"]
        if evidence.missing:
            parts.append(f"brokers {evidence.missing} are missing")
        if evidence.silent:
            parts.append(f"brokers {evidence.silent} are registered and silent")
        if not state.is_full:
            parts.append(
                f"{state.led} of {state.partitions} partitions led, {len(state.under_replicated)} under-replicated"
            )
        text = ", ".join(parts)
        if text != self._said:
            self._said = text
            self._say(text)
