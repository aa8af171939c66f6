"""Moving replicas: reassignments by the API (KIP-455), by /admin/reassign_partitions, and by topic znodes.

Rule 1: a move is written into the topic znode first (adding and removing replicas), then into memory, then acted on; so
any later controller finds it and continues it (facts §6).
Rule 2: while the target is not in the ISR the partition has all replicas, old and new (steps A); once it is, the
removed ones are stopped and deleted and the znode gets the plain target (steps B).
Rule 3: the latest request for a partition wins, however it came; replicas that only the superseded one needed are
stopped and deleted at once. Cancelling is a move to the original replicas.
Rule 4: /admin/reassign_partitions keeps exactly its entries that are still running; invalid entries are dropped, and
the znode is deleted when it is empty.
Rule 5: adding and removing replicas that another tool writes into a topic znode start to move when the watch fires, as
with a request for the same target (Kafka reads them only at its next failover).
"""

from collections.abc import Callable, Mapping, Sequence

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.broker_requests.batch import RequestBatch
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import (
    AlterReassignments,
    ListReassignments,
    Outcome,
    ReassigningStateChanged,
    ReassignmentRequested,
)
from logyard.broker.controller.partitions import move_plans, partition_machine, replica_machine, state_znodes
from logyard.broker.controller.partitions.leader_election import Strategy
from logyard.broker.controller.partitions.replica_machine import Replica
from logyard.broker.controller.partitions.state_znodes import Failures
from logyard.broker.controller.topics import deletion, topics
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import Assignment, PartitionState, TopicPartition
from logyard.broker.znodes import partition_state, reassignments
from logyard.broker.znodes.ops import Delete, SetData, ZkCode

_REMOVE_ROUNDS_MAX = 10
# So many partitions a line of the log names: a request may move a hundred thousand.
NAMED_MAX = 100


# Entry points


def on_alter(context: ControllerContext, request: AlterReassignments) -> Steps[None]:
    """Start, change or cancel moves for the API; the answer has an Outcome for each partition."""
    outcomes: dict[TopicPartition, Outcome] = {}
    moves: dict[TopicPartition, Assignment] = {}
    for number, (tp, target) in enumerate(request.targets, 1):
        try:
            moves[tp] = move_plans.plan(context, tp, target)
        except ApiError as refused:
            outcomes[tp] = Outcome(refused.code, refused.message)
        yield from effects.done(number)
    yield from _drop_from_znode(context, lambda tp, _: tp in moves)
    outcomes |= yield from _start_all(context, moves)
    yield from effects.perform(Answer(outcomes))


def on_list(context: ControllerContext, request: ListReassignments) -> Steps[None]:
    """Answer with the running moves."""
    wanted = context.reassigning if request.partitions is None else request.partitions
    found: dict[TopicPartition, Assignment] = {}
    for number, tp in enumerate(wanted, 1):
        partition = context.partition(tp)
        if partition is not None and partition.assignment.is_reassigning:
            found[tp] = partition.assignment
        yield from effects.done(number)
    yield from effects.perform(Answer(found))


def on_requested(context: ControllerContext) -> Steps[set[TopicPartition]]:
    """Handle /admin/reassign_partitions; return the partitions whose moves were started or resumed from it."""
    found = (yield from effects.watch_data([(reassignments.PATH, ReassignmentRequested())]))[0]
    if found is None:
        return set()
    try:
        wanted = reassignments.decode(found.data)
    except CorruptData as problem:
        yield from effects.note("reassignments cannot be read", level="error", reason=str(problem))
        return set()
    outcomes: dict[TopicPartition, Outcome] = {}
    moves: dict[TopicPartition, Assignment] = {}
    for number, (tp, target) in enumerate(wanted.items(), 1):
        yield from effects.done(number)
        try:
            move = move_plans.plan(context, tp, target, only_live=False)
        except ApiError as refused:
            outcomes[tp] = Outcome(refused.code, refused.message)
            continue
        if tp not in context.reassigning or not move_plans.is_running(context, tp, move):
            moves[tp] = move
    outcomes |= yield from _start_all(context, moves)
    failed = {tp: outcome for tp, outcome in outcomes.items() if outcome.error is not ErrorCode.NONE}
    if failed:
        reasons = {str(tp): outcome.message for tp, outcome in failed.items()}
        yield from effects.note("reassignments are dropped", level="warning", reasons=reasons)
        yield from _drop_from_znode(context, lambda tp, _: tp in failed)
    return set(outcomes) - set(failed)


