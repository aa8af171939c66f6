"""Moving replicas: plan, then execute; a run that is repeated finds its moves done or adopts them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.disks import LIMIT_PERCENT, read_capacities, read_limit
from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.execution import (
    MOVES_PER_BROKER,
    ForeignReassignment,
    Move,
    Outcome,
    Plan,
    Progress,
    adopt,
    explicit_moves,
    make_plan,
    next_wave,
    progress,
    state_hash,
)
from logyard.admin.forecast import forecast, forecast_lines
from logyard.admin.planner import Goals, PlanInput, plan_moves
from logyard.admin.ports import ClusterClient
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.admin.snapshot import ClusterSnapshot
from logyard.admin.throttles import Throttle, capture, restore, set_throttle, throttled_brokers, throttled_replicas
from logyard.operators.base import ClusterOperator, as_integer, as_json, as_list, as_mapping, as_truth
from logyard.operators.leadership import elect_preferred
from logyard.operators.triggers.base import WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import ReassignmentDoneTrigger, some

THROTTLE_BEFORE = "throttle_before"
_STORED_THROTTLE = "logyard_throttle_before"


def disks_told(
    capacities: Any, limit: int | str | None, settings: ClusterSettings, snapshot: ClusterSnapshot
) -> tuple[dict[int, int], float]:
    """Brokers' capacities in bytes, the connection's where a task names none, and the share that may be filled.

    Raises BadSettings.
    """
    told = as_json("disk_capacities", capacities) or settings.disk_capacities
    return read_capacities(told, snapshot.brokers), read_limit(as_integer("disk_limit", limit, LIMIT_PERCENT))


class StalePlan(LogyardError):
    """The cluster is not what the plan was made for."""


class PlanReassignmentOperator(ClusterOperator):
    """Make a plan: which replicas move where, how many bytes, and how to go back. Changes nothing.

    Whatever the goals, replicas on dead or drained brokers get another one, and no rack holds a partition twice while
    another could; everything else stays where it is unless a goal moves it.

    Returns the plan document (see `logyard.admin.execution.Plan.as_json`) for ExecuteReassignmentOperator, with
    `brokers`: bytes, replicas and leaders of each broker before and after, and `seconds_at_throttle`.

    :param topics: topics to plan for, a list or its JSON; all of them where empty. (templated)
    :param drain: brokers to empty, a list or its JSON. (templated)
    :param replication_factor: bring every partition to this many replicas. (templated)
    :param plan: instead of goals, a plan made elsewhere: the JSON that kafka-reassign-partitions reads. (templated)
    :param balance: even out replicas and leaders over the brokers as well. (templated)
    :param balance_disk: even out bytes over the brokers as well. (templated)
    :param disk_capacities: bytes of the brokers' disks: one number for all, or broker → bytes, or its JSON. Then
        brokers are evened out by the share of their disks that they fill, and a plan is refused that would fill one
        above `disk_limit` while replicas move. The connection's where empty. (templated)
    :param disk_limit: that limit, in percent. (templated)
    :param throttle: bytes per second; the plan says how long it takes at that rate. The connection's where empty.
        (templated)
    :param seed: breaks ties; the same seed gives the same plan.
    """

    template_fields = (
        "topics",
        "drain",
        "replication_factor",
        "plan",
        "balance",
        "balance_disk",
        "disk_capacities",
        "disk_limit",
        "throttle",
        *ClusterOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        drain: Sequence[int] | str | None = None,
        replication_factor: int | str | None = None,
        plan: Mapping[str, Any] | str | None = None,
        balance: bool | str = False,
        balance_disk: bool | str = False,
        disk_capacities: Mapping[Any, int] | int | str | None = None,
        disk_limit: int | str | None = None,
        throttle: int | str | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.drain = drain
        self.replication_factor = replication_factor
        self.plan = plan
        self.balance = balance
        self.balance_disk = balance_disk
        self.disk_capacities = disk_capacities
        self.disk_limit = disk_limit
        self.throttle = throttle
        self.seed = seed

    def execute(self, context: Context) -> dict[str, Any]:
        topics = [str(topic) for topic in as_list("topics", self.topics)] or None
        hook = self.hook
        with hook.client() as client:
            snapshot = client.snapshot(reassignments=True)
            missing = [topic for topic in topics or () if topic not in snapshot.topics]
            if missing:
                raise BadSettings(f"topics {some(missing)} do not exist")
            sizes = client.replica_sizes()
        given = as_mapping("plan", self.plan)
        capacities, limit = disks_told(self.disk_capacities, self.disk_limit, hook.settings, snapshot)
        start = PlanInput.of(snapshot, topics, sizes, capacities, limit)
        if given:
            moves = [
                Move(m.tp, m.replicas, m.target, start.sizes.get(m.tp, 0))
                for m in explicit_moves(snapshot, Plan.from_json(given))
            ]
            start.disks.refuse_overfull(moves)
        else:
            moves = plan_moves(start, self.goals())
        rate = as_integer("throttle", self.throttle, 0) or hook.settings.throttle
        document = make_plan(snapshot, moves).as_json(rate)
        document["brokers"] = forecast(snapshot, sizes, moves, capacities)
        for move in moves:
            self.log.info("%s: %s to %s (%d bytes)", move.tp, list(move.replicas), list(move.target), move.size)
        for line in forecast_lines(document["brokers"]) if moves else ():
            self.log.info(line)
        self.log.info("%d partitions change, %d bytes move", len(moves), document["bytes_moved"])
        return document

    def goals(self) -> Goals:
        return Goals(
            drain=frozenset(int(broker) for broker in as_list("drain", self.drain)),
            replication_factor=as_integer("replication_factor", self.replication_factor, 0) or None,
            balance=as_truth("balance", self.balance),
            balance_disk=as_truth("balance_disk", self.balance_disk),
            seed=self.seed,
        )


class ExecuteReassignmentOperator(ClusterOperator):
    """Carry out a plan in waves and wait until it is done: replicas as planned, ISR full, preferred leaders elected.

    A second run (or a retry after the worker died) adopts moves that are under way and equal the plan. A throttle is
    put back to what was there before when the moves are over, however they ended; what was there before is also in
    the XCom `throttle_before`, for VerifyReassignmentOperator. A move whose target broker died is cancelled, if its
    old replicas live, and the task fails and says so.

    :param plan: the plan document, or its JSON. (templated)
    :param throttle: bytes per second for each broker; the connection's where empty, none where that is too. (templated)
    :param moves_per_broker: how many moves into and out of one broker run at once.
    :param elect_preferred: elect the preferred leaders at the end.
    :param allow_others: go on although somebody else moves replicas too.
    :param cancel_on_kill: when the task is killed (marked failed, cleared), cancel the plan's running moves, whose
        old replicas are still there, and put the throttle back; without it they run on.
    """

    template_fields: Sequence[str] = ("plan", "throttle", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        throttle: int | str | None = None,
        moves_per_broker: int = MOVES_PER_BROKER,
        elect_preferred: bool = True,
        allow_others: bool = False,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.throttle = throttle
        self.moves_per_broker = moves_per_broker
        self.elect_preferred = elect_preferred
        self.allow_others = allow_others
        self.cancel_on_kill = cancel_on_kill
        self._throttled: Throttle | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        plan = Plan.from_json(self.plan)
        with self.hook.client() as client:
            snapshot = client.snapshot(reassignments=True)
            self._check(plan, snapshot)
            todo = [m for m in plan.moves if m.tp in progress(plan.moves, snapshot).running]
            if self.checks_only:
                return self._would_do(plan, snapshot, todo)
            throttle = self._throttle(context, client, todo)
        return self._go_on(context, plan, throttle, time.time())

    def resume(
        self, context: Context, event: dict[str, Any], throttle: dict[str, Any] | None, started: float
    ) -> dict[str, Any]:
        """Go on after a wave: start the next one, or finish."""
        plan = Plan.from_json(self.plan)
        before = Throttle.from_json(throttle) if throttle else None
        try:
            WaitEvent.from_event(event)
        except WaitFailed:
            self._end_throttle(plan, before)
            raise
        return self._go_on(context, plan, before, started)

    def on_kill(self) -> None:
        """Cancel what runs of the plan, where that was asked for."""
        if self.cancel_on_kill:
            with self.hook.client() as client:
                plan = Plan.from_json(self.plan)
                running = adopt(plan.moves, client.snapshot(reassignments=True)).under_way
                client.alter_reassignments({move.tp: None for move in running})
                if self._throttled is not None:
                    restore(client, self._throttled)

    def _check(self, plan: Plan, snapshot: ClusterSnapshot) -> None:
        if plan.cluster_id and plan.cluster_id != snapshot.cluster_id:
            raise StalePlan(f"the plan is for cluster {plan.cluster_id}, the connection leads to {snapshot.cluster_id}")
        found = adopt(plan.moves, snapshot)
        if found.foreign and not self.allow_others:
            raise ForeignReassignment(f"somebody else moves {some(found.foreign)}: wait for that, or cancel it")
        fresh = not found.under_way and not progress(plan.moves, snapshot).done
        if plan.state_hash and fresh and plan.state_hash != state_hash(snapshot, [m.tp for m in plan.moves]):
            raise StalePlan("replicas are not where they were when the plan was made: plan again")

    def _would_do(self, plan: Plan, snapshot: ClusterSnapshot, todo: list[Move]) -> dict[str, Any]:
        found = adopt(plan.moves, snapshot)
        wave = next_wave(found.to_start, found.under_way, snapshot, self.moves_per_broker)
        for move in wave:
            self.log.info("would start %s: %s to %s", move.tp, list(move.replicas), list(move.target))
        return {"dry_run": True, "to_do": [str(m.tp) for m in todo], "first_wave": [str(m.tp) for m in wave]}

    def _throttle(self, context: Context, client: ClusterClient, moves: list[Move]) -> Throttle | None:
        rate = as_integer("throttle", self.throttle, 0) or self.hook.settings.throttle
        store = context.get("task_state_store")
        stored = store.get(_STORED_THROTTLE) if store is not None else None
        if isinstance(stored, dict):
            # An earlier try set it and died: what was there before that one is what has to come back.
            before = Throttle.from_json(stored)
        elif not rate or not any(move.adding for move in moves):
            return None
        else:
            before = capture(client, throttled_replicas(moves), throttled_brokers(moves))
        # Kept before it is set: a worker that dies in between leaves nothing that its successor takes for another's.
        if store is not None:
            store.set(_STORED_THROTTLE, before.as_json())
        context["ti"].xcom_push(key=THROTTLE_BEFORE, value=before.as_json())
        if rate and moves:
            set_throttle(client, moves, rate, self.hook.pause())
            self.log.info("throttled to %d bytes per second on each broker", rate)
        return before

    def _go_on(self, context: Context, plan: Plan, throttle: Throttle | None, started: float) -> dict[str, Any]:
        self._throttled = throttle
        while True:
            with self.hook.client() as client:
                snapshot = client.snapshot(reassignments=True)
                state = progress(plan.moves, snapshot)
                if state.stuck:
                    self._give_up(client, plan, snapshot, state, throttle)
                if not state.running:
                    break
                waiting = self._start_wave(client, plan, snapshot, state)
            kept = throttle.as_json() if throttle else None
            trigger = ReassignmentDoneTrigger(
                moves=[m.as_json() for m in waiting],
                cancel_on_kill=self.cancel_on_kill,
                throttle=kept,
                **self.waiting(),
            )
            self.log.info("%d of %d moves done", len(state.done), len(plan.moves))
            try:
                self.wait(trigger, "resume", throttle=kept, started=started)
            except WaitFailed:
                self._end_throttle(plan, throttle)
                raise
        self._end_throttle(plan, throttle)
        return self._finish(context, throttle, state, started)

    def _start_wave(self, client: ClusterClient, plan: Plan, snapshot: ClusterSnapshot, state: Progress) -> list[Move]:
        found = adopt(plan.moves, snapshot)
        wave = next_wave(found.to_start, found.under_way, snapshot, self.moves_per_broker)
        refusals = {tp: e for tp, e in client.alter_reassignments({m.tp: m.target for m in wave}).items() if e}
        gone = {tp for tp, e in refusals.items() if e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for tp, refusal in refusals.items():
            if tp not in gone:
                raise ApiError(refusal.code, f"{tp}: {refusal}")
        started = [m for m in wave if m.tp not in gone]
        for move in started:
            self.log.info("%s: %s to %s", move.tp, list(move.replicas), list(move.target))
        # Moves that are neither waiting for their turn nor under way only lack an ISR member: wait for those too.
        settled = {m.tp for m in found.to_start}
        late = [m for m in plan.moves if m.tp in state.running and m.tp not in settled]
        return list({m.tp: m for m in (*late, *started)}.values())

    def _give_up(
        self,
        client: ClusterClient,
        plan: Plan,
        snapshot: ClusterSnapshot,
        state: Progress,
        throttle: Throttle | None,
    ) -> None:
        """A target broker is dead: its moves would never end. Cancel those whose old replicas are alive."""
        running = snapshot.reassignments or {}
        cancelled = [tp for tp in state.stuck if tp in running and set(running[tp].origin) <= set(snapshot.brokers)]
        client.alter_reassignments(dict.fromkeys(cancelled))
        self._end_throttle(plan, throttle)
        raise WaitFailed(
            f"a target broker of {some(state.stuck)} is not alive; cancelled: {some(cancelled) or 'none'}; plan again"
        )

    def _end_throttle(self, plan: Plan, throttle: Throttle | None) -> None:
        """Put throttles back; kept only while a move of the plan still runs, whose rate nobody else would hold."""
        if throttle is None:
            return
        with self.hook.client() as client:
            under_way = adopt(plan.moves, client.snapshot(reassignments=True)).under_way
            if under_way:
                self.log.warning("the throttle stays: %s still move", some([m.tp for m in under_way]))
                return
            restore(client, throttle)
        self.log.info("throttle removed")

    def _finish(self, context: Context, throttle: Throttle | None, state: Progress, started: float) -> dict[str, Any]:
        store = context.get("task_state_store")
        if store is not None and store.get(_STORED_THROTTLE) is not None:
            store.delete(_STORED_THROTTLE)
        if throttle is not None:
            # It is back already: nobody has to put it back once more.
            context["ti"].xcom_push(key=THROTTLE_BEFORE, value=None)
        partitions = list(state.done)
        hook = self.hook
        with hook.client() as client:
            if self.elect_preferred and partitions:
                elect_preferred(client, hook.pause(), partitions)
            snapshot = client.snapshot(sorted({tp.topic for tp in partitions}))
        leaders = {tp: view.leader for tp in partitions if (view := snapshot.partition(tp)) is not None}
        outcome = Outcome(tuple(partitions), state.lost, leaders, time.time() - started)
        self.log.info("%d partitions moved in %.1f s", len(partitions), outcome.seconds)
        return outcome.as_json()
