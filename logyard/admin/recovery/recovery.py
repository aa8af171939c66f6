"""Recovery of a controller: diagnose, take a step, diagnose again, until the cluster is healthy or the time is over.

Each round observes once and takes at most one step for the controller, so that a repair by somebody else (or by the
cluster itself) is noticed and not repeated. What is remembered from round to round is a `Case`; `rules.py` decides what
may be done; `restarts.py` starts and stops brokers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from logyard.admin.cluster.identity import led_elsewhere
from logyard.admin.ports import ClusterClient, Ensemble, EnsembleUnreachable, Launcher, PartitionsView, Pause
from logyard.admin.recovery import rules
from logyard.admin.recovery.case import BrokerAddress, Case, Expectation, Limits, Recovery
from logyard.admin.recovery.diagnosis import Evidence, Finding, Health, diagnose, health
from logyard.admin.recovery.restarts import BrokerRestarts
from logyard.admin.recovery.rules import Doubt
from logyard.admin.recovery.text import describe
from logyard.admin.recovery.witnesses import ControllerView, Probe, Queue, Wire
from logyard.broker.errors import LogyardError
from logyard.broker.model import BrokerInfo
from logyard.broker.znodes.controller import believed

# The key of `Case.withheld` for steps that concern the controller.
_CONTROLLER = -1


class NotRecovered(LogyardError):
    """The cluster is not healthy in time; the text says what was found last and what was done."""


class Recoverer:
    """One recovery, or the part of it that one process does. `launcher` None: missing brokers are reported, not started
    (`no_launcher` says why).

    `client` is used for probes and settings, need not reach any broker yet, and is closed by `close`; `say` gets a
    line per finding and action. `case` is what earlier rounds remember; its `elapsed_s` is the time since the first.
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
        no_launcher: str = "",
    ) -> None:
        self._ensemble, self._client, self._pause, self._say = ensemble, client, pause, say
        self._limits, self._expected = limits, expectation
        self._launcher, self._no_launcher = launcher, no_launcher
        self.case = case or Case()
        self.view = ControllerView(None, -1, None, -1)  # ZooKeeper's view at the last round
        self._began = pause.monotonic() - self.case.elapsed_s
        self._restarts = BrokerRestarts(ensemble, client, launcher, limits, self.case, self._did) if launcher else None

    def run(self) -> Recovery:
        """Recover, round by round. Raises NotRecovered."""
        try:
            while (recovery := self.round()) is None:
                self._pause.sleep(self._limits.look_s)
            return recovery
        finally:
            self.close()

    def close(self) -> None:
        self._client.close()

    def round(self) -> Recovery | None:
        """Do one round; returns the result if all is healthy. Raises NotRecovered when the time is over."""
        try:
            return self._round()
        except EnsembleUnreachable as problem:
            # Without ZooKeeper nothing is done, and all counts start again.
            self.case.forget_doubts()
            self._tell(f"{problem}; nothing is done meanwhile")
            self._end_in_time()
            return None
        finally:
            self.case.elapsed_s = self._now()

    def diagnosis(self) -> Recovery:
        """Observe once without changing anything; returns a result without actions. Raises EnsembleUnreachable."""
        evidence, partitions = self._look()
        self.case.finding, self.case.holder = diagnose(evidence), evidence.view.holder
        self.case.epoch = evidence.view.epoch
        state = health(partitions, evidence.view.brokers)
        self._tell(self._describe(self.case.finding, evidence, state))
        return self._result(evidence, state)

    def next_due_s(self) -> float:
        """Seconds until the next step becomes due merely because time passes."""
        case, now = self.case, self._now()
        doubts = [*case.quiet.values(), *case.gone.values(), *([case.doubt] if case.doubt else [])]
        due = [doubt.since + self._limits.grace_s for doubt in doubts]
        due += [at + self._limits.restart_every_s for at in case.tried.values()]
        soon = min((at - now for at in due if at > now), default=self._limits.grace_s)
        # Conditions that have lasted long enough only wait for more rounds.
        if any(now - doubt.since >= self._limits.grace_s and doubt.looks < rules.LOOKS_MIN for doubt in doubts):
            soon = min(soon, self._limits.look_s)
        return max(soon, 0.0)

    # -- looking -----------------------------------------------------------------------------------

    def _round(self) -> Recovery | None:
        case = self.case
        evidence, partitions = self._look()
        now = diagnose(evidence)
        if case.finding is None:
            case.finding, case.holder, case.epoch = now, evidence.view.holder, evidence.view.epoch
        state = health(partitions, evidence.view.brokers)
        if self._is_whole(now, evidence, state):
            return self._result(evidence, state)
        self._treat(now, evidence, partitions)
        self._tell(self._describe(now, evidence, state))
        self._end_in_time()
        return None

    def _end_in_time(self) -> None:
        if self._now() > self._limits.total_s:
            done = "; ".join(self.case.actions) or "nothing"
            raise NotRecovered(f"not healthy after {self._limits.total_s:g} s: {self.case.said}; done: {done}")

    def _refuse_elsewhere(self, found: str) -> None:
        """Raise NotRecovered where the connection was edited between two rounds: what was seen of brokers for how long
        is no reason to do anything to those of the same ids in another cluster."""
        known = self.case.cluster_id
        if edited := led_elsewhere(known, found, "when the recovery began"):
            raise NotRecovered(f"{edited}: nothing is done there; run it again")
        self.case.cluster_id = known or found

    def _now(self) -> float:
        return self._pause.monotonic() - self._began

    def _look(self) -> tuple[Evidence, PartitionsView]:
        case, view = self.case, self._ensemble.controller()
        self._refuse_elsewhere(view.cluster_id or "")
        partitions = self._ensemble.partitions()
        self.view = view
        told = {broker: BrokerAddress(host, port) for broker, (host, port) in self._expected.brokers.items()}
        case.places = told | case.places | {broker: self._place(info) for broker, info in view.brokers.items()}
        expected = self._expected_ids(partitions)
        probes = self._probe(sorted({*view.brokers, *expected}), view)
        evidence = Evidence(view, probes, expected)
        holder = evidence.holder
        if view.holder is not None and evidence.answering and (holder is None or holder.queue is not Queue.ANSWERS):
            done = self._ensemble.exercise(self._limits.probe_s)
            # If the controller changed meanwhile, this was its successor's work, and tells nothing about it.
            same = self._ensemble.controller().czxid == view.czxid
            evidence = replace(evidence, exercised=done if same else None)
        self._count(evidence)
        return evidence, partitions

    def _expected_ids(self, partitions: PartitionsView) -> Sequence[int]:
        if self._expected.brokers:
            return sorted(self._expected.brokers)
        holders = {b for placed in partitions.assignments.values() for b in placed.replicas}
        return sorted(holders | set(self.case.places))

    def _place(self, info: BrokerInfo) -> BrokerAddress:
        """A broker's address: its host for the launcher, and the listener of our protocol."""
        endpoint = next((e for e in info.endpoints if e.protocol == self._expected.protocol), None)
        if endpoint is not None:
            return BrokerAddress(endpoint.host, endpoint.port, info.rack or "")
        host, port = self._expected.brokers.get(info.id, ("", 0))
        named = info.endpoints[0].host if info.endpoints else ""
        return BrokerAddress(host or named, port, info.rack or "")

    def _probe(self, brokers: Sequence[int], view: ControllerView) -> dict[int, Probe]:
        known = {broker: self.case.places.get(broker, BrokerAddress()) for broker in brokers}
        addresses = {b: (place.host, place.port) for b, place in known.items() if place.host and place.port > 0}
        found = self._client.probe(addresses, self._limits.probe_s)
        for broker, probe in found.items():
            if probe.cluster_id and view.cluster_id and probe.cluster_id != view.cluster_id:
                what = f"it belongs to cluster {probe.cluster_id}, ZooKeeper to {view.cluster_id}"
                found[broker] = Probe(broker, Wire.REFUSES, detail=what)
        return {broker: found.get(broker, Probe(broker, Wire.UNKNOWN)) for broker in brokers}

    def _count(self, evidence: Evidence) -> None:
        """Record for how long brokers have been quiet or gone, without a break."""
        case, now = self.case, self._now()
        case.quiet = _longer(case.quiet, evidence.silent, now)
        case.gone = _longer(case.gone, evidence.missing, now)
        for broker, probe in evidence.probes.items():
            if probe.wire.is_alive or probe.wire is Wire.CLOSED:
                case.hung.pop(broker, None)
            elif probe.wire is Wire.SILENT or broker in case.hung:
                # Once the connection queue of a hung broker is full, it cannot be connected to at all.
                case.hung[broker] = rules.once_more(case.hung.get(broker), now)
        ailing = {_CONTROLLER, *evidence.silent, *evidence.missing, *evidence.disputing}
        case.hushed = {broker: doubt for broker, doubt in case.hushed.items() if broker in ailing}
        case.withheld = {broker: why for broker, why in case.withheld.items() if broker in ailing}

    def _is_whole(self, now: Finding, evidence: Evidence, state: Health) -> bool:
        if now is not Finding.HEALTHY or not state.is_led:
            return False
        # If no broker is to be started, missing brokers (and their places in ISRs) are only reported.
        all_answer = set(evidence.answering) == set(evidence.view.brokers)
        if self._launcher is not None and (evidence.missing or not all_answer or not state.is_full):
            return False
        return self._expected.epoch is None or (evidence.view.epoch or 0) > self._expected.epoch

    def _result(self, evidence: Evidence, state: Health) -> Recovery:
        case, after = self.case, evidence.view
        assert case.finding is not None, "a round was made"
        withheld = [*case.withheld.values()]
        if self._launcher is None and evidence.missing and self._no_launcher:
            withheld.append(f"brokers {evidence.missing} are not started: {self._no_launcher}")
            self._say(withheld[-1])
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
            withheld=tuple(withheld),
        )

    # -- treating ------------------------------------------------------------------------------------

    def _treat(self, finding: Finding, evidence: Evidence, partitions: PartitionsView) -> None:
        case = self.case
        case.withheld.pop(_CONTROLLER, None)
        # A port whose connection queue is full looks closed, and later hung again; either is fenced.
        fenced = finding in (Finding.CONTROLLER_DEAD, Finding.CONTROLLER_HUNG)
        doubted = ("HELD" if fenced else finding.name, evidence.view.czxid)
        before = case.doubt if case.doubted == doubted else None
        case.doubted, case.doubt = doubted, rules.once_more(before, self._now())
        hold = self._treat_controller(finding, evidence, partitions)
        if hold is not None:
            case.withheld[_CONTROLLER] = hold
        if self._restarts is not None:
            self._restarts.care(evidence, partitions, self._now(), evidence.view.holder if fenced else None)

    def _treat_controller(self, finding: Finding, evidence: Evidence, partitions: PartitionsView) -> str | None:
        """Take the step for the finding when it is due; returns why it is withheld, if it is."""
        assert self.case.doubt is not None, "counted before"
        lasts = self.case.doubt.lasts(self._now(), self._limits.grace_s)
        match finding:
            case Finding.CONTROLLER_HUNG | Finding.CONTROLLER_DEAD if lasts:
                return self._fence(evidence)
            case Finding.CONTROLLER_DISPUTED if lasts:
                return self._settle_dispute(evidence, partitions)
            case Finding.EPOCH_WEDGED:
                hold = rules.hold_any(evidence)
                if hold is None:
                    self._repair_epoch(evidence.view, partitions)
                return hold
            case Finding.NO_CONTROLLER if lasts:
                hold = rules.hold_any(evidence)
                if hold is None:
                    self._nudge()
                return hold
        return None

    def _fence(self, evidence: Evidence, *, disputed: bool = False) -> str | None:
        journal = self._ensemble.journal()
        hold = rules.hold_fence(evidence, journal, self._limits.grace_s, disputed=disputed)
        if hold is not None:
            return f"the controller is not fenced: {hold}"
        if self._ensemble.fence(evidence.view, journal):
            view = evidence.view
            self._did(f"fenced broker {view.holder}: /controller deleted at epoch {view.epoch}")
            self.case.doubt = None
        return None

    def _settle_dispute(self, evidence: Evidence, partitions: PartitionsView) -> str | None:
        """Have another controller elected, which announces itself to every broker; stop a broker that ignores even
        that."""
        deaf = [broker for broker in evidence.disputing if broker in self.case.fenced_for]
        if deaf and self._restarts is not None:
            self.case.doubt = None
            self._restarts.end_deaf(deaf, evidence, partitions, self._now())
            return None
        if deaf:
            return f"brokers {deaf} ignore a new controller too: {self._no_launcher or 'no launcher'}"
        hold = self._fence(evidence, disputed=True)
        if hold is None:
            self.case.fenced_for |= set(evidence.disputing)
        return hold

    def _repair_epoch(self, view: ControllerView, partitions: PartitionsView) -> None:
        epochs = [state.controller_epoch for state in partitions.states.values()]
        epoch = believed([*epochs, self._expected.epoch or 0]) + 1
        if self._ensemble.repair_epoch(view, epoch):
            self._did(f"wrote {epoch} into /controller_epoch, above every epoch that a partition's state names")

    def _nudge(self) -> None:
        if self._ensemble.nudge_election():
            self._did("created and removed /controller, so that the brokers elect again")
        self.case.doubt = None

    def _did(self, action: str) -> None:
        self.case.actions.append(action)
        self._say(action)

    def _describe(self, finding: Finding, evidence: Evidence, state: Health) -> str:
        without = self._no_launcher if self._launcher is None else ""
        return describe(finding, evidence, state, self.case.withheld.values(), without)

    def _tell(self, text: str) -> None:
        if text != self.case.said:
            self.case.said = text
            self._say(text)


def _longer(doubts: dict[int, Doubt], brokers: Sequence[int], now: float) -> dict[int, Doubt]:
    return {broker: rules.once_more(doubts.get(broker), now) for broker in brokers}
