"""The commands of kafka-reassign-partitions, by a cluster's admin API or (with the same calls) by its znodes.

Differences from Kafka's tool: a start that is refused restores the earlier throttle settings; a cancel that would leave
a partition without a leader is refused; if a broker is down, the others' throttles are removed all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from logyard.admin.cluster.presence import with_all_brokers, with_brokers
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.cluster.told_dirs import told_dirs
from logyard.admin.ports import Pause, Say
from logyard.admin.reassignment import ending, json_files, status
from logyard.admin.reassignment.cancellation import would_be_leaderless
from logyard.admin.reassignment.ending import ReassignmentClient, ReassignmentRefused, ThrottleOwner
from logyard.admin.reassignment.execution import cancel_moves, start_moves
from logyard.admin.reassignment.json_files import Replica
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.progress import copy_progress, move_states
from logyard.admin.reassignment.proposal import require_topics
from logyard.admin.reassignment.space import move_warnings
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.throttles.records import BROKER, ThrottleSetting
from logyard.admin.reassignment.throttles.settings import LOG_DIR_RATE
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import Assignment, TopicPartition

_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
    "create a new partition assignment in addition to the existing one. The --additional flag can also be used to "
    "change the throttle by resubmitting the current reassignment."
)
_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
_NO_PLACE = (ErrorCode.REPLICA_NOT_AVAILABLE,)

Placed = Mapping[TopicPartition, tuple[int, ...]]
"""Partition → replicas."""


def execute(
    client: ReassignmentClient,
    text: str,
    *,
    additional: bool = False,
    throttle: int = -1,
    log_dir_throttle: int = -1,
    timeout_s: float = 10.0,
    owner: ThrottleOwner,
    pause: Pause,
    say: Say,
) -> None:
    """Start the moves in a file; rates in bytes per second, negative: none. Raises ReassignmentRefused, ApiError.

    The throttle belongs to the owner until the moves have started: if the start is refused, or the run is killed
    before, the earlier settings are restored. From then on it has no owner, as with Kafka's tool: `verify` and `cancel`
    remove it, on whichever machine they run.
    """
    proposed, log_dirs = json_files.parse_execution(text)
    topics = sorted({tp.topic for tp in proposed})
    running = client.list_reassignments()
    if running and not additional:
        raise ReassignmentRefused(_EXISTING)
    wanted = {broker for replicas in proposed.values() for broker in replicas}
    snapshot = _with_movers(client, client.snapshot(topics), wanted, running)
    dead = sorted(wanted - set(snapshot.brokers))
    if dead:
        raise ReassignmentRefused(f"Unknown broker id {dead[0]}")
    current = _current(require_topics(snapshot, topics), proposed)
    rendered = json_files.render(current)
    say(
        f"Current partition replica assignment\n\n{rendered}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if throttle >= 0 or log_dir_throttle >= 0:
        say(_VERIFY)
    for warning in _disk_warnings(client, snapshot, _moves(proposed, current)):
        say(f"Warning: {warning}")
    book = ending.book_of(client, snapshot, owner, pause)
    book.sweep(owner.lives, running)
    try:
        if throttle >= 0:
            moves = _throttled_moves(proposed, current, running)
            book.hold(owner.name, moves, throttle)
            say(f"The inter-broker throttle limit was set to {throttle} B/s")
            _say_unthrottled(client, snapshot, moves, say)
        if log_dir_throttle >= 0:
            movers = sorted({replica.broker for replica in log_dirs})
            rates = {ThrottleSetting(BROKER, str(broker), LOG_DIR_RATE): str(log_dir_throttle) for broker in movers}
            book.hold_settings(owner.name, rates)
            say(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")
        _start(client, proposed, current)
    except BaseException:
        _take_back(client, book, owner, running)
        raise
    book.hand_over(owner.name)
    named = ",".join(map(str, sorted(proposed)))
    say(f"Successfully started partition reassignment{status.plural(proposed)} for {named}")
    if log_dirs:
        _move_dirs(client, log_dirs, timeout_s, pause, say)


def verify(
    client: ReassignmentClient,
    text: str,
    *,
    preserve_throttles: bool = False,
    owner: ThrottleOwner,
    pause: Pause,
    say: Say,
) -> bool:
    """Print the state of a file's moves; once nothing moves, remove all throttles. True: every replica is in place."""
    targets = json_files.parse_targets(text)
    snapshot = _witnessed(client, targets)
    states, dirs = move_states(_wanted_moves(targets), snapshot), _dir_moves(client, targets, snapshot)
    say(status.partition_text(states))
    say(status.dir_text(dirs))
    moving = bool(snapshot.reassignments) or any(not move.is_done for move in dirs.values())
    if not moving and not preserve_throttles:
        ending.clear(client, snapshot, targets.partitions, owner, pause, say)
    return not moving and all(state.is_as_wanted for state in states)