def on_written(context: ControllerContext, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Steps[None]:
    """Start the moves that another tool has written into topic znodes (rule 5)."""
    moves: dict[TopicPartition, Assignment] = {}
    refused: dict[str, str] = {}
    for number, (tp, target) in enumerate(targets.items(), 1):
        yield from effects.done(number)
        try:
            moves[tp] = move_plans.plan(context, tp, target, only_live=False)
        except ApiError as problem:
            refused[str(tp)] = str(problem)
    if refused:
        yield from effects.note("moves in topic znodes are refused", level="warning", reasons=refused)
    yield from _start_all(context, moves)


def take_up(context: ControllerContext, tps: Sequence[TopicPartition]) -> Steps[None]:
    """Continue moves of partitions whose new topics were written with adding and removing replicas."""
    yield from _go_on(context, tps, lambda p: True)


def on_failover(context: ControllerContext) -> Steps[None]:
    """Continue what the last controller left: moves in the znode supersede those in the topic znodes."""
    done = yield from on_requested(context)
    yield from resume(context, lambda p: p.tp not in done)


def resume(context: ControllerContext, chosen: Callable[[Partition], bool]) -> Steps[None]:
    """Continue running moves."""
    yield from _go_on(context, list(context.reassigning), chosen)


def complete_ready(context: ControllerContext, tps: Sequence[TopicPartition]) -> Steps[None]:
    """Finish the moves whose targets are in the ISR now."""
    moving = yield from effects.picked(tps, lambda tp: tp in context.reassigning)
    yield from _go_on(context, moving, lambda p: _target_in_sync(context, p))


def _go_on(
    context: ControllerContext, tps: Sequence[TopicPartition], chosen: Callable[[Partition], bool]
) -> Steps[None]:
    """Continue the moves of those of these partitions that are there and chosen."""
    moves: dict[TopicPartition, Assignment] = {}
    for number, tp in enumerate(tps, 1):
        partition = context.partition(tp)
        if partition is not None and chosen(partition):
            moves[tp] = partition.assignment
        yield from effects.done(number)
    yield from _start_all(context, moves)


def on_state_changed(context: ControllerContext, tp: TopicPartition) -> Steps[None]:
    """Handle a watched state znode (below 2.7-IV2, where leaders write their ISR themselves)."""
    partition = context.partition(tp)
    if partition is None or tp not in context.reassigning:
        return
    yield from effects.watch_data([(partition_state.path(tp), ReassigningStateChanged(tp))])
    yield from state_znodes.refresh([partition])
    yield from complete_ready(context, [tp])


# Moving


def _start_all(
    context: ControllerContext, moves: Mapping[TopicPartition, Assignment]
) -> Steps[dict[TopicPartition, Outcome]]:
    """Take partitions as far towards their targets as their ISRs allow, each step for all of them at once.

    A topic's znode is written once with all of its moves, so moving a whole topic costs no more per partition.
    """
    deletion.mark_ineligible(context, {tp.topic for tp in moves})
    failures = yield from _adopt(context, moves)
    ready: list[Partition] = []
    waiting: list[Partition] = []
    for number, tp in enumerate(moves, 1):
        partition = None if tp in failures else context.partition(tp)
        if partition is not None:
            (ready if _target_in_sync(context, partition) else waiting).append(partition)
        yield from effects.done(number)
    yield from _await_targets(context, waiting)
    failures |= yield from _finish(context, ready)
    if failures:
        reasons = {str(tp): why for tp, why in failures.items()}
        yield from effects.note("reassignments are delayed", level="error", reasons=reasons)
    begun = Outcome()
    return dict.fromkeys(moves, begun) | {
        tp: Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, why) for tp, why in failures.items() if tp in moves
    }


