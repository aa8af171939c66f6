"""Elections on request: ElectLeaders, the preferred-election znode, imbalance, unclean elections being enabled.

Rule 1: whatever the request, the election itself is the partition state machine's.
Rule 2: each partition gets exactly one answer (facts §5): UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (being
deleted), ELECTION_NOT_NEEDED, and if there is no candidate PREFERRED_LEADER_NOT_AVAILABLE or
ELIGIBLE_LEADERS_NOT_AVAILABLE. With "all partitions", ELECTION_NOT_NEEDED is left out.
Rule 3: /admin/preferred_replica_election is deleted at the end, whatever the results.
"""

from collections.abc import Mapping, Sequence

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase
from logyard.broker.controller.effects import Answer, Enqueue, Schedule, Steps
from logyard.broker.controller.events import (
    ElectionKind,
    ElectLeaders,
    LeadersImbalanceDue,
    Outcome,
    PreferredElectionRequested,
)
from logyard.broker.controller.partitions import partition_machine
from logyard.broker.controller.partitions.leader_election import Strategy
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import NO_LEADER, TopicPartition
from logyard.broker.znodes import preferred_election
from logyard.broker.znodes.ops import Delete


def on_elect(context: ControllerContext, request: ElectLeaders) -> Steps[None]:
    """Answer ElectLeaders."""
    wanted = [p.tp for p in context.partitions()] if request.partitions is None else request.partitions
    # An administrator who asks for an unclean election accepts the loss, even if the topic's settings do not.
    outcomes = yield from _elect(context, wanted, request.kind, Strategy.UNCLEAN)
    if request.partitions is None:
        outcomes = {tp: o for tp, o in outcomes.items() if o.error is not ErrorCode.ELECTION_NOT_NEEDED}
    yield from effects.perform(Answer(outcomes))


def on_preferred_requested(context: ControllerContext) -> Steps[None]:
    """Handle /admin/preferred_replica_election."""
    event = PreferredElectionRequested()
    found = (yield from effects.watch_data([(preferred_election.PATH, event)]))[0]
    if found is None:
        return
    try:
        wanted = preferred_election.decode(found.data)
    except CorruptData as problem:
        yield from effects.note("a preferred election cannot be read", level="error", reason=str(problem))
        wanted = []
    outcomes = yield from _elect(context, wanted, ElectionKind.PREFERRED, Strategy.OFFLINE)
    refused = {
        str(tp): o.message or o.error.name
        for tp, o in outcomes.items()
        if o.error not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
    if refused:
        yield from effects.note("preferred elections were refused", level="warning", reasons=refused)
    yield from fencing.write_one(context, Delete(preferred_election.PATH))
    yield from effects.perform(Enqueue(event))  # sets a watch for the next one


def on_unclean_enabled(context: ControllerContext, topic: str | None) -> Steps[None]:
    """Try at once to elect leaders for partitions that need an unclean election."""
    stranded = [
        p
        for p in (context.partitions() if topic is None else context.partitions_of([topic]))
        if p.phase in (PartitionPhase.NEW, PartitionPhase.OFFLINE) and not context.is_deleting(p.tp.topic)
    ]
    yield from partition_machine.change(context, stranded, PartitionPhase.ONLINE)


# Imbalance


def on_imbalance_due(context: ControllerContext) -> Steps[None]:
    """Give leadership back to the preferred replicas of brokers that lead too few of theirs."""
    settings = context.settings
    if not settings.auto_leader_rebalance_enable:
        return
    # First: a check that fails is not to be the last one.
    yield from effects.perform(Schedule(settings.leader_imbalance_check_interval_s, LeadersImbalanceDue()))
    by_preferred: dict[int, list[Partition]] = {}
    for number, partition in enumerate(context.partitions(), 1):
        if not context.is_deleting(partition.tp.topic) and partition.assignment.replicas:
            by_preferred.setdefault(partition.assignment.replicas[0], []).append(partition)
        yield from effects.done(number)
    for broker in sorted(by_preferred):
        theirs = by_preferred[broker]
        elsewhere = yield from effects.picked(theirs, _is_led_elsewhere)
        if len(elsewhere) * 100 > settings.leader_imbalance_per_broker_percentage * len(theirs):
            ready = yield from effects.picked(elsewhere, lambda p: _preferred_can_lead(context, p))
            if ready:
                yield from effects.note("leadership returns to preferred replicas", broker=broker, count=len(ready))
                yield from partition_machine.change(context, ready, PartitionPhase.ONLINE, Strategy.PREFERRED)


def _is_led_elsewhere(partition: Partition) -> bool:
    """Whether it has a leader, or had one, other than its preferred replica."""
    return partition.leader is not None and partition.leader != partition.assignment.replicas[0]


def _preferred_can_lead(context: ControllerContext, partition: Partition) -> bool:
    preferred = partition.assignment.replicas[0]
    return (
        partition.state is not None and preferred in partition.state.isr and context.is_online(preferred, partition.tp)
    )


# One way for all


def _elect(
    context: ControllerContext, wanted: Sequence[TopicPartition], kind: ElectionKind, unclean: Strategy
) -> Steps[dict[TopicPartition, Outcome]]:
    outcomes: dict[TopicPartition, Outcome] = {}
    electable: dict[TopicPartition, Partition] = {}
    for number, tp in enumerate(wanted, 1):
        yield from effects.done(number)
        partition = context.partition(tp)
        if partition is None:
            outcomes[tp] = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        elif context.is_deleting(tp.topic):
            outcomes[tp] = Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        elif _is_well_led(context, partition, kind):
            outcomes[tp] = Outcome(ErrorCode.ELECTION_NOT_NEEDED)
        else:
            electable[tp] = partition
            outcomes[tp] = Outcome()
    preferred = kind is ElectionKind.PREFERRED
    strategy = Strategy.PREFERRED if preferred else unclean
    failures: Mapping[TopicPartition, str] = {}
    if electable:
        chosen = list(electable.values())
        failures = yield from partition_machine.change(context, chosen, PartitionPhase.ONLINE, strategy)
    refusal = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return outcomes | {tp: Outcome(refusal, failures[tp]) for tp in electable if tp in failures}


def _is_well_led(context: ControllerContext, partition: Partition, kind: ElectionKind) -> bool:
    leader = NO_LEADER if partition.leader is None else partition.leader
    if kind is ElectionKind.PREFERRED:
        return leader == partition.assignment.replicas[0]
    return context.is_live(leader)
