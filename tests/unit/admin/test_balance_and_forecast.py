"""Bytes evened out with little movement, and what a plan says about each broker."""

import random

import pytest

from logyard.admin.balance import BAND, Bytes
from logyard.admin.execution import Move, make_plan
from logyard.admin.forecast import as_markdown, forecast, forecast_lines
from logyard.admin.memory import MemoryClient
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.planner import Goals, PlanInput, plan_moves
from logyard.admin.snapshot import NewTopic
from logyard.broker.model import TopicPartition


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
    assert lines[0].startswith("broker 1: 110 → 10 bytes")
    document = make_plan(snapshot, moves).as_json(50) | {"brokers": list(found.values())}
    text = as_markdown(document)
    assert "1 partitions change, 1 replicas and 100 bytes move; at least 2 s at the throttle" in text
    assert "`t-0`: [1, 2] → [3, 2]" in text
    assert "| 3 | 0 | 100 | 0 → 1 | 0 → 1 |" in text


def test_a_dead_broker_that_is_emptied_is_in_the_forecast() -> None:
    cluster = MemoryCluster({1: None, 2: None}, ticks_to_expire=0)
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: (1,)}))
    client.snapshot()
    cluster.kill(1)
    snapshot = client.snapshot()
    found = forecast(snapshot, client.replica_sizes(), [Move(TopicPartition("t", 0), (1,), (2,), 7)])
    assert [(e["broker"], e["alive"], e["replicas_after"]) for e in found] == [(1, False, 0), (2, True, 1)]