def _adopt(context: ControllerContext, moves: Mapping[TopicPartition, Assignment]) -> Steps[Failures]:
    """Steps U: znodes, memory, and the end of replicas that only a superseded move needed."""
    known: dict[TopicPartition, Partition] = {}
    changed: dict[TopicPartition, Assignment] = {}
    for number, (tp, move) in enumerate(moves.items(), 1):
        partition = context.partition(tp)
        if partition is not None:
            known[tp] = partition
            if partition.assignment != move:
                changed[tp] = move
        yield from effects.done(number)
    failures = yield from _write_assignments(context, changed)
    adopted = [known[tp] for tp in changed if tp not in failures]
    obsolete: list[Replica] = []
    for number, partition in enumerate(adopted, 1):
        move = changed[partition.tp]
        obsolete += [(partition, b) for b in partition.assignment.replicas if b not in move.replicas]
        partition.assignment = move
        yield from effects.done(number)
    yield from _stop_and_delete(context, obsolete)
    for partition in adopted:
        # Stopping removes the stopped replicas from the assignment in memory; the new move never contained them.
        partition.assignment = changed[partition.tp]
    yield from _replace_stopped_leaders(context, adopted)
    moving = [tp for tp in known if tp not in failures]
    context.reassigning.update(dict.fromkeys(moving))
    if not context.settings.level.alter_partition:
        yield from effects.watch_data([(partition_state.path(tp), ReassigningStateChanged(tp)) for tp in moving])
    return failures


def _replace_stopped_leaders(context: ControllerContext, adopted: Sequence[Partition]) -> Steps[None]:
    """If a stopped replica led (an added one that was already preferred), elect another leader at once."""

    def is_led_by_nobody(p: Partition) -> bool:
        return p.state is not None and not context.is_online(p.state.leader, p.tp)

    led_by_nobody = yield from effects.picked(adopted, is_led_by_nobody)
    if led_by_nobody:
        yield from partition_machine.change(context, led_by_nobody, PartitionPhase.OFFLINE)
        yield from partition_machine.change(context, led_by_nobody, PartitionPhase.ONLINE)


def _write_assignments(context: ControllerContext, wanted: Mapping[TopicPartition, Assignment]) -> Steps[Failures]:
    by_topic: dict[str, dict[int, Assignment]] = {}
    for number, (tp, assignment) in enumerate(wanted.items(), 1):
        by_topic.setdefault(tp.topic, {})[tp.partition] = assignment
        yield from effects.done(number)
    failed = yield from topics.rewrite(context, by_topic)
    return {tp: f"the topic znode could not be written: {failed[tp.topic]}" for tp in wanted if tp.topic in failed}


def _target_in_sync(context: ControllerContext, partition: Partition) -> bool:
    """Whether all target replicas are in the ISR and one of them can lead (Kafka does not require the latter)."""
    state, target = partition.state, partition.assignment.target
    return (
        state is not None
        and all(b in state.isr for b in target)
        and any(context.is_online(b, partition.tp) for b in target)
    )


def _await_targets(context: ControllerContext, waiting: Sequence[Partition]) -> Steps[None]:
    """Steps A: every replica gets the whole list, and added ones are started."""
    if not waiting:
        return
    yield from effects.note(
        "reassignments wait for their targets to be in sync",
        partitions={str(p.tp): list(p.assignment.target) for p in waiting[:NAMED_MAX]},
        count=len(waiting),
    )
    yield from _tell_all_replicas(context, waiting)
    yield from _start_fresh(context, waiting)


def _start_fresh(context: ControllerContext, moving: Sequence[Partition]) -> Steps[None]:
    """Start added replicas that have not been started yet."""
    added = ((p, b) for p in moving for b in p.assignment.adding)
    fresh = yield from effects.picked(added, lambda r: r[0].replica_phase(r[1]) is ReplicaPhase.NON_EXISTENT)
    yield from replica_machine.change(context, fresh, ReplicaPhase.NEW)


def _tell_all_replicas(context: ControllerContext, moving: Sequence[Partition]) -> Steps[None]:
    """Increment the leader epoch, and send LeaderAndIsr with the new lists to all replicas, to the added ones as
    new."""

    def bump(_: Partition, state: PartitionState) -> PartitionState:
        return state_znodes.next_state(context, state)

    failures = yield from state_znodes.change(context, moving, bump)
    if failures:
        reasons = {str(tp): why for tp, why in failures.items()}
        yield from effects.note("leader epochs were not incremented", level="error", reasons=reasons)
    batch = RequestBatch(context)
    for number, partition in enumerate(moving, 1):
        yield from effects.done(number)
        if partition.tp not in failures:
            batch.leader_and_isr(partition.assignment.origin, partition)
            batch.leader_and_isr(partition.assignment.adding, partition, is_new=True)
    yield from sending.send(batch)


