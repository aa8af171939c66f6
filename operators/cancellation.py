"""Cancelling moves that no DAG run owns: those that Kafka's tool or a script has started."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.errors import ApiError, LogyardError
from logyard.admin.ports import ClusterClient
from logyard.admin.reassignment.cancellation import Cancellation, left_over, plan_cancellation
from logyard.admin.reassignment.execution import cancel_moves
from logyard.admin.reassignment.plan import Move, brokers_of
from logyard.admin.reassignment.throttles import settings
from logyard.admin.reassignment.throttles.records import BROKER, TOPIC, ThrottleSetting
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_names, as_truth
from logyard.operators.planned import as_plan, refuse_another_cluster
from logyard.operators.throttles import WORKING, book_of_all, every_broker, sweep
from logyard.operators.triggers.cluster import some


class HeldByRun(LogyardError):
    """A DAG run owns these moves, and would start them again; the text names the run."""


class CancelReassignmentOperator(ClusterOperator):
    """Cancel running moves: partitions go back to their former replicas.

    A move is not cancelled if its former replicas are not alive and in sync: its partition would have no leader. A dry
    run returns what would be cancelled. Passed on as `plan`, exactly these moves are cancelled, if they still move to
    the same replicas.

    :param topics: topics, a list or its JSON; empty: all moves. (templated)
    :param plan: the result of a dry run, or its JSON. (templated)
    :param remove_throttles: remove the throttles of the cancelled topics, and the brokers' rates once nothing moves
        any more, as `kafka-reassign-partitions --cancel` does. (templated)
    :param holders: dag_id → the task that moves replicas. While such a task runs, the operator refuses: the run would
        start its moves again, so its task must be ended instead.
    """

    tells = staticmethod(outcomes.cancelled)
    template_fields = ("topics", "plan", "remove_throttles", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        plan: Mapping[str, Any] | str | None = None,
        remove_throttles: bool | str = True,
        holders: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.plan = plan
        self._has_plan = bool(plan)
        self.remove_throttles = remove_throttles
        self.holders = holders or {}

    def execute(self, context: Context) -> dict[str, Any]:
        self._refuse_held(context)
        topics = as_names("topics", self.topics)
        with self.hook.client() as client:
            running = client.list_reassignments()
            snapshot = client.snapshot(sorted({tp.topic for tp in running}))
            planned = self._planned(snapshot.cluster_id)
            expected = None if planned is None else {move.tp: move.replicas for move in planned}
            found = plan_cancellation(snapshot, running, topics, expected)
            for tp, reason in found.kept.items():
                self.log.warning("%s is not cancelled: %s", tp, reason)
            for move in found.moves:
                self.log.info("%s: %s back to %s", move.tp, list(move.replicas), list(move.target))
            removed: list[str] = []
            if not self.checks_only:
                self._cancel(client, found)
                if as_truth("remove_throttles", self.remove_throttles):
                    # Also those of an earlier try that died before this point.
                    ended = [move for move in planned or found.moves if move.tp not in found.kept]
                    removed = self._unthrottle(client, ended, context["ti"])
        told = {"cluster_id": snapshot.cluster_id, "throttles_removed": removed, "dry_run": self.checks_only}
        return {**found.as_json(), **told}

    def _planned(self, cluster_id: str) -> list[Move] | None:
        plan = as_plan(self.plan, is_given=self._has_plan)
        if not plan:
            return None
        refuse_another_cluster(plan, cluster_id)
        try:
            return [
                Move(
                    TopicPartition(str(entry["topic"]), int(entry["partition"])),
                    brokers_of(entry["target"]),
                    brokers_of(entry["replicas"]),
                )
                for entry in plan["cancelled"]
            ]
        except (KeyError, TypeError, ValueError):
            raise BadSettings("plan: expected the result of a dry run of CancelReassignmentOperator") from None

    def _refuse_held(self, context: Context) -> None:
        for dag_id, task_id in self.holders.items():
            ti: Any = context["ti"]
            if not ti.get_dr_count(dag_id=dag_id, states=["running"]):
                continue
            for run_id, states in ti.get_task_states(dag_id=dag_id, task_ids=[task_id]).items():
                if states.get(task_id) in WORKING:
                    raise HeldByRun(
                        f"run {run_id} of {dag_id} moves replicas: mark its task {task_id} as failed to cancel them"
                    )

    def _cancel(self, client: ClusterClient, found: Cancellation) -> None:
        for tp, refusal in cancel_moves(client, [move.tp for move in found.moves]).items():
            raise ApiError(refusal.code, f"{tp}: {refusal}")

    def _unthrottle(self, client: ClusterClient, moves: Sequence[Move], ti: Any) -> list[str]:
        """Remove the throttles of the cancelled moves; returns `topic T` and `broker B` for each.

        Throttles of dead runs are ended first, which restores the values before them.
        """
        still = client.list_reassignments()
        snapshot = every_broker(client, client.snapshot([]))
        book = book_of_all(client, snapshot, self.hook.pause())
        sweep(book, ti, still)
        found = []
        for topic in sorted({move.tp.topic for move in moves} - {tp.topic for tp in still}):
            keys = left_over(client.topic_configs(topic), (settings.LEADERS, settings.FOLLOWERS))
            found += [ThrottleSetting(TOPIC, topic, key) for key in keys]
        brokers = {broker for move in moves for broker in (*move.replicas, *move.target)}
        for broker in sorted(brokers & set(snapshot.brokers)) if not still else ():
            keys = left_over(client.broker_configs(broker), (settings.LEADER_RATE, settings.FOLLOWER_RATE))
            found += [ThrottleSetting(BROKER, str(broker), key) for key in keys]
        # A throttle of a running task stays: that task ends it.
        removed = list(dict.fromkeys(f"{setting.kind} {setting.name}" for setting in book.remove(found)))
        if removed:
            self.log.info("throttles removed: %s", some(removed))
        return removed
