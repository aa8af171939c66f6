"""Truncation tables of KIP-101, KIP-279 and KIP-320 (facts §11)."""

from typing import Any

import pytest

from logyard.broker.log.leader_epochs import EpochCache, EpochEntry
from logyard.broker.replication.follower.truncation import (
    UNDEFINED,
    OutOfRange,
    Truncation,
    first_fetch_offset,
    out_of_range,
    truncation,
)
from logyard.broker.replication.watermarks import effective_min_isr, follower_high_watermark


def epochs(*entries: Any, end: int) -> Any:
    return EpochCache([EpochEntry(*e) for e in entries], log_end_offset=lambda: end)


# A follower with epochs 1 [0,5), 3 [5,9), 6 [9,12): its log ends at 12, its high watermark is 4.
OWN = ((1, 0), (3, 5), (6, 9))


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "expected"),
    [
        (6, 20, Truncation(12, True)),  # the leader has all of ours
        (6, 10, Truncation(10, True)),  # it has less of the same epoch
        (3, 7, Truncation(7, True)),  # ours of 3 ends at 9, the leader's at 7
        (3, 30, Truncation(9, True)),  # the leader wrote more in 3 than we saw
        (4, 8, Truncation(9, False)),  # we never saw 4: to the end of 3, and ask again
        (2, 8, Truncation(5, False)),  # we never saw 2: to the end of 1, and ask again
        (0, 3, Truncation(0, True)),  # older than all we have: what it wrote ends where ours begins
        (-1, -1, Truncation(4, True)),  # the leader knows nothing: to our high watermark
        (-1, 8, Truncation(8, True)),  # a leader without epochs
        (-1, 80, Truncation(12, True)),
        (9, 8, Truncation(8, True)),  # an epoch above all ours
    ],
)
def test_truncation(leader_epoch: int, leader_end: int, expected: Any) -> None:
    assert truncation(leader_epoch, leader_end, epochs(*OWN, end=12), 12, 4) == expected


def test_without_epochs_the_leaders_end_counts() -> None:
    assert truncation(5, 8, epochs(end=12), 12, 4) == Truncation(8, True)


@pytest.mark.parametrize(
    ("own_end", "leader_end", "leader_start", "expected"),
    [
        (10, 8, 0, OutOfRange(8, truncate=True)),
        (10, 8, 9, OutOfRange(8, truncate=True)),
        (10, 30, 20, OutOfRange(20, restart=True)),
        (10, 30, 10, OutOfRange(10)),
        (10, 10, 0, OutOfRange(10)),
    ],
)
def test_out_of_range(own_end: int, leader_end: int, leader_start: int, expected: Any) -> None:
    assert out_of_range(own_end, leader_end, leader_start, 7, UNDEFINED) == expected


@pytest.mark.parametrize(
    ("leader_end", "leader_start", "expected"),
    [
        (8, 0, OutOfRange(8, truncate=True)),
        (30, 20, OutOfRange(20, restart=True)),
        (30, 0, OutOfRange(7, truncate=True, forget=True)),
        (10, 10, OutOfRange(7, truncate=True, forget=True)),
    ],
)
def test_a_leader_that_has_the_offset_does_not_have_the_epoch(
    leader_end: int, leader_start: int, expected: Any
) -> None:
    assert out_of_range(10, leader_end, leader_start, 7, 4) == expected


def test_where_a_new_follower_starts() -> None:
    assert first_fetch_offset(epochs((1, 0), end=12), 12, 4) == 12
    assert first_fetch_offset(epochs(end=12), 12, 4) == 4


@pytest.mark.parametrize(("leader", "start", "end", "expected"), [(9, 0, 5, 5), (3, 0, 5, 3), (1, 2, 5, 2)])
def test_the_followers_watermark(leader: int, start: int, end: int, expected: Any) -> None:
    assert follower_high_watermark(leader, start, end) == expected


@pytest.mark.parametrize(("wanted", "assigned", "expected"), [(2, 1, 1), (2, 3, 2), (1, 3, 1)])
def test_effective_min_isr(wanted: Any, assigned: Any, expected: Any) -> None:
    assert effective_min_isr(wanted, assigned) == expected
