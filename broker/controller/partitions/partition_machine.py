"""The partition state machine: from an assignment in a topic znode to a led partition, and to its end.

Rule 1: legal moves are those of `PREVIOUS`; any other is logged and refused, the rest of the batch is done.
Rule 2: New → Online writes the first state: leader = first online replica in assignment order, ISR = all online
replicas, leader epoch 0; with none online the partition stays New.
Rule 3: Online or Offline → Online is an election by `leader_election.elect`, leader epoch + 1, written on the version
that was read; a partition without an eligible replica keeps its phase.
Rule 4: brokers are sent the result once per call, and only after it is in ZooKeeper.
"""

from collections.abc import Mapping, Sequence

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.broker_requests import sending
from logyard.broker.controller.broker_requests.batch import RequestBatch
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.partitions import leader_election, state_znodes
from logyard.broker.controller.partitions.leader_election import Strategy
from logyard.broker.controller.partitions.state_znodes import Failures, Refused
from logyard.broker.errors import CorruptData
from logyard.broker.model import PartitionState
from logyard.broker.znodes import configs, partition_state, topics
from logyard.broker.znodes.ops import Create, OpResult, ZkCode, ZkOp

NEW, ONLINE, OFFLINE, NON_EXISTENT = PartitionPhase

PREVIOUS: Mapping[PartitionPhase, frozenset[PartitionPhase]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
    NON_EXISTENT: frozenset({OFFLINE}),
}

_UNCLEAN_KEY = "unclean.leader.election.enable"


def change(
    context: ControllerContext,
    partitions: Sequence[Partition],
    target: PartitionPhase,
    strategy: Strategy = Strategy.OFFLINE,
) -> Steps[Failures]:
    """Move partitions to a phase; return why some could not be moved (all others were)."""
    failures: Failures = {}
    moving: list[Partition] = []
    for number, partition in enumerate(partitions, 1):
        if partition.phase not in PREVIOUS[target]:
            failures[partition.tp] = f"illegal move from {partition.phase.name} to {target.name}"
        elif target is ONLINE:
            moving.append(partition)
        else:
            partition.phase = target
        yield from effects.done(number)
    if target is ONLINE:
        failures |= yield from _bring_online(context, moving, strategy)
    if failures:
        yield from effects.note(
            "partitions were not moved",
            level="warning",
            target=target.name,
            reasons={str(tp): why for tp, why in failures.items()},
        )
    return failures


def _bring_online(context: ControllerContext, partitions: Sequence[Partition], strategy: Strategy) -> Steps[Failures]:
    batch = RequestBatch(context)
    fresh = [p for p in partitions if p.phase is NEW]
    led = [p for p in partitions if p.phase is not NEW]
    failures: Failures = {}
    if fresh:
        created_failures, adopted = yield from _create_states(context, fresh, batch)
        failures |= created_failures
        led.extend(adopted)
    if led:
        failures |= yield from _elect(context, led, strategy, batch)
    moved = [str(p.tp) for p in partitions if p.tp not in failures]
    if moved:
        yield from effects.note("partitions have leaders", level="debug", partitions=moved, strategy=strategy.value)
    yield from sending.send(batch)
    return failures


# New partitions


def _create_states(
    context: ControllerContext, partitions: Sequence[Partition], batch: RequestBatch
) -> Steps[tuple[Failures, list[Partition]]]:
    """Create first states. Return failures, and partitions that turned out to have a state and need an election."""
    failures: Failures = {}
    wanted: list[tuple[Partition, PartitionState]] = []
    for number, partition in enumerate(partitions, 1):
        yield from effects.done(number)
        online = context.online_replicas(partition)
        if online:
            wanted.append((partition, PartitionState(online[0], 0, online, context.epoch)))
        else:
            failures[partition.tp] = f"none of its replicas {list(partition.assignment.replicas)} is online"
    results = yield from _write_first_states(context, wanted)
    adopted: list[Partition] = []
    for (partition, state), result in zip(wanted, results, strict=True):
        if result.ok:
            partition.state = state
            partition.phase = ONLINE
            batch.leader_and_isr(state.isr, partition, is_new=True)
        elif result.code is ZkCode.NODE_EXISTS:
            adopted.append(partition)
        else:
            failures[partition.tp] = f"its state znode could not be created: {result.code.value}"
    unreadable = yield from state_znodes.refresh(adopted)
    failures |= unreadable
    adopted = [p for p in adopted if p.tp not in unreadable]
    for partition in adopted:
        partition.phase = OFFLINE
    return failures, adopted


