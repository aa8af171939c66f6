"""Bytes evened out with little movement, and what a plan says about each broker."""

import random
from dataclasses import replace

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.balance import BAND, Bytes
from logyard.admin.reassignment.counts import Counts
from logyard.admin.reassignment.disks import Disks, DiskTooFull, Room, read_capacities
from logyard.admin.reassignment.forecast import as_markdown, forecast, forecast_lines
from logyard.admin.reassignment.plan import Move, make_plan
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.settings import BadSettings
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster


def tps(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", n) for n in range(count)]


def held(moves: list[Move], start: PlanInput) -> dict[int, int]:
    placed = dict(start.replicas) | {move.tp: move.target for move in moves}
    return {b: sum(start.sizes[tp] for tp, r in placed.items() if b in r) for b in start.brokers}


def test_one_large_partition_goes_where_there_is_room() -> None:
    sizes = dict(zip(tps(4), (100, 90, 5, 5), strict=True))
    start = PlanInput({tp: (1,) if sizes[tp] > 50 else (2,) for tp in sizes}, {1: None, 2: None}, sizes)
    moves = plan_moves(start, Goals(balance_disk=True))
    assert [(m.tp.partition, m.target) for m in moves] == [(1, (2,))]
    assert held(moves, start) == {1: 100, 2: 100}


def test_a_large_replica_is_exchanged_for_a_small_one_where_counts_have_to_stay() -> None:
    sizes = dict(zip(tps(4), (100, 100, 10, 10), strict=True))
    start = PlanInput({tp: (1,) if sizes[tp] > 50 else (2,) for tp in sizes}, {1: None, 2: None}, sizes)
    board = Bytes(dict(start.replicas), sizes, [1, 2], {}, keep_counts=True)
    board.even_out()
    assert board.held == {1: 110, 2: 110}


@pytest.mark.parametrize("seed", range(6))
def test_the_band_is_reached_without_touching_what_lies_in_it(seed: int) -> None:
    dice = random.Random(seed)
    brokers: dict[int, str | None] = {b: f"r{b % 3}" for b in range(6)}
    sizes = {tp: dice.randint(1, 1000) for tp in tps(200)}
    replicas = {}
    for tp in sizes:
        first = dice.choice((0, 1, 2))  # three of six brokers hold the first replicas: far from even
        replicas[tp] = (first, dice.choice([b for b in brokers if b % 3 != first % 3]))
    start = PlanInput(replicas, brokers, sizes)
    moves = plan_moves(start, Goals(balance_disk=True))
    after = held(moves, start)
    average = sum(after.values()) / len(after)
    assert max(after.values()) <= average * (1 + BAND)
    for move in moves:
        racks = [brokers[b] for b in move.target]
        assert len(set(move.target)) == len(move.target)
        assert len(set(racks)) == len(racks)
    before = held([], start)
    excess = sum(max(size - average, 0) for size in before.values())
    moved = sum(move.size * len(move.adding) for move in moves)
    assert moved <= excess * 1.5
    placed = dict(replicas) | {move.tp: move.target for move in moves}
    assert [m for m in plan_moves(PlanInput(placed, brokers, sizes), Goals(balance_disk=True)) if m.adding] == []


def test_a_disk_twice_as_large_takes_twice_as_much() -> None:
    sizes = dict.fromkeys(tps(30), 10)
    replicas = {tp: (1,) if tp.partition < 29 else (2,) for tp in sizes}
    disks = Disks({1: 1000, 2: 2000, 3: 1000}, {1: 290, 2: 10})
    start = PlanInput(replicas, dict.fromkeys((1, 2, 3)), sizes, disks)
    after = held(plan_moves(start, Goals(balance_disk=True)), start)
    assert sum(after.values()) == 300
    assert after[2] >= 130  # half of all bytes on half of all disks, within the band
    assert all(after[b] / disks.capacities[b] <= 0.1 * (1 + BAND) for b in after)
    placed = dict(replicas) | {m.tp: m.target for m in plan_moves(start, Goals(balance_disk=True))}
    again = PlanInput(placed, start.brokers, sizes, Disks(disks.capacities, after))
    assert plan_moves(again, Goals(balance_disk=True)) == []


def test_bytes_of_other_topics_fill_a_disk_too() -> None:
    """Broker 2 holds none of this topic, and is full of others: nothing is moved there."""
    sizes = dict.fromkeys(tps(10), 10)
    start = PlanInput(dict.fromkeys(sizes, (1,)), dict.fromkeys((1, 2, 3)), sizes)
    full = Disks(dict.fromkeys((1, 2, 3), 200), {1: 100, 2: 100, 3: 0})
    moves = plan_moves(replace(start, disks=full), Goals(balance_disk=True))
    assert {m.target for m in moves} == {(3,)}
    assert len({m.target for m in plan_moves(start, Goals(balance_disk=True))}) == 2


def test_no_disk_is_filled_above_the_limit_while_replicas_move() -> None:
    sizes = dict.fromkeys(tps(10), 10)
    start = PlanInput(dict.fromkeys(sizes, (1,)), dict.fromkeys((1, 2, 3)), sizes)
    held_now = {1: 100, 2: 60, 3: 0}
    roomy = replace(start, disks=Disks(dict.fromkeys((1, 2, 3), 100), held_now, limit=0.8))
    after = held(plan_moves(roomy, Goals(drain=frozenset({1}))), start)
    assert (after[2], after[3]) == (20, 80)
    tight = replace(start, disks=Disks(dict.fromkeys((1, 2, 3), 100), held_now, limit=0.7))
    with pytest.raises(DiskTooFull, match=r"would hold \d+ of its 100 bytes \(\d+%\) .* and 70% are allowed"):
        plan_moves(tight, Goals(drain=frozenset({1})))
    # Counts stay uneven rather than that: broker 1 may give, and nobody may take.
    none = replace(start, disks=Disks(dict.fromkeys((1, 2, 3), 100), {1: 100, 2: 75, 3: 75}))
    assert plan_moves(none, Goals(balance=True, balance_disk=True)) == []


def test_a_full_disk_takes_back_what_it_holds_already() -> None:
    one = TopicPartition("t", 0)
    room = Room.of(Disks({1: 10, 2: 100}, {1: 10, 2: 0}), {one: (1,)})
    assert (room.fits(one, 1, 5), room.fits(one, 2, 80), room.fits(one, 2, 81), room.fits(one, 3, 999)) == (
        *(True, True, False, True),
    )
    room.take(one, 1, 5)  # its copy stays until the new one is there
    room.put(one, 2, 50)
    assert room.free == {1: -2, 2: 30}
    Disks({1: 10}, {1: 10}).refuse_overfull([Move(one, (1,), (2,), 5)])  # nothing comes to it


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ({}, {}),
        ("", {}),
        (7, {1: 7, 2: 7}),
        ({"1": 5, "2": 6, "9": 1}, {1: 5, 2: 6, 9: 1}),
    ],
)
def test_capacities_are_of_all_brokers_or_of_none(given: object, expected: dict[int, int]) -> None:
    assert read_capacities(given, (1, 2)) == expected