def await_end(client: ReassignmentClient, text: str, *, pause: Pause, tell: Say, poll_s: float = 1.0) -> None:
    """Wait until nothing in the cluster moves; `tell` is called with the progress whenever it has changed."""
    targets = json_files.parse_targets(text)
    movers = {replica.broker for replica in targets.log_dirs}
    said = ""
    while True:
        snapshot = client.snapshot(sorted({tp.topic for tp, _ in targets.partitions}), reassignments=True)
        running = snapshot.reassignments
        states = move_states(_wanted_moves(targets), snapshot)
        snapshot = with_brokers(client, snapshot, movers)
        if running is not None:
            if not running and not movers:
                return
            # A broker that does not tell its directories does not end the wait, nor is it known to move none.
            told = told_dirs(client, sorted(snapshot.brokers))
            dirs = status.dir_moves(targets.log_dirs, told.dirs.replicas, snapshot.brokers)
            is_moving = any(move.is_active for move in dirs.values()) or bool(movers & told.untold.keys())
            if not running and not is_moving:
                return
            line = str(copy_progress(states, running, told.dirs.replicas))
            if line != said:
                tell(line)
                said = line
        pause.sleep(poll_s)


def cancel(
    client: ReassignmentClient,
    text: str,
    *,
    preserve_throttles: bool = False,
    force: bool = False,
    timeout_s: float = 10.0,
    owner: ThrottleOwner,
    pause: Pause,
    say: Say,
    say_on: Say,
) -> None:
    """Cancel a file's moves: partitions go back to their former replicas. `say_on` prints without a newline.

    Raises ReassignmentRefused if a partition would have no replica that is alive and in sync.
    """
    targets = json_files.parse_targets(text)
    snapshot = _witnessed(client, targets)
    running = snapshot.reassignments or {}
    active = sorted({tp for tp, _ in targets.partitions if tp in running})
    if active and not force:
        _refuse_leaderless(snapshot, running, active)
    if active:
        problems = cancel_moves(client, active)
        if problems:
            raise ReassignmentRefused(
                f"Error cancelling partition reassignment{status.plural(problems)} for: {_all(problems)}"
            )
        say(f"Successfully cancelled partition reassignment{status.plural(active)} for: {','.join(map(str, active))}")
    else:
        say("None of the specified partition reassignments are active.")
    dirs = _dir_moves(client, targets, snapshot)
    back = {replica: move.current for replica, move in dirs.items() if move.is_active and move.current is not None}
    if back:
        _move_dirs(client, back, timeout_s, pause, say)
    else:
        say_on("None of the specified partition moves are active.")
    if not preserve_throttles:
        ending.clear(client, snapshot, targets.partitions, owner, pause, say)


# -- steps -------------------------------------------------------------------------------------------


def _start(client: ReassignmentClient, proposed: Placed, current: Placed) -> None:
    problems = start_moves(client, _moves(proposed, current))
    if problems:
        raise ReassignmentRefused(f"Error reassigning partition(s): {_all(problems)}")


def _moves(proposed: Placed, current: Placed) -> list[Move]:
    return [Move(tp, current[tp], target) for tp, target in proposed.items()]


