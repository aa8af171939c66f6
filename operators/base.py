"""The base of all operators on a cluster: the connection, the link to the page, and how they wait."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator

from logyard.admin.cluster.observation import observe
from logyard.admin.errors import LogyardError
from logyard.admin.ports import AccessRefused, ClusterUnreachable, DescribingClient
from logyard.operators import assets
from logyard.operators.airflow_names import conf
from logyard.operators.fields import as_truth
from logyard.operators.hooks.cluster import CONFIG_SECTION, ClusterHook
from logyard.operators.links import ClusterPageLink
from logyard.operators.outcome import TellsOutcome
from logyard.operators.triggers.base import FIRST_REPORT_S, REPORT_S, ClusterTrigger, WaitFailed

# A trigger reports its own time-out; Airflow ends the deferral only this many seconds later.
GRACE_S = 60


class ClusterOperator(TellsOutcome, BaseOperator):
    """A task on one cluster. It says at its end what it did, and what no retry mends fails it at once (outcome.py).

    :param logyard_conn_id: the connection. (templated)
    :param deferrable: wait in the triggerer instead of a worker's slot.
    :param poll_interval_s: seconds between two reads of the cluster while waiting.
    :param wait_timeout_s: seconds after which a wait fails.
    :param dry_run: check everything and report what would be done, but change nothing. (templated, as the field
        `only_check`, because Airflow's operators have a method `dry_run`)
    """

    template_fields: Sequence[str] = ("logyard_conn_id", "only_check")

    ui_color = "#dfe9e4"
    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        logyard_conn_id: str = ClusterHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval_s: float = 1.0,
        wait_timeout_s: float = 600.0,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**assets.with_outlets(type(self), kwargs))
        self.logyard_conn_id = logyard_conn_id
        self.only_check = dry_run
        self.deferrable = deferrable
        self.poll_interval_s = poll_interval_s
        self.wait_timeout_s = wait_timeout_s

    @property
    def hook(self) -> ClusterHook:
        return ClusterHook(self.logyard_conn_id)

    @property
    def checks_only(self) -> bool:
        """Whether nothing may be changed. Raises BadSettings if the field rendered to neither true nor false."""
        return as_truth("dry_run", self.only_check)

    def waiting(self) -> dict[str, Any]:
        """The arguments that every trigger takes."""
        return {
            "logyard_conn_id": self.logyard_conn_id,
            "poll_interval_s": self.poll_interval_s,
            "deadline_ms": round((time.time() + self.wait_timeout_s) * 1000),
        }

    def wait(self, trigger: ClusterTrigger, method_name: str, **kwargs: Any) -> dict[str, Any]:
        """Return what `trigger` waits for.

        Polls for `defer_after_s`, then defers to `method_name`; an operator that is not deferrable polls to the end.
        Raises WaitFailed.
        """
        hook, said = self.hook, ""
        with hook.client() as client:
            pause = hook.pause()
            deadline = pause.monotonic() + self.wait_timeout_s
            defer_at = pause.monotonic() + min(defer_after_s(), self.wait_timeout_s)
            report_at = pause.monotonic() + FIRST_REPORT_S
            while True:
                try:
                    seen = observe(client, trigger.wants())
                except AccessRefused:
                    raise
                except ClusterUnreachable as problem:  # as in the triggerer: it may come back within the time-out
                    said = self._say(f"the cluster to answer ({problem})", said)
                else:
                    values = trigger.result(seen)
                    if values is not None:
                        return values
                    # What the task has begun is in this cluster; while it is deferred, the connection may be edited.
                    trigger.cluster_id = trigger.cluster_id or seen.snapshot.cluster_id
                    said = self._say(trigger.missing(seen), said)
                if self.deferrable and pause.monotonic() >= defer_at:
                    break
                if pause.monotonic() >= deadline:
                    raise WaitFailed(f"gave up waiting for {said}")
                if trigger.reports and pause.monotonic() >= report_at:
                    self._report(trigger, client, pause.monotonic())
                    report_at = pause.monotonic() + REPORT_S
                pause.sleep(self.poll_interval_s)
        return self.defer(  # raises TaskDeferred
            trigger=trigger,
            method_name=method_name,
            kwargs=kwargs or None,
            timeout=timedelta(seconds=self.wait_timeout_s + GRACE_S),
        )

    def _report(self, trigger: ClusterTrigger, client: DescribingClient, now_s: float) -> None:
        try:
            text = trigger.report(client, now_s)
        except LogyardError as problem:
            text = f"how far it is, is not known now ({problem})"
        if text:
            self.log.info(text)

    def _say(self, missing: str, said: str) -> str:
        if missing != said:
            self.log.info("waiting for %s", missing)
        return missing


def defer_after_s() -> float:
    """`[logyard] defer_after_s`: how many seconds an operator polls before it defers.

    Most waits end sooner. A deferral takes at least two heartbeats of the worker (`settle_s`).
    """
    return conf.getfloat(CONFIG_SECTION, "defer_after_s", fallback=5.0)