@pytest.mark.parametrize("given", [{"1": 5}, {"1": 5, "2": 0}, -1, "much", [1, 2], {"a": 1}])
def test_capacities_that_make_no_sense_are_refused(given: object) -> None:
    with pytest.raises(BadSettings, match="disk_capacities"):
        read_capacities(given, (1, 2))


class Counted(Counts):
    """How often it asks whether a replica may move."""

    asked = 0

    def _may(self, rank: int, source: int, target: int) -> bool:
        self.asked += 1
        return super()._may(rank, source, target)


def test_the_cost_of_evening_counts_grows_with_the_partitions_and_not_with_their_square() -> None:
    """Four of six brokers hold everything; between racks nothing may move, which every pair has to find out once."""

    def asked(partitions: int) -> float:
        dice = random.Random(1)
        racks = {b: f"r{b % 3}" for b in range(9)}
        replicas = {tp: (dice.choice((0, 3)), dice.choice((1, 4)), 2) for tp in tps(partitions)}
        order = sorted(replicas)
        counts = Counted(dict(replicas), order, {b: b for b in racks}, racks, {}, Room({}, replicas))
        counts.even_out()
        for rack in range(3):
            held = [len(counts.held[b]) for b in racks if b % 3 == rack]
            assert max(held) - min(held) <= 1
        return counts.asked / partitions

    assert asked(1600) < asked(200) * 1.5


def test_a_forecast_names_every_broker_and_its_peak() -> None:
    cluster = MemoryCluster({1: "a", 2: "b", 3: "c"})
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: (1, 2), 1: (2, 1)}))
    snapshot = client.snapshot(reassignments=True)
    cluster.sizes = {TopicPartition("t", 0): 100, TopicPartition("t", 1): 10}
    moves = [Move(TopicPartition("t", 0), (1, 2), (3, 2), 100)]
    found = {entry["broker"]: entry for entry in forecast(snapshot, client.replica_sizes(), moves)}
    assert (found[1]["bytes_before"], found[1]["bytes_after"], found[1]["bytes_peak"]) == (110, 10, 110)
    assert (found[3]["bytes_before"], found[3]["bytes_after"], found[3]["bytes_peak"]) == (0, 100, 100)
    assert (found[3]["leaders_before"], found[3]["leaders_after"]) == (0, 1)
    assert (found[1]["replicas_before"], found[1]["replicas_after"], found[1]["rack"]) == (2, 1, "a")
    lines = forecast_lines(list(found.values()))
    assert lines[0].startswith("broker 1: 110 B → 10 B")
    document = make_plan(snapshot, moves).as_json(50) | {"brokers": list(found.values())}
    text = as_markdown(document)
    assert "1 partitions change, 1 replicas and 100 B move; at least 2 s at the throttle" in text
    assert "`t-0`: [1, 2] → [3, 2]" in text
    assert "| 3 | 0 B | 100 B | 0 → 1 | 0 → 1 |" in text
    known = forecast(snapshot, client.replica_sizes(), moves, {1: 1000, 2: 1000, 3: 400})
    assert [entry["capacity"] for entry in known] == [1000, 1000, 400]
    assert "(at most 100 B (25% of its disks at the peak))" in forecast_lines(known)[2]


def test_a_dead_broker_that_is_emptied_is_in_the_forecast() -> None:
    cluster = MemoryCluster({1: None, 2: None}, ticks_to_expire=0)
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: (1,)}))
    client.snapshot()
    cluster.kill(1)
    snapshot = client.snapshot()
    found = forecast(snapshot, client.replica_sizes(), [Move(TopicPartition("t", 0), (1,), (2,), 7)])
    assert [(e["broker"], e["alive"], e["replicas_after"]) for e in found] == [(1, False, 0), (2, True, 1)]
    # Nobody tells what it holds: no count, and none below nothing.
    assert [(found[0][f"bytes_{when}"]) for when in ("before", "after", "peak")] == [None] * 3
    assert forecast_lines(found)[0].startswith("broker 1 (dead): not known → not known (at most not known)")
    document = make_plan(snapshot, []).as_json(50) | {"brokers": found}
    assert "| 1 | not known | not known | 1 → 0 |" in as_markdown(document)
