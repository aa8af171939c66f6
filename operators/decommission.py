"""Taking brokers out of service: empty them, check that they are empty, and optionally stop them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster.presence import completed, with_holders
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.reassignment.execution import look_at_moves
from logyard.admin.reassignment.forecast import forecast
from logyard.admin.reassignment.plan import Move, Plan, make_plan
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.reassignment.space import refuse_overfull, room
from logyard.admin.reassignment.unsized import refuse_unsized, unsized_lines
from logyard.admin.reassignment.waves import adopt
from logyard.admin.settings import BadSettings
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_list, as_natural, as_truth
from logyard.operators.planned import as_plan, tell_effect
from logyard.operators.reassignment import ExecuteReassignmentOperator, disk_limits, topics_on
from logyard.operators.triggers.base import ClusterTrigger, WaitFailed
from logyard.operators.triggers.cluster import some

_STORED_PLAN = "logyard_decommission_plan"
_STORED_KNOWN = "logyard_decommission_known"
_DELETED_WITHIN_S = 120.0


class DecommissionBrokerOperator(ExecuteReassignmentOperator):
    """Move every replica off some brokers, wait until that is done, and optionally stop the brokers.

    With a plan, exactly its moves are made; it is refused if the cluster has changed since it was made. Without a plan
    the first try makes one and stores it, so that a retry adopts the running moves. A task that is cleared plans anew,
    but for those moves that still run. Dead brokers are emptied too. The task may be repeated: for an empty broker it
    does nothing. A broker that is not registered and has no replicas is refused, since its number may be wrong, unless
    the plan empties it, or an earlier try of this task has found it (since Airflow 3.3). Topics that are created
    meanwhile may be placed on a broker that is still registered: the task checks at the end, and fails with their
    names.

    :param brokers: their ids, a list or its JSON. (templated)
    :param plan: the result of PlanReassignmentOperator for these brokers (`drain`), or its JSON. (templated)
    :param replication_factor: a smaller factor, where too few brokers remain. (templated)
    :param disk_capacities: bytes of the brokers' disks: one number for all, or broker → bytes, or its JSON. Then
        a plan that would fill a disk above `disk_limit` is refused. Empty: the connection's. (templated)
    :param disk_limit: that limit, in percent. (templated)
    :param stop_brokers: stop them at the end by the launcher's `broker_stop_command`. (templated)
    :param ignore_if_unknown: count a broker as out of service that is not registered and has no replicas. (templated)
    """

    template_fields = (
        *("brokers", "plan", "replication_factor", "disk_capacities", "disk_limit", "stop_brokers"),
        *("ignore_if_unknown", "throttle"),
        *ClusterOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        brokers: Sequence[int] | str | int,
        plan: Mapping[str, Any] | str | None = None,
        replication_factor: int | str | None = None,
        disk_capacities: Mapping[Any, int] | int | str | None = None,
        disk_limit: int | str | None = None,
        stop_brokers: bool | str = False,
        ignore_if_unknown: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(plan=plan or {}, **kwargs)
        self._has_plan = bool(plan)
        self.brokers = brokers
        self.replication_factor = replication_factor
        self.disk_capacities = disk_capacities
        self.disk_limit = disk_limit
        self.stop_brokers = stop_brokers
        self.ignore_if_unknown = ignore_if_unknown

    def execute(self, context: Context) -> dict[str, Any]:
        self._require_known(context)
        self._plan_once(context)
        result = super().execute(context)
        return result if self.checks_only else self._end(context, result)

    def wait(self, trigger: ClusterTrigger, method_name: str, **kwargs: Any) -> dict[str, Any]:
        """With the plan, which the part of the task after a deferral goes on with."""
        return super().wait(trigger, method_name, **kwargs, plan=self.plan)

    def resume(
        self, context: Context, event: dict[str, Any], started: float, plan: Mapping[str, Any] | str | None = None
    ) -> dict[str, Any]:
        self.plan = plan or self.plan
        self._plan_once(context)
        return self._end(context, super().resume(context, event, started))

    def leaving(self) -> frozenset[int]:
        """The brokers to empty. Raises BadSettings."""
        leaving = frozenset(as_natural("brokers", broker) for broker in as_list("brokers", self.brokers))
        if not leaving:
            raise BadSettings("brokers: name at least one")
        return leaving

    def _require_known(self, context: Context) -> None:
        """Raise BadSettings for a broker that nobody knows: that it is empty would be said of a wrong number too."""
        with self.hook.client() as client:
            snapshot = client.snapshot()
            unknown = self.leaving() - _known_by(snapshot)
            if unknown:  # to the broker that was asked: it may be behind
                unknown -= _known_by(client.witnessed())
        store = context.get("task_state_store")
        stored: Any = store.get(_STORED_KNOWN) if store is not None else None
        if unknown and isinstance(stored, dict) and stored.get("cluster_id") == snapshot.cluster_id:
            unknown -= set(stored["brokers"])
        given = as_plan(self.plan, is_given=self._has_plan)
        unknown -= {broker for move in Plan.from_json(given).moves for broker in move.replicas} if given else set()
        if unknown:
            text = f"brokers {sorted(unknown)} are not registered and have no replicas"
            if not as_truth("ignore_if_unknown", self.ignore_if_unknown):
                raise BadSettings(
                    f"{text}: are the numbers right? Where they were taken out of service before, nothing is left to do"
                )
            self.log.warning("%s: they count as out of service", text)
        if store is not None and not self.checks_only:
            known: Any = {"cluster_id": snapshot.cluster_id, "brokers": sorted(self.leaving() - unknown)}
            store.set(_STORED_KNOWN, known)

    def _plan_once(self, context: Context) -> None:
        given = as_plan(self.plan, is_given=self._has_plan)
        if given:
            onto = sorted({b for m in Plan.from_json(given).moves for b in m.target} & self.leaving())
            if onto:
                raise BadSettings(f"plan: it puts replicas on brokers {onto}, which are being emptied")
            return
        stored = self._stored(context)
        if all(stored.get(name) == value for name, value in self._identity(context).items()):
            self.plan = stored["plan"]
            return
        with self.hook.client() as client:
            snapshot = with_holders(client, completed(client, look_at_moves(client), None))
            told = told_dirs(client, sorted(snapshot.brokers))
        dirs = told.dirs
        factor = as_integer("replication_factor", self.replication_factor, 0) or None
        affected = topics_on(snapshot, self.leaving())
        # Only topics with replicas on these brokers: a smaller factor must not change the others.
        capacities, limit = disk_limits(self.disk_capacities, self.disk_limit, self.hook.settings, snapshot)
        start = PlanInput.of(snapshot, affected, dirs.replicas, capacities, limit)
        moves = plan_moves(start, Goals(drain=self.leaving(), replication_factor=factor))
        refuse_unsized(start, moves, told.untold)
        disks = room(dirs.directories, dirs.replicas, moves, limit)
        if not capacities:
            refuse_overfull(disks)
        effect = forecast(snapshot, dirs.replicas, moves, capacities, told.untold)
        tell_effect(self.log.info, self.log.warning, effect, disks, unsized_lines(start, moves, told.untold))
        self.plan = make_plan(snapshot, [*self._going_on(stored, snapshot), *moves]).as_json()
        store = context.get("task_state_store")
        if store is not None and not self.checks_only:
            store.set(_STORED_PLAN, {**self._identity(context), "plan": self.plan})

    def _stored(self, context: Context) -> dict[str, Any]:
        """The plan that an earlier try of this task has made, and what it is for (since Airflow 3.3)."""
        store = context.get("task_state_store")
        stored: Any = store.get(_STORED_PLAN) if store is not None else None
        return stored if isinstance(stored, dict) else {}

    def _identity(self, context: Context) -> dict[str, Any]:
        """What a stored plan is for. With another `max_tries` the task was cleared since, to do it again."""
        return {"brokers": sorted(self.leaving()), "max_tries": context["ti"].max_tries}

    def _going_on(self, stored: Mapping[str, Any], snapshot: ClusterSnapshot) -> list[Move]:
        """The moves of a stored plan that still run, which to a new plan would be somebody else's."""
        earlier = Plan.from_json(stored.get("plan", stored)).moves if stored else ()
        return [move for move in adopt(earlier, snapshot).under_way if not self.leaving() & set(move.target)]

    def _end(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        leaving = self.leaving()
        hook = self.hook
        with hook.client() as client:
            snapshot = client.witnessed()  # the topic that was made last is the one that a broker may not know
        Plan.from_json(self.plan).refuse_elsewhere(snapshot)  # its brokers of these numbers are others, and stay
        store = context.get("task_state_store")
        if store is not None and store.get(_STORED_PLAN) is not None:
            store.delete(_STORED_PLAN)
        held = topics_on(snapshot, leaving)
        if held:
            raise WaitFailed(f"brokers {sorted(leaving)} still hold replicas of {some(held)}: run it again")
        wanted = as_truth("stop_brokers", self.stop_brokers)
        stopped = self._stop(leaving & set(snapshot.brokers), snapshot) if wanted else []
        return result | {"brokers": sorted(leaving), "empty": True, "stopped": stopped}

    def _stop(self, brokers: frozenset[int], snapshot: ClusterSnapshot) -> list[int]:
        """Stop brokers whose own directories are empty.

        Metadata alone is not enough: it does not name topics that the user may not see. Replicas that have moved away
        are deleted from the directories a moment later. Nobody knows what a directory holds that is offline.
        """
        hook = self.hook
        launcher, pause = hook.launcher(), hook.pause()
        for broker in sorted(brokers):
            deadline = pause.monotonic() + _DELETED_WITHIN_S
            with hook.client() as client:
                while (found := client.log_dirs([broker])).replicas:
                    if pause.monotonic() >= deadline:
                        held = sorted({replica.tp.topic for replica in found.replicas})
                        raise WaitFailed(f"broker {broker} has replicas of {some(held)} on its disks: not stopped")
                    pause.sleep(self.poll_interval_s)
            if lost := [one.path for one in found.directories if not one.is_online]:
                raise WaitFailed(
                    f"broker {broker} cannot tell what is in {', '.join(lost)}, which is offline: not stopped. "
                    "If nothing there is needed, stop it yourself"
                )
            node = snapshot.brokers[broker]
            if not launcher.stop(broker, node.host, node.rack or ""):
                raise BadSettings("stop_brokers: there is no broker_stop_command")
            self.log.info("broker %d is empty and was told to stop", broker)
        return sorted(brokers)


def _known_by(snapshot: ClusterSnapshot) -> set[int]:
    """The brokers that are registered or have replicas."""
    return set(snapshot.brokers) | {broker for _, view in snapshot.partitions() for broker in view.replicas}
