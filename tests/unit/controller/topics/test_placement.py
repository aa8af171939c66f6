"""Placement, table for table (facts §14)."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.controller.topics import placement
from logyard.broker.controller.topics.placement import (
    PARTITIONS_MAX,
    Placement,
    arrange_by_rack,
    check_replicas,
    growth_start,
)
from logyard.broker.errors import ApiError, ErrorCode

EVERY_THREE = ("123", "231", "312", "132", "213", "321", "123", "231", "312")


def place(*asked: Any, **more: Any) -> Placement:
    return dict(placement.place(*asked, **more))


def grow(*asked: Any) -> Placement:
    return dict(placement.grow(*asked))


def check_manual(assignments: Sequence[tuple[int, Sequence[int]]]) -> Placement:
    placed = dict(placement.manual(assignments))
    placement.check_whole(placed)
    return placed


def table(text: str) -> dict[int, tuple[int, ...]]:
    """'0:012 1:123' → {0: (0, 1, 2), 1: (1, 2, 3)}"""
    return {int(p): tuple(map(int, r)) for p, r in (entry.split(":") for entry in text.split())}


def racked(text: str) -> list[tuple[int, str | None]]:
    """'0r1 1r2' → [(0, 'r1'), (1, 'r2')]"""
    return [(int(entry[0]), entry[1:]) for entry in text.split()]


def plain(*ids: int) -> list[tuple[int, str | None]]:
    return [(i, None) for i in ids]


def test_table_1_five_brokers() -> None:
    placed = place(plain(0, 1, 2, 3, 4), 10, 3)
    assert placed == table("0:012 1:123 2:234 3:340 4:401 5:023 6:134 7:240 8:301 9:412")


@pytest.mark.parametrize(
    ("racks", "ring"),
    [
        ("0r1 1r3 2r3 3r2 4r2 5r1", [0, 3, 1, 5, 4, 2]),
        ("0r1 1r3 2r3 3r2 4r2", [0, 3, 1, 4, 2]),
        ("0r1 1r1 2r1 3r2 4r2 5r2 6r3 7r3 8r3", [0, 3, 6, 1, 4, 7, 2, 5, 8]),
        ("0r1 1r2 2r2 3r3 4r3 5r1", [0, 1, 3, 5, 2, 4]),
        ("0r1 1r2 2r2 3r3 4r3 5r2", [0, 1, 3, 2, 4, 5]),
    ],
)
def test_tables_2_and_4_brokers_taken_one_rack_in_turn(racks: str, ring: list[int]) -> None:
    assert arrange_by_rack({b: r for b, r in racked(racks) if r is not None}) == ring


@pytest.mark.parametrize(
    ("racks", "partitions", "factor", "start", "expected"),
    [
        ("0r1 1r3 2r3 3r2 4r2 5r1", 7, 3, 0, "0:031 1:315 2:154 3:542 4:420 5:203 6:042"),
        ("0r1 1r2 2r2 3r3 4r3 5r1", 6, 3, 2, "0:320 1:541 2:203 3:415 4:032 5:154"),
        (
            "0r1 1r2 2r2 3r3 4r3 5r1",
            13,
            3,
            0,
            "0:013 1:135 2:352 3:524 4:240 5:401 6:024 7:140 8:301 9:513 10:235 11:452 12:032",
        ),
        ("0a 1b 2c 3a 4a", 6, 4, 2, "0:2013 1:3124 2:4213 3:0123 4:1423 5:2413"),
        ("0r1 1r2 2r2 3r3 4r3 5r2", 6, 5, 0, "0:01324 1:13024 2:32014 3:24013 4:45013 5:50324"),
    ],
)
def test_tables_3_and_7_to_10_with_racks(racks: str, partitions: int, factor: int, start: int, expected: str) -> None:
    assert place(racked(racks), partitions, factor, start=start, shift=start) == table(expected)


def test_table_11_three_brokers() -> None:
    placed = place(plain(3, 1, 2), 9, 3)
    assert list(placed.values()) == [tuple(map(int, r)) for r in EVERY_THREE]


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [
        ((2, 3, 0, 1), 7, "1:3201 2:0312 3:1023 4:2301 5:3012 6:0123"),
        ((1, 2), 3, "1:20 2:31"),
    ],
)
def test_tables_5_and_6_growth(first: tuple[int, ...], count: int, expected: str) -> None:
    assert grow(plain(0, 1, 2, 3), {0: first}, count) == table(expected)


def test_growth_starts_at_the_first_broker_not_below_the_head() -> None:
    assert growth_start(plain(1, 4, 7), 5) == 2
    assert growth_start(plain(1, 4, 7), 8) == 0


def test_racks_that_only_some_brokers_have_are_refused_but_can_be_ignored() -> None:
    brokers: list[tuple[int, str | None]] = [(0, "a"), (1, None)]
    with pytest.raises(ApiError) as refused:
        place(brokers, 1, 1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert place(brokers, 1, 2, rack_aware=False) == {0: (0, 1)}


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        place(plain(1, 2, 3), partitions, factor)
    assert refused.value.code is code


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    partitions=st.integers(1, 30),
    data=st.data(),
)
def test_placement_is_fair_and_spreads_over_racks(racks: list[str], partitions: int, data: st.DataObject) -> None:
    brokers: list[tuple[int, str | None]] = list(enumerate(racks))
    factor = data.draw(st.integers(1, len(racks)))
    start, shift = data.draw(st.integers(0, len(racks) - 1)), data.draw(st.integers(0, len(racks) - 1))
    placed = place(brokers, partitions, factor, start=start, shift=shift)
    assert sorted(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks)))
    leaders = [replicas[0] for replicas in placed.values()]
    counts = [leaders.count(b) for b in range(len(racks))]
    assert max(counts) - min(counts) <= 1


def test_a_topic_has_no_more_partitions_than_its_znode_can_hold() -> None:
    """Some bytes ask for two thousand million."""
    for partitions in (PARTITIONS_MAX + 1, 2**31 - 1):
        with pytest.raises(ApiError) as refused:
            place(plain(1), partitions, 1)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS
        with pytest.raises(ApiError):
            grow(plain(1), {0: (1,)}, partitions)
    assert len(place(plain(1), PARTITIONS_MAX, 1)) == PARTITIONS_MAX


def test_manual_placement_may_name_unknown_brokers() -> None:
    assert check_manual([(1, (98, 99)), (0, (99, 98))]) == {0: (99, 98), 1: (98, 99)}


@pytest.mark.parametrize(
    "assignments",
    [
        [(0, (1, 2)), (1, (1,))],
        [(0, (1, 1))],
        [(1, (1, 2))],
        [(0, (1,)), (2, (1,))],
        [(0, (1,)), (0, (2,))],
        [(0, ())],
        [(0, (-1,))],
    ],
)
def test_manual_placement_that_is_refused(assignments: list[tuple[int, tuple[int, ...]]]) -> None:
    with pytest.raises(ApiError) as refused:
        check_manual(assignments)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replicas_in_any_order_are_fine() -> None:
    check_replicas((3, 1, 2))