def _disk_warnings(client: ReassignmentClient, snapshot: ClusterSnapshot, moves: Sequence[Move]) -> list[str]:
    """None of brokers that do not say how full their disks are."""
    try:
        return move_warnings(told_dirs(client, sorted(snapshot.brokers)).dirs, moves)
    except LogyardError:
        return []


def _say_unthrottled(client: ReassignmentClient, snapshot: ClusterSnapshot, moves: Sequence[Move], say: Say) -> None:
    away = ending.away(
        client, snapshot, sorted({broker for move in moves for broker in (*move.replicas, *move.adding)})
    )
    if away:
        say(
            f"broker{status.plural(away)} {status.ids(away)} cannot be asked and got no throttle: "
            "set it again with --additional when back"
        )


def _take_back(
    client: ReassignmentClient,
    book: ThrottleBook,
    owner: ThrottleOwner,
    running: Mapping[TopicPartition, Assignment],
) -> None:
    """Restore the settings from before the throttle, unless something moves that may need it."""
    if owner.name not in book.owners():
        return
    if running or client.list_reassignments():
        book.hand_over(owner.name)
    else:
        book.release(owner.name)


def _throttled_moves(
    proposed: Mapping[TopicPartition, tuple[int, ...]],
    current: Mapping[TopicPartition, tuple[int, ...]],
    running: Mapping[TopicPartition, Assignment],
) -> list[Move]:
    """The moves that a throttle covers: the proposed ones, and running ones with their original replicas."""
    moves = {tp: Move(tp, assigned.origin, assigned.target) for tp, assigned in running.items()}
    for tp, target in proposed.items():
        moves[tp] = Move(tp, moves[tp].replicas if tp in moves else current[tp], target)
    return list(moves.values())


def _move_dirs(
    client: ReassignmentClient, wanted: Mapping[Replica, str], timeout_s: float, pause: Pause, say: Say
) -> None:
    """Start moves between directories; retry for replicas that are still being copied to their broker."""
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
                f"Timed out before log directory move{status.plural(pending)} could be started for: {left}"
            )
        pause.sleep(0.1)


def _wanted_moves(targets: json_files.Targets) -> list[Move]:
    """The moves in a file; it does not name the current replicas."""
    return [Move(tp, (), target) for tp, target in dict(targets.partitions).items()]


def _with_movers(
    client: ReassignmentClient,
    snapshot: ClusterSnapshot,
    targets: set[int],
    running: Mapping[TopicPartition, Assignment],
) -> ClusterSnapshot:
    """The snapshot with all brokers that the moves are about: sources too get a throttle."""
    sources = {broker for _, view in snapshot.partitions() for broker in view.replicas}
    others = {broker for assigned in running.values() for broker in assigned.replicas}
    return with_brokers(client, snapshot, targets | sources | others)


def _witnessed(client: ReassignmentClient, targets: json_files.Targets) -> ClusterSnapshot:
    """The file's topics and all brokers as the witnesses know them (one may be behind), and the running moves."""
    told = with_all_brokers(client, client.witnessed(sorted({tp.topic for tp, _ in targets.partitions})))
    return replace(told, reassignments=client.list_reassignments())


def _dir_moves(
    client: ReassignmentClient, targets: json_files.Targets, snapshot: ClusterSnapshot
) -> dict[Replica, status.DirectoryMove]:
    asked = sorted({replica.broker for replica in targets.log_dirs} & set(snapshot.brokers))
    return status.dir_moves(targets.log_dirs, client.replica_sizes(asked) if asked else (), snapshot.brokers)


def _refuse_leaderless(
    snapshot: ClusterSnapshot, running: Mapping[TopicPartition, Assignment], active: Sequence[TopicPartition]
) -> None:
    for tp in active:
        if would_be_leaderless(snapshot, tp, running[tp]):
            raise ReassignmentRefused(
                f"{tp} would have no leader: none of its former replicas {status.ids(running[tp].origin)} "
                "is known to be alive and in sync; start one of these brokers first, or cancel with --force"
            )


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


def _all(problems: Mapping[TopicPartition, ApiError]) -> str:
    return "; ".join(f"{tp}: {problem}" for tp, problem in problems.items())
