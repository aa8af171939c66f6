"""Reading and conditionally writing the state znodes of partitions, for both state machines.

Rule 1: a state is written on the version that the decision was based on; memory changes after the write.
Rule 2: if memory was out of date (BADVERSION: the leader changed its ISR meanwhile), the state is read again and the
decision repeated (facts §4).
Rule 3: every decision is based on a fresh read, as in Kafka. A leader below 2.7-IV2 (all of them, or one during an
upgrade) writes its ISR itself and sends a notification seconds later: a replica that memory has outside the ISR may be
in it by now, or be the only one that can lead.
Rule 4: a state of a newer controller epoch is not touched: another broker is controller.
"""

from collections.abc import Callable, Sequence

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext, Partition
from logyard.broker.controller.effects import Steps
from logyard.broker.errors import CorruptData
from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import partition_state
from logyard.broker.znodes.ops import SetData, ZkCode

ROUNDS_MAX = 20
# So many are read, decided on and written together: some milliseconds of work between the answers of ZooKeeper.
AT_ONCE = 1000


class Refused(Exception):
    """Raised by a decision: the partition cannot be changed, for this reason; the rest of the batch is done."""


Decision = Callable[[Partition, PartitionState], PartitionState | None]
"""Takes a partition and its current state, returns the state to write, or None to leave it. May raise Refused."""

Failures = dict[TopicPartition, str]


def refresh(partitions: Sequence[Partition]) -> Steps[Failures]:
    """Read the states of partitions into memory; a missing or unreadable one becomes None, with a reason."""
    failures: Failures = {}
    for start in range(0, len(partitions), AT_ONCE):
        failures |= yield from _refresh_some(partitions[start : start + AT_ONCE])
    return failures


def _refresh_some(partitions: Sequence[Partition]) -> Steps[Failures]:
    failures: Failures = {}
    paths = [partition_state.path(p.tp) for p in partitions]
    znodes = yield from effects.read(paths)
    for partition, path, znode in zip(partitions, paths, znodes, strict=True):
        partition.state = None
        if znode is None:
            failures[partition.tp] = f"{path} does not exist"
            continue
        try:
            partition.state = partition_state.decode(znode.data, znode.version, path)
        except CorruptData as problem:
            failures[partition.tp] = str(problem)
    return failures


def change(
    context: ControllerContext, partitions: Sequence[Partition], decide: Decision, *, just_read: bool = False
) -> Steps[Failures]:
    """Change the states of partitions; return why some were not changed. Memory and znode agree afterwards.

    `just_read`: memory was read during this event. Very many are changed some at a time, with turns for others.
    """
    failures: Failures = {}
    for start in range(0, len(partitions), AT_ONCE):
        some = partitions[start : start + AT_ONCE]
        failures |= yield from _change_some(context, some, decide, just_read=just_read)
    return failures


def _change_some(
    context: ControllerContext, partitions: Sequence[Partition], decide: Decision, *, just_read: bool
) -> Steps[Failures]:
    failures = yield from refresh([p for p in partitions if not just_read or p.state is None])
    waiting = [p for p in partitions if p.tp not in failures]
    for _ in range(ROUNDS_MAX):
        wanted = yield from _decide(context, waiting, decide, failures)
        if not wanted:
            return failures
        results = yield from fencing.write(context, [unit for _, _, unit in wanted])
        stale: list[Partition] = []
        for (partition, state, _), result in zip(wanted, results, strict=True):
            if result[0].ok:
                partition.state = state._replace(partition_epoch=result[0].version)
            elif result[0].code in (ZkCode.BAD_VERSION, ZkCode.NO_NODE):
                stale.append(partition)
            else:
                failures[partition.tp] = f"ZooKeeper refused the state: {result[0].code.value}"
        failures |= yield from refresh(stale)
        waiting = [p for p in stale if p.tp not in failures]
    failures |= {p.tp: f"the state changed under each of {ROUNDS_MAX} attempts" for p in waiting}
    return failures


def _decide(
    context: ControllerContext, partitions: Sequence[Partition], decide: Decision, failures: Failures
) -> Steps[list[tuple[Partition, PartitionState, fencing.Unit]]]:
    """Return what to write: the new states, and the writes."""
    wanted: list[tuple[Partition, PartitionState, fencing.Unit]] = []
    for number, partition in enumerate(partitions, 1):
        if number % effects.DONE_PER_TURN == 0:
            yield [effects.Turn()]
        state = partition.state
        assert state is not None
        if state.controller_epoch > context.epoch:
            failures[partition.tp] = f"its state is of controller epoch {state.controller_epoch}, ours is older"
            continue
        try:
            new = decide(partition, state)
        except Refused as reason:
            failures[partition.tp] = str(reason)
            continue
        if new is not None:
            write = SetData(partition_state.path(partition.tp), partition_state.encode(new), new.partition_epoch)
            wanted.append((partition, new, [write]))
    return wanted


def next_state(
    context: ControllerContext,
    state: PartitionState,
    *,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    recovering: bool | None = None,
) -> PartitionState:
    """Return the next state: leader epoch + 1, our controller epoch, and the other fields as before unless given."""
    return PartitionState(
        leader=state.leader if leader is None else leader,
        leader_epoch=state.leader_epoch + 1,
        isr=state.isr if isr is None else isr,
        controller_epoch=context.epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering if recovering is None else recovering,
    )
