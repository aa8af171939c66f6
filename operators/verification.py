"""Verification after a reassignment, whatever its result: replicas are as planned, and no throttle is left."""

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import ClusterClient
from logyard.admin.reassignment.execution import look_at_moves
from logyard.admin.reassignment.plan import Plan
from logyard.admin.reassignment.progress import plan_progress
from logyard.admin.settings import BadSettings
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_mapping
from logyard.operators.throttles import book_of, is_of_run, lives, log_ended
from logyard.operators.triggers.base import DONE, WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import MovesEndedTrigger, some


class NotAsPlanned(WaitFailed):
    """Replicas are not as planned; the text names their partitions."""


class VerifyReassignmentOperator(ClusterOperator):
    """Wait for the plan's running moves, end a throttle that the DAG run has left behind, and check every partition.

    Use it with `trigger_rule="all_done"`, so that it also cleans up after a worker that died and was not retried. It
    fails if a partition is not as planned, or has no full ISR.

    :param plan: the plan document, or its JSON. (templated)
    """

    tells = staticmethod(outcomes.verified)
    template_fields = ("plan", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        wait_timeout_s: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(wait_timeout_s=wait_timeout_s, **kwargs)
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        if not as_mapping("plan", self.plan):
            raise BadSettings("plan: it is empty; did the planning task fail?")
        moves = [move.as_json() for move in Plan.from_json(self.plan).moves]
        values = self.wait(MovesEndedTrigger(moves=moves, **self.waiting()), "finish")
        return self.finish(context, WaitEvent(DONE, values=values).as_json())

    def finish(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """End throttles first, then check, so that a throttle also ends if the moves failed.

        Moves that do not end in time keep their throttle.
        """
        WaitEvent.from_event(event)
        plan = Plan.from_json(self.plan)
        with self.hook.client() as client:
            snapshot = client.snapshot(reassignments=True)
            plan.refuse_elsewhere(snapshot)
            ended = [] if self.checks_only else self._end_throttles(client, snapshot, context["ti"])
            snapshot = look_at_moves(client, plan.moves)
        state = plan_progress(plan.moves, snapshot)
        if state.running:
            raise NotAsPlanned(f"{len(state.running)} of {len(plan.moves)} not as planned: {some(state.running)}")
        return {
            "as_planned": len(state.done),
            "lost": [str(tp) for tp in state.lost],
            "throttles_ended": len(ended),
        }

    def _end_throttles(self, client: ClusterClient, snapshot: ClusterSnapshot, ti: Any) -> list[str]:
        book = book_of(client, snapshot, self.hook.pause())
        # Another task of the run may still move other replicas.
        is_alive = lives(ti)
        ended = [owner for owner in book.owners() if is_of_run(owner, ti) and not is_alive(owner)]
        for owner in ended:
            left = book.release(owner)
            if left:
                self.log.warning(
                    "throttles of brokers that are away stay until a run finds these brokers again: %s", some(left)
                )
            else:
                log_ended(owner)
        return ended
