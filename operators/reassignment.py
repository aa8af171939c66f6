"""Moving replicas: plan, then execute. A repeated run finds its moves done, or adopts those that run."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster.presence import completed, settled, with_holders
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterClient
from logyard.admin.quantities import size
from logyard.admin.reassignment.cancellation import plan_cancellation
from logyard.admin.reassignment.disks import LIMIT_PERCENT, read_capacities, read_limit
from logyard.admin.reassignment.execution import cancel_moves, look_at_moves, start_moves
from logyard.admin.reassignment.forecast import forecast
from logyard.admin.reassignment.plan import Move, Plan, StalePlan, explicit_moves, make_plan, refuse_stale
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.reassignment.progress import PlanProgress, ReassignmentResult, plan_progress, wave_line
from logyard.admin.reassignment.space import refuse_overfull, room
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.unsized import refuse_unsized, unsized_lines
from logyard.admin.reassignment.waves import MOVES_PER_BROKER, ForeignReassignment, adopt, held_back, next_wave
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_integer, as_json, as_list, as_mapping, as_names, as_natural, as_truth
from logyard.operators.killing import end_moves
from logyard.operators.leadership import elect_preferred
from logyard.operators.planned import tell_effect
from logyard.operators.throttles import book_of, owner_of, rate_of, sweep
from logyard.operators.triggers.base import WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import ReassignmentDoneTrigger, some

__all__ = ["ExecuteReassignmentOperator", "PlanReassignmentOperator", "StalePlan"]


def disk_limits(
    capacities: Any, limit: int | str | None, settings: ClusterSettings, snapshot: ClusterSnapshot
) -> tuple[dict[int, int], float]:
    """The disk capacities in bytes (by default the connection's) and the share that may be filled.

    Raises BadSettings.
    """
    given = as_json("disk_capacities", capacities) or settings.disk_capacities
    return read_capacities(given, snapshot.brokers), read_limit(as_integer("disk_limit", limit, LIMIT_PERCENT))


def topics_on(snapshot: ClusterSnapshot, brokers: frozenset[int]) -> list[str]:
    """The topics of which these brokers have replicas."""
    return sorted({tp.topic for tp, view in snapshot.partitions() if brokers & set(view.replicas)})


class PlanReassignmentOperator(ClusterOperator):
    """Make a plan: which replicas move where, how many bytes, and how to go back. Changes nothing.

    Whatever the goals are, replicas on dead or drained brokers move to another one, and no rack gets two replicas of a
    partition while another rack could have one. Other replicas move only if a goal requires it.

    Returns the plan document (see `logyard.admin.reassignment.plan.Plan.as_json`) for
    ExecuteReassignmentOperator, with `brokers`: bytes, replicas and leaders of each broker before and after, and
    `seconds_at_throttle`. `unsized`: which brokers' bytes are not known, in sentences; where they count, it fails.

    :param topics: topics to plan for, a list or its JSON; empty: all topics. (templated)
    :param drain: brokers to empty, a list or its JSON. (templated)
    :param only_drained: plan only for topics of which a drained broker has replicas; a smaller replication factor does
        not change the others.
    :param replication_factor: bring every partition to this many replicas. (templated)
    :param plan: instead of goals, a plan in the JSON format of kafka-reassign-partitions. (templated)
    :param balance: also balance replicas and leaders over the brokers. (templated)
    :param balance_disk: also balance bytes over the brokers. (templated)
    :param disk_capacities: bytes of the brokers' disks: one number for all, or broker → bytes, or its JSON. Then the
        filled share of the disks is balanced, and a plan that would fill a disk above `disk_limit` while replicas move
        is refused. Empty: the connection's. (templated)
    :param disk_limit: that limit, in percent. (templated)
        Without capacities, a plan is refused that brings a broker more than its directories have free, as the brokers
        report it; `disks` in the result says what comes, goes and stays free.
    :param throttle: bytes per second; the plan says how long it takes at that rate. Empty: the connection's; 0: none.
        (templated)
    :param seed: breaks ties; the same seed gives the same plan.
    """

    tells = staticmethod(outcomes.planned)
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
        only_drained: bool = False,
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
        self.only_drained = only_drained
        self.replication_factor = replication_factor
        self.plan = plan
        self.balance = balance
        self.balance_disk = balance_disk
        self.disk_capacities = disk_capacities
        self.disk_limit = disk_limit
        self.throttle = throttle
        self.seed = seed

    def execute(self, context: Context) -> dict[str, Any]:
        topics = as_names("topics", self.topics) or None
        given = as_mapping("plan", self.plan)
        expected = [move.tp for move in Plan.from_json(given).moves] if given else []
        expected += [TopicPartition(topic, 0) for topic in topics or ()]
        hook = self.hook
        with hook.client() as client:
            seen = settled(client, client.snapshot(reassignments=True), expected)
            snapshot = with_holders(client, completed(client, seen, topics))
            missing = [topic for topic in topics or () if topic not in snapshot.topics]
            if missing:
                raise BadSettings(f"topics {some(missing)} do not exist")
            told = told_dirs(client, sorted(snapshot.brokers))
        if self.only_drained:
            topics = [t for t in topics_on(snapshot, self.goals().drain) if topics is None or t in topics]
        capacities, limit = disk_limits(self.disk_capacities, self.disk_limit, hook.settings, snapshot)
        start = PlanInput.of(snapshot, topics, told.dirs.replicas, capacities, limit)
        if given:
            moves = [
                Move(m.tp, m.replicas, m.target, start.sizes.get(m.tp, 0))
                for m in explicit_moves(snapshot, Plan.from_json(given))
            ]
            start.disks.refuse_overfull(moves)
        else:
            moves = plan_moves(start, self.goals())
        refuse_unsized(start, moves, told.untold, balance_disk=self.goals().balance_disk and not given)
        rate = rate_of(self.throttle, hook.settings)
        document = make_plan(snapshot, moves).as_json(rate)
        document["brokers"] = forecast(snapshot, told.dirs.replicas, moves, capacities, told.untold)
        document["disks"] = room(told.dirs.directories, told.dirs.replicas, moves, limit)
        document["unsized"] = unsized_lines(start, moves, told.untold)
        if not capacities:  # what a user says of the disks goes before what brokers see
            refuse_overfull(document["disks"])
        for move in moves:
            self.log.info("%s: %s to %s (%s)", move.tp, list(move.replicas), list(move.target), size(move.size))
        effect, disks = document["brokers"] if moves else (), document["disks"]
        tell_effect(self.log.info, self.log.warning, effect, disks, document["unsized"])
        return document

    def goals(self) -> Goals:
        return Goals(
            drain=frozenset(as_natural("drain", broker) for broker in as_list("drain", self.drain)),
            replication_factor=as_integer("replication_factor", self.replication_factor, 0) or None,
            balance=as_truth("balance", self.balance),
            balance_disk=as_truth("balance_disk", self.balance_disk),
            seed=self.seed,
        )


class ExecuteReassignmentOperator(ClusterOperator):
    """Execute a plan in waves and wait until it is done: replicas as planned, ISRs full, preferred leaders elected.

    The plan is refused if the cluster has changed since it was made. A second run (or a retry after the worker died)
    adopts running moves that are in the plan. The throttle ends with the moves, however they end, and restores what
    others have set. A throttle that a dead worker left is ended by its next try, by VerifyReassignmentOperator or
    by any other run. A target broker that is away is awaited; after `broker_patience_s` its moves are cancelled, if a
    former replica is alive and in sync, and the task fails.

    :param plan: the plan document, or its JSON. (templated)
    :param throttle: bytes per second for each broker; empty: the connection's, or none; 0: none. (templated)
    :param moves_per_broker: the most moves into and out of one broker at the same time.
    :param elect_preferred: elect the preferred leaders at the end.
    :param allow_others: continue even if others move replicas too.
    :param cancel_on_kill: when the task is killed (marked as failed, cleared), cancel the plan's running moves and end
        the throttle; if False, they continue.
    :param broker_patience_s: for how many seconds a target broker may be away; a restart should not fail the plan.
    """

    tells = staticmethod(outcomes.moved)
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
        broker_patience_s: float = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.throttle = throttle
        self.moves_per_broker = moves_per_broker
        self.elect_preferred = elect_preferred
        self.allow_others = allow_others
        self.cancel_on_kill = cancel_on_kill
        self.broker_patience_s = broker_patience_s
        self._owner: str | None = None
        self._cluster_id = ""  # where this process has begun moves of a plan that names no cluster

    def execute(self, context: Context) -> dict[str, Any]:
        plan = Plan.from_json(self.plan)
        if self.checks_only:
            return self._would_do(plan)
        # Wall-clock time, because another worker may finish this task.
        return self._carry_out(context, plan, time.time())

    def resume(self, context: Context, event: dict[str, Any], started: float) -> dict[str, Any]:
        """Continue after a wave: start the next one, or finish."""
        return self._carry_out(context, Plan.from_json(self.plan), started, event)

    def on_kill(self) -> None:
        """Cancel the plan's running moves, if `cancel_on_kill` is set."""
        if self.cancel_on_kill and self.plan:
            hook, plan = self.hook, Plan.from_json(self.plan)
            with hook.client() as client:
                end_moves(client, plan.moves, self._owner, hook.pause(), plan.cluster_id or self._cluster_id)

    def _check(self, plan: Plan, snapshot: ClusterSnapshot) -> None:
        refuse_stale(plan, snapshot)
        found = adopt(plan.moves, snapshot)
        if found.foreign and not self.allow_others:
            raise ForeignReassignment(
                f"others move {some(found.foreign)}: wait for the end of these moves, or cancel them"
            )

    def _would_do(self, plan: Plan) -> dict[str, Any]:
        with self.hook.client() as client:
            snapshot = look_at_moves(client, plan.moves)
        self._check(plan, snapshot)
        todo = plan_progress(plan.moves, snapshot).running
        found = adopt(plan.moves, snapshot)
        wave = next_wave(found.to_start, found.under_way, snapshot, self.moves_per_broker)
        for move in wave:
            self.log.info("would start %s: %s to %s", move.tp, list(move.replicas), list(move.target))
        return {"dry_run": True, "to_do": [str(tp) for tp in todo], "first_wave": [str(m.tp) for m in wave]}

    def _book(self, client: ClusterClient, snapshot: ClusterSnapshot) -> ThrottleBook:
        return book_of(client, snapshot, self.hook.pause())

    def _carry_out(
        self, context: Context, plan: Plan, started: float, event: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Execute all waves. On any error the throttle ends, unless its moves still run."""
        ti: Any = context["ti"]
        self._owner = owner_of(ti)
        try:
            if event is None:
                self._begin(ti, plan)
            state = self._all_waves(plan, started, WaitEvent.from_event(event) if event is not None else {})
        except Exception:
            self._end_throttle(plan, failed=True)
            raise
        self._end_throttle(plan)
        return self._finish(state, started)

    def _begin(self, ti: Any, plan: Plan) -> None:
        with self.hook.client() as client:
            snapshot = look_at_moves(client, plan.moves)
            self._check(plan, snapshot)
            # End the throttles of dead runs, except those whose moves still run, and this task's own.
            sweep(self._book(client, snapshot), ti, snapshot.reassignments or {})

    def _all_waves(self, plan: Plan, started: float, seen: Mapping[str, Any]) -> PlanProgress:
        while True:
            with self.hook.client() as client:
                snapshot = look_at_moves(client, plan.moves)
                plan.refuse_elsewhere(snapshot)  # the connection may be edited between two waves
                self._cluster_id = snapshot.cluster_id
                state = plan_progress(plan.moves, snapshot)
                if not state.running:
                    return state
                if state.stuck and seen.get("given_up"):
                    self._give_up(client, plan, snapshot, state)
                self._hold_throttle(client, plan, snapshot, state)
                waiting, later = self._start_wave(client, plan, snapshot, state)
            self.log.info(
                "%d of %d moves done; %s", len(state.done), len(plan.moves), wave_line(waiting, plan.moves, state)
            )
            trigger = ReassignmentDoneTrigger(
                moves=[m.as_json() for m in waiting],
                held_back=[m.as_json() for m in later],
                broker_patience_s=self.broker_patience_s,
                cancel_on_kill=self.cancel_on_kill,
                throttle_owner=self._owner,
                cluster_id=snapshot.cluster_id,
                **self.waiting(),
            )
            seen = self.wait(trigger, "resume", started=started)

    def _start_wave(
        self, client: ClusterClient, plan: Plan, snapshot: ClusterSnapshot, state: PlanProgress
    ) -> tuple[list[Move], list[Move]]:
        """Start the moves that may start; returns the moves to wait for, and those whose target brokers are away."""
        found = adopt(plan.moves, snapshot)
        wave = next_wave(found.to_start, found.under_way, snapshot, self.moves_per_broker)
        refusals = start_moves(client, wave)
        gone = {tp for tp, e in refusals.items() if e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for tp, refusal in refusals.items():
            if tp not in gone:
                raise ApiError(refusal.code, f"{tp}: {refusal}")
        started = [m for m in wave if m.tp not in gone]
        for move in started:
            self.log.info("%s: %s to %s", move.tp, list(move.replicas), list(move.target))
        # Moves that neither wait for their turn nor run only lack an ISR member: wait for them too.
        settled = {m.tp for m in found.to_start}
        late = [m for m in plan.moves if m.tp in state.running and m.tp not in settled]
        return list({m.tp: m for m in (*late, *started)}.values()), held_back(found.to_start, snapshot)

    def _give_up(self, client: ClusterClient, plan: Plan, snapshot: ClusterSnapshot, state: PlanProgress) -> None:
        """Cancel the moves to a target broker that stays away, if a former replica could lead. Raises WaitFailed."""
        stuck = [move for move in plan.moves if move.tp in state.stuck]
        running = {move.tp: move.target for move in adopt(stuck, snapshot).under_way}
        found = plan_cancellation(snapshot, snapshot.reassignments or {}, expected=running)
        refusals = cancel_moves(client, [move.tp for move in found.moves])
        cancelled = [move.tp for move in found.moves if move.tp not in refusals]
        raise WaitFailed(
            f"a target broker of {some(state.stuck)} was away for {self.broker_patience_s:g} s; "
            f"cancelled: {some(cancelled) or 'none'}; start the broker or plan again"
        )

    def _hold_throttle(self, client: ClusterClient, plan: Plan, snapshot: ClusterSnapshot, state: PlanProgress) -> None:
        rate = rate_of(self.throttle, self.hook.settings)
        moves = [m for m in plan.moves if m.tp in state.running and m.adding]
        if not rate or not moves or self._owner is None:
            return
        book = self._book(client, snapshot)
        if not book.lacks(self._owner, moves, rate):
            return
        theirs = book.hold(self._owner, moves, rate)
        away = sorted({b for m in moves for b in (*m.replicas, *m.adding)} - set(snapshot.brokers))
        self.log.info("throttled to %s per second on each broker", size(rate))
        if away:
            self.log.info("brokers %s are away and will be throttled when they are back", away)
        if theirs:
            self.log.warning("others have changed these throttles, which stay as they are: %s", some(theirs))

    def _end_throttle(self, plan: Plan, *, failed: bool = False) -> None:
        """End the throttle, unless a move of the plan still runs.

        With `failed` an error is only logged: the task has failed already, and the record of the throttle stays.
        """
        try:
            with self.hook.client() as client:
                snapshot = client.snapshot(reassignments=True)
                book = self._book(client, snapshot)
                if self._owner is None or self._owner not in book.owners():
                    return
                is_known = snapshot.reassignments is not None
                may_move = adopt(plan.moves, snapshot).under_way if is_known else plan.moves
                if may_move:
                    self.log.warning("the throttle stays: %s may still move", some([m.tp for m in may_move]))
                    return
                left = book.release(self._owner)
        except Exception as problem:  # including Airflow's: the records are its Variables
            if not failed:
                raise
            self.log.warning("the throttle stays until the next try, verification or run ends it: %s", problem)
            return
        if left:
            self.log.warning(
                "throttles of brokers that are away stay until a run finds these brokers again: %s", some(left)
            )
        else:
            self.log.info("the throttle has ended")

    def _finish(self, state: PlanProgress, started: float) -> dict[str, Any]:
        partitions = list(state.done)
        hook = self.hook
        with hook.client() as client:
            if self.elect_preferred and partitions:
                elect_preferred(client, hook.pause(), partitions)
            snapshot = client.snapshot(sorted({tp.topic for tp in partitions}))
        leaders = {tp: view.leader for tp in partitions if (view := snapshot.partition(tp)) is not None}
        took_s = max(time.time() - started, 0.0)  # the clock may have been set meanwhile
        return ReassignmentResult(tuple(partitions), state.lost, leaders, took_s).as_json()
