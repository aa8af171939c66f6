"""Plans: no duplicates, the replication factor kept, drained brokers empty, racks spread, nothing on a second run."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.admin.reassignment.disks import LIMIT, Disks, DiskTooFull
from logyard.admin.reassignment.planner import Goals, PlanImpossible, PlanInput, plan_moves
from logyard.broker.model import TopicPartition
from tests.support.lengths import examples


@st.composite
def inputs(draw: st.DrawFn) -> tuple[PlanInput, Goals]:
    count = draw(st.integers(2, 8))
    racks = draw(st.sampled_from([None, 2, 3]))
    brokers = {b: None if racks is None else f"r{b % racks}" for b in range(1, count + 1)}
    everywhere = [*brokers, 90, 91]  # 90 and 91 are dead
    partitions = draw(st.integers(1, 12))
    factor = draw(st.integers(1, min(4, count)))
    replicas = {TopicPartition("t", p): tuple(draw(st.permutations(everywhere))[:factor]) for p in range(partitions)}
    sizes = {tp: draw(st.integers(0, 5)) * 1000 for tp in replicas}
    drain = draw(st.sets(st.sampled_from(sorted(brokers)), max_size=count - 1))
    asked = draw(st.sampled_from([None, None, 1, 2, 3]))
    goals = Goals(frozenset(drain), asked, draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 3)))
    return PlanInput(replicas, brokers, sizes), goals


def apply(start: PlanInput, goals: Goals) -> PlanInput | None:
    try:
        moves = plan_moves(start, goals)
    except PlanImpossible:
        largest = goals.replication_factor or max(map(len, start.replicas.values()))
        assert len(set(start.brokers) - goals.drain) < largest
        return None
    return PlanInput({**start.replicas, **{move.tp: move.target for move in moves}}, start.brokers, start.sizes)


@given(inputs())
@settings(max_examples=examples(300), deadline=None)
def test_every_plan_meets_its_goals_and_the_next_one_is_empty(case: tuple[PlanInput, Goals]) -> None:
    start, goals = case
    after = apply(start, goals)
    if after is None:
        return
    allowed = set(start.brokers) - goals.drain
    for tp, replicas in after.replicas.items():
        assert len(set(replicas)) == len(replicas)
        assert len(replicas) == (goals.replication_factor or len(start.replicas[tp]))
        assert set(replicas) <= allowed
        racks = [start.brokers[b] for b in replicas]
        if all(rack is not None for rack in racks):
            available = {start.brokers[b] for b in allowed}
            assert len(set(racks)) == min(len(replicas), len(available))
    assert plan_moves(after, goals) == []
    assert plan_moves(start, goals) == plan_moves(start, goals)


@given(inputs(), st.integers(1, 60), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_no_disk_is_filled_above_its_limit(case: tuple[PlanInput, Goals], size: int, larger: bool) -> None:
    """Whatever the goals: what comes beside what is there stays below the limit, or there is no plan."""
    start, goals = case
    capacities = {b: size * 1000 * (2 if larger and b % 2 else 1) for b in start.brokers}
    held = {b: sum(start.sizes[tp] for tp, r in start.replicas.items() if b in r) for b in start.brokers}
    full = PlanInput(start.replicas, start.brokers, start.sizes, Disks(capacities, held))
    try:
        moves = plan_moves(full, goals)
    except (PlanImpossible, DiskTooFull):
        return
    for broker, capacity in capacities.items():
        comes = sum(move.size for move in moves if broker in move.adding)
        assert not comes or held[broker] + comes <= capacity * LIMIT


@given(inputs())
@settings(max_examples=examples(150), deadline=None)
def test_repair_touches_only_what_it_must(case: tuple[PlanInput, Goals]) -> None:
    """Without racks, balance and another factor: slots on brokers that may stay keep their broker."""
    start, goals = case
    plain = PlanInput(start.replicas, dict.fromkeys(start.brokers), start.sizes)
    goals = Goals(goals.drain, None, False, False, goals.seed)
    after = apply(plain, goals)
    if after is None:
        return
    for tp, replicas in after.replicas.items():
        stay = set(plain.replicas[tp]) & (set(plain.brokers) - goals.drain)
        assert stay <= set(replicas)


@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 3))
def test_balancing_evens_counts(brokers: int, partitions: int, seed: int) -> None:
    start = PlanInput({TopicPartition("t", p): (1, 2) for p in range(partitions)}, dict.fromkeys(range(1, brokers + 1)))
    after = apply(start, Goals(balance=True, seed=seed))
    assert after is not None
    held = [b for replicas in after.replicas.values() for b in replicas]
    counts = [held.count(b) for b in after.brokers]
    assert max(counts) - min(counts) <= 1
