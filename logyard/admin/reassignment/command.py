"""What kafka-reassign-partitions does, over a cluster's admin API or (with the same calls) its znodes.

Better than Kafka's tool in three places: a start that is refused as a whole takes its throttle back; a cancel that
would leave a partition without a leader is refused; a broker that is away does not keep the others throttled.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, ReplicaSize
from logyard.admin.ports import Pause
from logyard.admin.reassignment import json_files, status
from logyard.admin.reassignment.json_files import BadReassignment, Replica
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.reassignment.throttles import settings as throttles
from logyard.broker.controller.topics.placement import place
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import Assignment, TopicPartition

LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_THROTTLES = (throttles.LEADER_RATE, throttles.FOLLOWER_RATE, LOG_DIR_RATE)
TOPIC_THROTTLES = (throttles.LEADERS, throttles.FOLLOWERS)

_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
    "create a new partition assignment in addition to the existing one. The --additional flag can also be used to "
    "change the throttle by resubmitting the current reassignment."
)
_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
_NO_PLACE = (ErrorCode.REPLICA_NOT_AVAILABLE,)

Say = Callable[[str], None]
"""Prints text and a line's end."""


class ReassignmentRefused(LogyardError):
    """The cluster, or what runs in it, does not allow it; the text says what would."""


class ReassignmentClient(Protocol):
    """The calls that are needed; `ports.ClusterClient` has them all."""

    @property
    def reaches_dead_brokers(self) -> bool:
        """Whether a broker's settings can be changed while it is away."""
        ...

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot: ...

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    def alter_topic_configs(self, topic: str, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]: ...

    def alter_broker_configs(self, broker: int, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]: ...

    def list_reassignments(self) -> dict[TopicPartition, Assignment]: ...

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]: ...

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]: ...


