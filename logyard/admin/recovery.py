"""Bringing a controller back: diagnose, treat, look again, until the cluster is whole or the time is over.

Each round looks once and does at most one thing, so that a cure that somebody else (or the cluster itself) brought
about in between is found and not repeated. What is remembered from round to round is a `Case`. A broker is started
only when its registration is gone: while its old session lives the new process would be refused (facts §1).
"""

import math
from collections.abc import Callable, Sequence

from logyard.admin.diagnosis import Evidence, Finding, Health, diagnose, health
from logyard.admin.ports import (
    ClusterClient,
    ControllerView,
    Ensemble,
    Launcher,
    Pause,
    Probe,
)
from logyard.admin.recovery_case import Case, Expectation, Limits, Recovery
from logyard.broker.errors import LogyardError
from logyard.broker.model import BrokerInfo


class NotRecovered(LogyardError):
    """The cluster is not whole in time; the text says what was found last and what was done."""


class Recoverer:
    """One recovery, or as much of it as one process does. `launcher` None: missing brokers are reported, not started.

    `client` is used for probes only, so it need not reach any broker yet, and is closed by `close`; `say` gets a
    line per finding and action. `case` is what earlier rounds remember, `elapsed_s` how long ago the first was.
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
        case: Case | None = None,
        elapsed_s: float = 0.0,
    ) -> None:
        self._ensemble, self._launcher, self._pause, self._say = ensemble, launcher, pause, say
        self._limits, self._expected = limits, expectation
        self._prober = client
        self.case = case or Case()
        self.view = ControllerView(None, -1, None, -1)  # what ZooKeeper said at the last round
        self._began = pause.monotonic() - elapsed_s

    def run(self) -> Recovery:
        """Recover, looking again and again. Raises NotRecovered, or what ZooKeeper says when it does not answer."""
        try:
            while (recovery := self.round()) is None:
                self._pause.sleep(self._limits.look_s)
            return recovery
        finally:
            self.close()

    def close(self) -> None:
        self._prober.close()

    def round(self) -> Recovery | None:
        """Look once, and treat what is found; the result where all is well. Raises NotRecovered when time is over."""
        case, evidence = self.case, self._look()
        now = diagnose(evidence)
        if case.finding is None:
            case.finding, case.holder, case.epoch = now, evidence.view.holder, evidence.view.epoch
        state = health(self._ensemble.partitions(), evidence.view.brokers)
        if self._is_whole(now, evidence, state):
            return self._result(evidence, state)
        self._tell(now, evidence, state)
        if self._now() > self._limits.total_s:
            done = "; ".join(case.actions) or "nothing"
            raise NotRecovered(f"not whole after {self._limits.total_s:g} s: {case.said}; done: {done}")
        self._treat(now, evidence)
        return None

    def diagnosis(self) -> Recovery:
        """Look once and change nothing: what is wrong now, as a result without actions."""
        evidence = self._look()
        self.case.finding, self.case.holder = diagnose(evidence), evidence.view.holder
        self.case.epoch = evidence.view.epoch
        state = health(self._ensemble.partitions(), evidence.view.brokers)
        self._tell(self.case.finding, evidence, state)
        return self._result(evidence, state)

    def next_due_s(self) -> float:
        """In how many seconds a treatment becomes due for which nothing visible has to happen first."""
        case, now = self.case, self._now()
        due = [since + self._limits.grace_s for since in (*case.since.values(), *case.suspects.values())]
        due += [at + self._limits.restart_every_s for at in case.tried.values()]
        return max(min((at - now for at in due if at > now), default=self._limits.grace_s), 0.0)

    # -- looking -----------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._pause.monotonic() - self._began

    def _look(self) -> Evidence:
        case, view = self.case, self._ensemble.controller()
        self.view = view
        case.places |= {broker: _place(info) for broker, info in view.brokers.items()}
        suspects = [broker for broker in sorted(case.suspects) if broker in view.brokers and broker != view.holder]
        answers = {broker: self._probe(view.brokers[broker]) for broker in suspects}
        holder = view.brokers.get(view.holder) if view.holder is not None else None
        probe = self._probe(holder) if holder else None
        beliefs: dict[int, int] = {}
        if holder and probe is not None and probe.queue:
            others = [b for b in sorted(view.brokers) if b != view.holder and b not in answers]
            answers |= {broker: self._probe(view.brokers[broker]) for broker in others}
            beliefs = {b: answer.controller for b, answer in answers.items() if answer is not None and answer.metadata}
            beliefs[holder.id] = probe.controller
        silent = [broker for broker, answer in sorted(answers.items()) if answer is not None and not answer.metadata]
        for broker in answers:
            if broker in silent:
                case.suspects.setdefault(broker, self._now())
            else:
                case.suspects.pop(broker, None)
        return Evidence(view, probe, self._expected_ids(), silent, beliefs)

    def _expected_ids(self) -> Sequence[int]:
        if self._expected.brokers:
            return sorted(self._expected.brokers)
        holders = {b for placed in self._ensemble.partitions().assignments.values() for b in placed.replicas}
        return sorted(holders | set(self.case.places))

    def _probe(self, broker: BrokerInfo) -> Probe | None:
        endpoint = next((e for e in broker.endpoints if e.protocol == self._expected.protocol), None)
        if endpoint is None:
            return None
        return self._prober.probe(broker.id, endpoint.host, endpoint.port, self._limits.probe_s)

    def _is_whole(self, now: Finding, evidence: Evidence, state: Health) -> bool:
        if now is not Finding.HEALTHY:
            return False
        # Where nothing is to be started, brokers that are away (and their places in ISRs) are only reported.
        if self._launcher is not None and (evidence.missing or evidence.silent or not state.is_full):
            return False
        if not state.is_led:
            return False
        epoch, before = evidence.view.epoch or 0, self.case.epoch
        if self._expected.epoch is not None and epoch <= self._expected.epoch:
            return False
        # Whatever was wrong with the controller, its cure is an election, and that raises the epoch. But nobody held
        # /controller at the first look: the election that followed may be the one that had begun. And brokers that
        # disagreed may have learned who it is.
        elected = (Finding.NO_CONTROLLER, Finding.NO_BROKER, Finding.CONTROLLER_DISPUTED, Finding.HEALTHY)
        return self.case.finding in elected or before is None or epoch > before

    def _result(self, evidence: Evidence, state: Health) -> Recovery:
        case, after = self.case, evidence.view
        assert case.finding is not None, "a round was made"
        return Recovery(
            finding=case.finding,
            controller_before=self._expected.controller if self._expected.controller is not None else case.holder,
            controller_after=-1 if after.holder is None else after.holder,
            epoch_before=self._expected.epoch if self._expected.epoch is not None else case.epoch,
            epoch_after=after.epoch or 0,
            restarted=tuple(sorted(case.restarted)),
            missing=tuple(evidence.missing),
            health=state,
            actions=tuple(case.actions),
            seconds=self._now(),
        )

    # -- treating ------------------------------------------------------------------------------------

    def _treat(self, finding: Finding, evidence: Evidence) -> None:
        case, view, now = self.case, evidence.view, self._now()
        case.since = {finding: case.since.get(finding, now)}
        patient = now - case.since[finding] < self._limits.grace_s
        if finding is Finding.CONTROLLER_HUNG and view.holder is not None:
            case.suspects.setdefault(view.holder, now)
        match finding:
            case Finding.CONTROLLER_HUNG if not patient or not self._may_be_taking_over(evidence):
                self._fence(view)
            case Finding.CONTROLLER_DEAD if not patient:
                # The session should have expired by now: the process lives on behind a dead port.
                self._fence(view)
            case Finding.EPOCH_WEDGED:
                self._repair_epoch(view)
            case Finding.CONTROLLER_DISPUTED if not patient:
                self._settle_dispute(evidence)
            case Finding.NO_CONTROLLER if not patient:
                if self._ensemble.nudge_election():
                    self._did("made and removed /controller, so that the brokers elect again")
                case.since = {}
        if self._launcher is not None:
            self._end_silent(self._launcher, evidence)
            self._start(self._launcher, evidence)

    def _may_be_taking_over(self, evidence: Evidence) -> bool:
        """Whether the holder may only be busy becoming controller: it answers so, or was elected since we look."""
        refused = evidence.probe is not None and evidence.probe.refused
        return refused or evidence.view.epoch != self.case.epoch

    def _fence(self, view: ControllerView) -> None:
        if self._ensemble.fence(view):
            self._did(f"fenced broker {view.holder}: /controller deleted at epoch {view.epoch}")
            self.case.since = {}

    def _settle_dispute(self, evidence: Evidence) -> None:
        """A new controller tells every broker who it is; a broker that does not listen even then is ended."""
        deaf = [broker for broker in evidence.disputing if broker in self.case.fenced_for]
        if deaf and self._launcher is not None:
            self.case.since = {}
            for broker in deaf:
                if self._launcher.stop(broker, *self._place(broker)):
                    self._did(f"stopped broker {broker}, which takes another broker for the controller")
            return
        self.case.fenced_for |= set(evidence.disputing)
        self._fence(evidence.view)

    def _repair_epoch(self, view: ControllerView) -> None:
        epochs = [state.controller_epoch for state in self._ensemble.partitions().states.values()]
        epoch = max([*epochs, self._expected.epoch or 0, 0]) + 1
        if self._ensemble.repair_epoch(view, epoch):
            self._did(f"wrote {epoch} into /controller_epoch, above every epoch that a partition's state names")

    def _end_silent(self, launcher: Launcher, evidence: Evidence) -> None:
        """The session of a broker that hangs should end by itself; where it does not, end what keeps it alive."""
        now = self._now()
        for broker in evidence.silent:
            if now - self.case.suspects[broker] >= self._limits.grace_s:
                self.case.suspects[broker] = now
                if launcher.stop(broker, *self._place(broker)):
                    self._did(f"stopped broker {broker}, which was silent but registered")

    def _start(self, launcher: Launcher, evidence: Evidence) -> None:
        case, now = self.case, self._now()
        for broker in evidence.missing:
            if now - case.tried.get(broker, -math.inf) < self._limits.restart_every_s:
                continue
            host, rack = self._place(broker)
            tried_before = broker in case.tried
            case.tried[broker] = now
            try:
                # It hung: its session has ended, but what is left of its process may still hold its port.
                was_hung = broker in case.suspects or (broker == self._expected.controller and tried_before)
                if was_hung and launcher.stop(broker, host, rack):
                    self._did(f"stopped what was left of broker {broker}")
                launcher.start(broker, host, rack)
            except LogyardError as problem:
                # Tried again later: its port or its session may still be held by what is left of the old process.
                self._did(f"broker {broker} did not start: {problem}")
            else:
                case.restarted.add(broker)
                self._did(f"started broker {broker}")

    def _place(self, broker: int) -> tuple[str, str]:
        return self.case.places.get(broker) or (self._expected.brokers.get(broker, ("", 0))[0], "")

    def _did(self, action: str) -> None:
        self.case.actions.append(action)
        self._say(action)

    def _tell(self, finding: Finding, evidence: Evidence, state: Health) -> None:
        parts = [finding.value if finding is not Finding.HEALTHY else f"controller {evidence.view.holder} answers"]
        if finding is Finding.CONTROLLER_DISPUTED:
            parts.append(f"brokers {evidence.disputing} do not take {evidence.view.holder} for it")
        if evidence.missing:
            parts.append(f"brokers {evidence.missing} are missing")
        if evidence.silent:
            parts.append(f"brokers {evidence.silent} are registered and silent")
        if not state.is_full:
            parts.append(
                f"{state.led} of {state.partitions} partitions led, {len(state.under_replicated)} under-replicated"
            )
        if state.stuck_deletions or state.stuck_moves:
            stuck = [*state.stuck_deletions, *map(str, state.stuck_moves)]
            parts.append(f"stuck: {', '.join(stuck[:5])}")
        text = ", ".join(parts)
        if text != self.case.said:
            self.case.said = text
            self._say(text)


def _place(info: BrokerInfo) -> tuple[str, str]:
    """Where a broker is, for its launcher: host and rack."""
    return info.endpoints[0].host if info.endpoints else "", info.rack or ""