def _finish(context: ControllerContext, ready: Sequence[Partition]) -> Steps[Failures]:
    """Steps B: targets are in sync; drop everything else. Returns the partitions that have to wait, and why."""
    if not ready:
        return {}
    moves = {p.tp: p.assignment for p in ready}
    # For a move resumed by another controller, or started with its target in sync, this has not happened yet.
    yield from _start_fresh(context, ready)
    yield from replica_machine.change(context, [(p, b) for p in ready for b in moves[p.tp].adding], ReplicaPhase.ONLINE)
    for number, partition in enumerate(ready, 1):
        partition.assignment = Assignment(moves[partition.tp].target)
        yield from effects.done(number)
    failures = yield from _lead_from_targets(context, ready)
    for partition in ready:
        if partition.tp in failures:
            # Without a leader among the targets the old replicas must stay; the move continues later.
            partition.assignment = moves[partition.tp]
    done = [p for p in ready if p.tp not in failures]
    yield from _stop_and_delete(context, [(p, b) for p in done for b in moves[p.tp].removing])
    for number, partition in enumerate(done, 1):
        partition.assignment = Assignment(moves[partition.tp].target)
        yield from effects.done(number)
    failures |= yield from _write_assignments(context, {p.tp: p.assignment for p in done})
    yield from _conclude(context, [p for p in done if p.tp not in failures])
    return failures


def _lead_from_targets(context: ControllerContext, ready: Sequence[Partition]) -> Steps[Failures]:
    """A leader among the targets stays; any other (or none) is replaced by one of the targets."""
    staying: list[Partition] = []
    changing: list[Partition] = []
    for number, partition in enumerate(ready, 1):
        leader = partition.leader
        stays = leader in partition.assignment.replicas and context.is_online(leader, partition.tp)
        (staying if stays else changing).append(partition)
        yield from effects.done(number)
    if staying:
        yield from _tell_all_replicas(context, staying)
    if not changing:
        return {}
    return dict((yield from partition_machine.change(context, changing, PartitionPhase.ONLINE, Strategy.REASSIGN)))


def _conclude(context: ControllerContext, done: Sequence[Partition]) -> Steps[None]:
    """Write the plain targets into the topic znodes: the moves are then no longer stored anywhere."""
    if not done:
        return
    finished = {p.tp: p.assignment.replicas for p in done}
    for tp in finished:
        context.reassigning.pop(tp, None)
    yield from _drop_from_znode(context, lambda tp, target: finished.get(tp) == target)
    yield from sending.metadata(context, done)
    named = {str(p.tp): list(p.assignment.replicas) for p in done[:NAMED_MAX]}
    yield from effects.note("reassignments are done", partitions=named, count=len(done))
    yield from deletion.resume_for(context, list(dict.fromkeys(tp.topic for tp in finished)))


def _stop_and_delete(context: ControllerContext, theirs: Sequence[Replica]) -> Steps[None]:
    """Remove replicas from the ISR and delete their files, without waiting for the brokers' answers."""
    for phase in (
        ReplicaPhase.OFFLINE,
        ReplicaPhase.DELETION_STARTED,
        ReplicaPhase.DELETION_SUCCESSFUL,
        ReplicaPhase.NON_EXISTENT,
    ):
        yield from replica_machine.change(context, theirs, phase)


# The znode


def _drop_from_znode(
    context: ControllerContext, finished: Callable[[TopicPartition, tuple[int, ...]], bool]
) -> Steps[None]:
    """Remove entries from /admin/reassign_partitions, and delete the znode when it is empty."""
    for _ in range(_REMOVE_ROUNDS_MAX):
        found = (yield from effects.read([reassignments.PATH]))[0]
        if found is None:
            return
        try:
            entries = reassignments.decode(found.data)
        except CorruptData:
            return  # its own event handles it
        kept = {tp: target for tp, target in entries.items() if not finished(tp, target)}
        if len(kept) == len(entries) and entries:
            return
        op = (
            SetData(reassignments.PATH, reassignments.encode(kept), found.version)
            if kept
            else Delete(reassignments.PATH, found.version)
        )
        result = yield from fencing.write_one(context, op)
        if result.code is not ZkCode.BAD_VERSION:
            # Sets the watch if there is none, so that the next znode is noticed.
            yield from effects.perform(effects.Enqueue(ReassignmentRequested()))
            return