def generate(
    client: ReassignmentClient,
    topics: Sequence[str],
    brokers: Sequence[int],
    *,
    rack_aware: bool = True,
    minimal: bool = False,
    chance: random.Random,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, tuple[int, ...]]]:
    """Return (today's replicas, proposed ones) of these topics on these brokers.

    As Kafka's tool, everything is placed anew, by racks where all brokers have one. `minimal` keeps what can stay:
    only replicas on other brokers move, and as many more as make counts even within one; unmoved partitions are left
    out. Raises BadReassignment, planner.PlanImpossible, ApiError where too few brokers are left.
    """
    snapshot = _known(client.snapshot(topics), topics)
    current = {tp: view.replicas for tp, view in snapshot.partitions(topics)}
    racks = {b: snapshot.brokers[b].rack if rack_aware else None for b in brokers if b in snapshot.brokers}
    if len({rack is None for rack in racks.values()}) > 1:
        raise BadReassignment(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    if minimal:
        known = PlanInput.of(snapshot, topics, client.replica_sizes())
        moves = plan_moves(replace(known, brokers=racks), Goals(balance=True, seed=chance.randrange(1 << 30)))
        return current, {move.tp: move.target for move in moves}
    proposed = {}
    for topic in topics:
        views = snapshot.topics[topic].partitions
        start, shift = (chance.randrange(max(len(racks), 1)) for _ in range(2))
        placed = place(list(racks.items()), len(views), len(views[0].replicas), start=start, shift=shift)
        proposed.update({TopicPartition(topic, number): replicas for number, replicas in placed.items()})
    return current, proposed


def execute(
    client: ReassignmentClient,
    text: str,
    *,
    additional: bool = False,
    throttle: int = -1,
    log_dir_throttle: int = -1,
    timeout_s: float = 10.0,
    pause: Pause,
    say: Say,
) -> None:
    """Start what a file asks for; rates in bytes per second, negative: none. Raises ReassignmentRefused, ApiError."""
    proposed, log_dirs = json_files.parse_execution(text)
    topics = sorted({tp.topic for tp in proposed})
    running = client.list_reassignments()
    if running and not additional:
        raise ReassignmentRefused(_EXISTING)
    snapshot = client.snapshot(topics)
    dead = sorted({b for replicas in proposed.values() for b in replicas} - set(snapshot.brokers))
    if dead:
        raise ReassignmentRefused(f"Unknown broker id {dead[0]}")
    current = _current(_known(snapshot, topics), proposed)
    rendered = json_files.render(current)
    say(
        f"Current partition replica assignment\n\n{rendered}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if throttle >= 0 or log_dir_throttle >= 0:
        say(_VERIFY)
    settings = status.throttle_settings(proposed, current, running)
    movers = sorted({replica.broker for replica in log_dirs})
    before = throttles.Throttle()
    try:
        if throttle >= 0:
            away = _away(client, snapshot, settings.brokers)
            settings = replace(settings, brokers=[broker for broker in settings.brokers if broker not in away])
            before = throttles.capture(client, list(settings.topics), settings.brokers)
            _limit(client, settings, throttle, pause)
            say(f"The inter-broker throttle limit was set to {throttle} B/s")
            if away:
                say(
                    f"broker{_plural(away)} {status.ids(away)} cannot be asked and got no throttle: "
                    "set it again with --additional when back"
                )
        if log_dir_throttle >= 0:
            for broker in movers:
                client.alter_broker_configs(broker, {LOG_DIR_RATE: str(log_dir_throttle)})
            say(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")
        _start(client, proposed)
    except BaseException:
        _take_back(client, before, running)
        raise
    named = ",".join(map(str, sorted(proposed)))
    say(f"Successfully started partition reassignment{_plural(proposed)} for {named}")
    if log_dirs:
        _move_dirs(client, log_dirs, timeout_s, pause, say)


def verify(client: ReassignmentClient, text: str, *, preserve_throttles: bool = False, say: Say) -> bool:
    """Say how far a file's moves are; once nothing moves, remove every throttle. True: all is as the file wants."""
    targets = json_files.parse_targets(text)
    partitions, dirs, ongoing = _states(client, targets)
    say(status.partition_text(partitions))
    say(status.dir_text(dirs))
    moving = ongoing or any(not move.is_done for move in dirs.values())
    if not moving and not preserve_throttles:
        _clear(client, targets.partitions, say)
    return not moving and all(move.as_wanted for move in partitions.values())


def await_end(client: ReassignmentClient, text: str, *, pause: Pause, tell: Say, poll_s: float = 1.0) -> None:
    """Wait until nothing in the cluster is being moved, telling how far it is whenever that has changed."""
    targets = json_files.parse_targets(text)
    told = ""
    while True:
        snapshot = client.snapshot(sorted({tp.topic for tp, _ in targets.partitions}), reassignments=True)
        running = snapshot.reassignments
        moves = status.partition_moves(targets.partitions, snapshot)
        sizes = client.replica_sizes(sorted(snapshot.brokers)) if running or targets.log_dirs else []
        dirs = status.dir_moves(targets.log_dirs, sizes, snapshot.brokers)
        if running is not None:
            if not running and not any(move.is_active for move in dirs.values()):
                return
            line = str(status.copied(moves, running, sizes))
            if line != told:
                tell(line)
                told = line
        pause.sleep(poll_s)


def cancel(
    client: ReassignmentClient,
    text: str,
    *,
    preserve_throttles: bool = False,
    force: bool = False,
    timeout_s: float = 10.0,
    pause: Pause,
    say: Say,
    say_on: Say,
) -> None:
    """Stop a file's moves, going back to the replicas of before; `say_on` prints without a line's end, as Kafka does.

    Raises ReassignmentRefused where a partition would be left with no replica that lives and is in sync.
    """
    targets = json_files.parse_targets(text)
    running = client.list_reassignments()
    active = sorted({tp for tp, _ in targets.partitions if tp in running})
    if active and not force:
        _refuse_leaderless(client.snapshot(sorted({tp.topic for tp in active})), running, active)
    if active:
        answers = client.alter_reassignments(dict.fromkeys(active))
        problems = _problems(answers, unless=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        if problems:
            raise ReassignmentRefused(
                f"Error cancelling partition reassignment{_plural(problems)} for: {_all(problems)}"
            )
        say(f"Successfully cancelled partition reassignment{_plural(active)} for: {','.join(map(str, active))}")
    else:
        say("None of the specified partition reassignments are active.")
    _, dirs, _ = _states(client, targets)
    back = {replica: move.current for replica, move in dirs.items() if move.is_active and move.current is not None}
    if back:
        _move_dirs(client, back, timeout_s, pause, say)
    else:
        say_on("None of the specified partition moves are active.")
    if not preserve_throttles:
        _clear(client, targets.partitions, say)


# -- steps -------------------------------------------------------------------------------------------


def _start(client: ReassignmentClient, proposed: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    problems = _problems(client.alter_reassignments(dict(proposed)))
    if problems:
        raise ReassignmentRefused(f"Error reassigning partition(s): {_all(problems)}")


def _take_back(
    client: ReassignmentClient, before: throttles.Throttle, running: Mapping[TopicPartition, Assignment]
) -> None:
    """Undo a throttle, unless something moves that it may be for."""
    if (before.topics or before.brokers) and not running and not client.list_reassignments():
        throttles.restore(client, before)


def _limit(client: ReassignmentClient, settings: status.ThrottleSettings, rate: int, pause: Pause) -> None:
    for topic, values in settings.topics.items():
        client.alter_topic_configs(topic, values)
    throttles.set_rates(client, settings.brokers, rate, pause)


def _away(client: ReassignmentClient, snapshot: ClusterSnapshot, brokers: Sequence[int]) -> list[int]:
    """Those of the brokers whose settings cannot be reached now."""
    return [broker for broker in brokers if broker not in snapshot.brokers and not client.reaches_dead_brokers]


def _clear(client: ReassignmentClient, targets: Sequence[tuple[TopicPartition, tuple[int, ...]]], say: Say) -> None:
    topics = sorted({tp.topic for tp, _ in targets})
    snapshot = client.snapshot(topics)
    brokers = sorted(set(snapshot.brokers) | {broker for _, replicas in targets for broker in replicas})
    away = _away(client, snapshot, brokers)
    say(f"Clearing broker-level throttles on broker{_plural(brokers)} {status.ids(brokers)}")
    for broker in brokers:
        if broker not in away:
            client.alter_broker_configs(broker, {}, BROKER_THROTTLES)
    say(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    for topic in topics:
        if topic in snapshot.topics:
            client.alter_topic_configs(topic, {}, TOPIC_THROTTLES)
    if away:
        raise ReassignmentRefused(
            f"broker{_plural(away)} {status.ids(away)} cannot be asked: what throttles "
            "there are on it stay; verify again when it is back"
        )


def _move_dirs(
    client: ReassignmentClient, wanted: Mapping[Replica, str], timeout_s: float, pause: Pause, say: Say
) -> None:
    """Ask until every replica is there to be moved: one that is on its way to its broker cannot be yet."""
    deadline = pause.monotonic() + timeout_s
    pending = dict(wanted)
    while True:
        answers = client.alter_replica_log_dirs({(r.topic, r.partition, r.broker): path for r, path in pending.items()})
        failed = {Replica(*replica): problem for replica, problem in answers.items() if problem is not None}
        for replica, problem in failed.items():
            if problem.code not in _NO_PLACE:
                raise ReassignmentRefused(f"Failed to alter dir for {replica}: {problem}")
        for replica in status.in_order(set(pending) - set(failed)):
            named = f"{replica.topic}-{replica.partition} with broker {replica.broker}"
            say(f"Successfully started moving log directory to {pending.pop(replica)} for replica {named} ")
        if not pending:
            return
        if pause.monotonic() >= deadline:
            left = ",".join(map(str, status.in_order(pending)))
            raise ReassignmentRefused(
                f"Timed out before log directory move{_plural(pending)} could be started for: {left}"
            )
        pause.sleep(0.1)


def _states(
    client: ReassignmentClient, targets: json_files.Targets
) -> tuple[dict[TopicPartition, status.PartitionMove], dict[Replica, status.DirMove], bool]:
    snapshot = replace(
        client.snapshot(sorted({tp.topic for tp, _ in targets.partitions})), reassignments=client.list_reassignments()
    )
    asked = sorted({replica.broker for replica in targets.log_dirs} & set(snapshot.brokers))
    dirs = status.dir_moves(targets.log_dirs, client.replica_sizes(asked) if asked else (), snapshot.brokers)
    return status.partition_moves(targets.partitions, snapshot), dirs, bool(snapshot.reassignments)


def _refuse_leaderless(
    snapshot: ClusterSnapshot, running: Mapping[TopicPartition, Assignment], active: Sequence[TopicPartition]
) -> None:
    for tp in active:
        view = snapshot.partition(tp)
        if view is not None and not set(running[tp].origin) & set(view.isr) & set(snapshot.brokers):
            raise ReassignmentRefused(
                f"{tp} would have no leader: none of its former replicas {status.ids(running[tp].origin)} "
                "lives and is in sync; start one of these brokers first, or cancel with --force"
            )


def _known(snapshot: ClusterSnapshot, topics: Sequence[str]) -> ClusterSnapshot:
    for topic in topics:
        if topic not in snapshot.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")
    return snapshot


def _current(
    snapshot: ClusterSnapshot, proposed: Mapping[TopicPartition, tuple[int, ...]]
) -> dict[TopicPartition, tuple[int, ...]]:
    found = {tp: view.replicas for tp, view in snapshot.partitions() if tp in proposed}
    missing = [tp for tp in sorted(proposed) if tp not in found]
    if missing:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {', '.join(map(str, missing))}"
        )
    return found


def _problems(
    answers: Mapping[TopicPartition, ApiError | None], unless: ErrorCode | None = None
) -> dict[TopicPartition, ApiError]:
    return {tp: problem for tp, problem in sorted(answers.items()) if problem is not None and problem.code != unless}


def _all(problems: Mapping[TopicPartition, ApiError]) -> str:
    return "; ".join(f"{tp}: {problem}" for tp, problem in problems.items())


def _plural(things: Sequence[object] | Mapping[TopicPartition, object] | Mapping[Replica, object]) -> str:
    return "" if len(things) == 1 else "s"