def _write_first_states(
    context: ControllerContext, wanted: Sequence[tuple[Partition, PartitionState]]
) -> Steps[list[OpResult]]:
    """Create each partition's znodes; parents that a dead controller left behind are used."""
    names = dict.fromkeys(p.tp.topic for p, _ in wanted)
    bare = [name for name in names if all(p.state is None for p in context.partitions_of([name]))]
    yield from fencing.write(context, [[Create(topics.partitions_path(name))] for name in bare])
    states_only = [[Create(partition_state.path(p.tp), partition_state.encode(state))] for p, state in wanted]
    with_parents: list[list[ZkOp]] = [
        [Create(topics.partition_path(*p.tp)), *unit] for (p, _), unit in zip(wanted, states_only, strict=True)
    ]
    first = yield from fencing.write(context, with_parents)
    half_made = [index for index, result in enumerate(first) if result[0].code is ZkCode.NODE_EXISTS]
    second = yield from fencing.write(context, [states_only[index] for index in half_made])
    results = [fencing.deciding(result) for result in first]
    for index, result in zip(half_made, second, strict=True):
        results[index] = result[0]
    return results


# Elections


def _elect(
    context: ControllerContext, partitions: Sequence[Partition], strategy: Strategy, batch: RequestBatch
) -> Steps[Failures]:
    unclean, failures = yield from _unclean_allowed(context, partitions, strategy)
    count_leaving = strategy is Strategy.SHUTDOWN
    lossy: list[str] = []

    def decide(partition: Partition, state: PartitionState) -> PartitionState:
        election = leader_election.elect(
            strategy,
            partition.assignment,
            state.isr,
            context.online_replicas(partition, count_shutting_down=count_leaving),
            shutting_down=context.shutting_down,
            unclean_allowed=partition.tp.topic in unclean,
        )
        if election is None:
            raise Refused(f"no eligible leader ({strategy.value}): ISR {list(state.isr)}, live {context.live_ids()}")
        if election.unclean:
            lossy.append(str(partition.tp))
        return state_znodes.next_state(
            context,
            state,
            leader=election.leader,
            isr=election.isr,
            recovering=(election.unclean or state.recovering) and context.settings.level.recovery_state,
        )

    electing = [p for p in partitions if p.tp not in failures]
    failures |= yield from state_znodes.change(context, electing, decide)
    for number, partition in enumerate(electing, 1):
        yield from effects.done(number)
        if partition.tp not in failures:
            partition.phase = ONLINE
            online = context.online_replicas(partition, count_shutting_down=count_leaving)
            batch.leader_and_isr(leader_election.recipients(strategy, partition.assignment, online), partition)
    if lossy:
        yield from effects.note("unclean leader elections: records may be lost", level="warning", partitions=lossy)
    return failures


def _unclean_allowed(
    context: ControllerContext, partitions: Sequence[Partition], strategy: Strategy
) -> Steps[tuple[set[str], Failures]]:
    """Return the topics whose settings allow unclean elections; read only for topics that would need one."""
    if strategy is not Strategy.OFFLINE:
        return set(), {}

    def is_needy(p: Partition) -> bool:
        return p.state is None or not any(context.is_online(r, p.tp) for r in p.state.isr)

    needy = yield from effects.picked(partitions, is_needy)
    names = list(dict.fromkeys(p.tp.topic for p in needy))
    paths = [configs.topic_path(name) for name in names]
    znodes = yield from effects.read(paths)
    allowed: set[str] = set()
    failures: Failures = {}
    for name, path, znode in zip(names, paths, znodes, strict=True):
        try:
            overrides = configs.decode(znode.data, path) if znode is not None else {}
        except CorruptData as problem:
            failures |= {p.tp: str(problem) for p in needy if p.tp.topic == name}
            continue
        text = overrides.get(_UNCLEAN_KEY)
        if context.settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true":
            allowed.add(name)
    return allowed, failures
