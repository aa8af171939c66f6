"""The controller: diagnose it, recover it, and check that the cluster is healthy again."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from logyard.admin.ports import Launcher
from logyard.admin.recovery.case import Case, Expectation, Limits
from logyard.admin.recovery.recovery import Recoverer
from logyard.admin.settings import BadSettings
from logyard.operators import outcomes
from logyard.operators.base import GRACE_S, ClusterOperator
from logyard.operators.fields import as_integer, as_truth
from logyard.operators.triggers.recovery import RecoveryRoundTrigger

# A round begins at least this often, even if clients see no change of the cluster.
_LONGEST_ROUND_S = 15.0


class RecoverControllerOperator(ClusterOperator):
    """Diagnose the controller in ZooKeeper and by requests to it, repair what is wrong, and wait for a healthy cluster.

    It repairs: no controller though brokers are alive, a controller whose process is dead, one that hangs (it is fenced
    by a multi that checks the epoch read at diagnosis), a /controller_epoch that is no number, brokers that disagree
    about the controller, no broker alive at all. Expected brokers that are not registered are started by the launcher;
    without a launcher they are named in `missing`, and a controller is fenced all the same. One sign alone is never
    enough: a broker that only this worker cannot reach, or may not ask, is not touched (docs/airflow.md has the table).
    The cluster is healthy when a controller answers, every partition with a live in-sync replica has a leader,
    half-created topics are finished, no deletion is stuck, and (with a launcher) every expected broker is back, every
    ISR is full and no reassignment is stuck.

    It may run at any time: before anybody noticed, after another controller was elected, and when nothing is wrong.
    When it defers, a worker is needed only for each round: when the cluster looks healthy or different to its clients,
    or when a repair becomes due. With `dry_run` it reports what is wrong and changes nothing.

    Returns controller_before, controller_after, epoch_before, epoch_after, restarted, partitions_led,
    under_replicated, stuck_moves, deleting, seconds, the finding with the actions taken, and what was withheld and why.

    :param restart_brokers: start brokers that are missing; if false they are only reported. (templated)
    :param epoch_before: the controller epoch before the failure, if the caller knows it: the epoch in the end must be
        higher. (templated)
    :param controller_before: the controller before the failure, for the report. (templated)
    :param probe_timeout_s: seconds that a controller has for an answer; it is asked three times.
    :param grace_s: seconds for which something must be wrong without interruption, and for which an election or the end
        of a session is awaited, before anything is forced.
    """

    tells = staticmethod(outcomes.recovered)
    template_fields = ("restart_brokers", "epoch_before", "controller_before", *ClusterOperator.template_fields)

    def __init__(
        self,
        *,
        restart_brokers: bool | str = True,
        epoch_before: int | str | None = None,
        controller_before: int | str | None = None,
        probe_timeout_s: float = 5.0,
        grace_s: float = 45.0,
        wait_timeout_s: float = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(wait_timeout_s=wait_timeout_s, **kwargs)
        self.restart_brokers = restart_brokers
        self.epoch_before = epoch_before
        self.controller_before = controller_before
        self.probe_timeout_s = probe_timeout_s
        self.grace_s = grace_s

    def execute(self, context: Context) -> dict[str, Any]:
        if self.checks_only:
            with self._recoverer(Case()) as recoverer:
                return recoverer.diagnosis().as_json()
        if self.deferrable:
            return self._round(Case())
        with self._recoverer(Case()) as recoverer:
            return recoverer.run().as_json()

    def resume(self, context: Context, event: dict[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
        """Do the next round, whatever the trigger reported: ZooKeeper and the brokers are asked again."""
        known = Case.from_json(case)
        # Only seconds on a monotonic clock count; the time until a worker takes the task is not counted.
        known.elapsed_s += max(float(event.get("waited_s") or 0.0), 0.0)
        return self._round(known)

    def expectation(self) -> Expectation:
        """What is known of the cluster before the failure, from the fields and the connection."""
        settings = self.hook.settings
        epoch = as_integer("epoch_before", self.epoch_before, -1)
        controller = as_integer("controller_before", self.controller_before, -1)
        return Expectation(
            controller=controller if controller >= 0 else None,
            epoch=epoch if epoch >= 0 else None,
            brokers=settings.expected_brokers(),
            protocol=settings.security_protocol,
        )

    @contextmanager
    def _recoverer(self, case: Case) -> Iterator[Recoverer]:
        hook = self.hook
        launcher, no_launcher = self._launcher()
        with hook.ensemble() as ensemble, hook.client() as client:
            yield Recoverer(
                ensemble=ensemble,
                client=client,
                launcher=launcher,
                pause=hook.pause(),
                say=self.log.info,
                limits=Limits(
                    total_s=self.wait_timeout_s,
                    grace_s=self.grace_s,
                    look_s=self.poll_interval_s,
                    probe_s=self.probe_timeout_s,
                ),
                expectation=self.expectation(),
                case=case,
                no_launcher=no_launcher,
            )

    def _launcher(self) -> tuple[Launcher | None, str]:
        """The launcher, or None and why there is none; a controller is fenced without one, too."""
        if not as_truth("restart_brokers", self.restart_brokers) or self.checks_only:
            return None, ""
        try:
            return self.hook.launcher(), ""
        except BadSettings as problem:
            return None, str(problem)

    def _round(self, case: Case) -> dict[str, Any]:
        with self._recoverer(case) as recoverer:
            recovery = recoverer.round()
            due_s = min(recoverer.next_due_s(), _LONGEST_ROUND_S)
            view = recoverer.view
        if recovery is not None:
            return recovery.as_json()
        trigger = RecoveryRoundTrigger(
            expected=sorted(self.expectation().brokers),
            controller=view.holder,
            brokers=sorted(view.brokers),
            logyard_conn_id=self.logyard_conn_id,
            poll_interval_s=self.poll_interval_s,
            deadline_ms=round((time.time() + due_s) * 1000),
        )
        return self.defer(  # raises TaskDeferred
            trigger=trigger,
            method_name="resume",
            kwargs={"case": case.as_json()},
            timeout=timedelta(seconds=self.wait_timeout_s + GRACE_S),
        )
