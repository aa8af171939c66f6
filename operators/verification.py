"""After a reassignment, however it went: are the replicas where the plan wants them, is no throttle left?"""

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.execution import Plan, progress
from logyard.admin.settings import BadSettings
from logyard.admin.throttles import Throttle, restore
from logyard.operators.base import ClusterOperator, as_mapping
from logyard.operators.triggers.base import DONE, WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import MovesEndedTrigger, some


class NotAsPlanned(WaitFailed):
    """Replicas are not where the plan wants them; the text names them."""


class VerifyReassignmentOperator(ClusterOperator):
    """Wait for the plan's moves that still run, put back a throttle that was left, and check every partition.

    Meant to run whatever became of the execution (`trigger_rule="all_done"`): it cleans up after a worker that died
    and was not tried again. It fails where a partition is not as planned, or without a full ISR.

    :param plan: the plan document, or its JSON. (templated)
    :param throttle_before: what ExecuteReassignmentOperator pushed as `throttle_before`, or its JSON. (templated)
    """

    template_fields = ("plan", "throttle_before", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json", "throttle_before": "json"}

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        throttle_before: Mapping[str, Any] | str | None = None,
        wait_timeout_s: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(wait_timeout_s=wait_timeout_s, **kwargs)
        self.plan = plan
        self.throttle_before = throttle_before

    def execute(self, context: Context) -> dict[str, Any]:
        if not as_mapping("plan", self.plan):
            raise BadSettings("plan: there is none; did the planning fail?")
        moves = [move.as_json() for move in Plan.from_json(self.plan).moves]
        values = self.wait(MovesEndedTrigger(moves=moves, **self.waiting()), "finish")
        return self.finish(context, WaitEvent(DONE, values=values).as_json())

    def finish(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Clean up first, then judge: a throttle is put back although the moves did not end well.

        Moves that do not end in time keep theirs: nobody else would hold their rate.
        """
        WaitEvent.from_event(event)
        plan = Plan.from_json(self.plan)
        before = as_mapping("throttle_before", self.throttle_before)
        with self.hook.client() as client:
            if before and not self.checks_only:
                restore(client, Throttle.from_json(before))
                self.log.info("the throttle of before is back")
            state = progress(plan.moves, client.snapshot(reassignments=True))
        if state.running:
            raise NotAsPlanned(f"{len(state.running)} of {len(plan.moves)} not as planned: {some(state.running)}")
        self.log.info("%d partitions as planned, %d are gone", len(state.done), len(state.lost))
        return {
            "as_planned": len(state.done),
            "lost": [str(tp) for tp in state.lost],
            "throttle_restored": bool(before),
        }
