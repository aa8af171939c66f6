"""Whether a plan fits on the disks that brokers report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.admin.cluster.snapshot import DirectorySpace, ReplicaSize
from logyard.admin.reassignment.disks import DiskTooFull
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.space import (
    FITS,
    TIGHT,
    TOO_FULL,
    UNKNOWN,
    refuse_overfull,
    room,
    room_lines,
    volumes,
    warnings,
)
from logyard.broker.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def disk(broker: int, total: int | None, usable: int | None, path: str = "/d", online: bool = True) -> DirectorySpace:
    return DirectorySpace(broker, path, total, usable, online)


def verdict(directories: list[DirectorySpace], *moves: Move) -> tuple[str, str]:
    [found] = [entry for entry in room(directories, [], moves) if entry["broker"] == 2]
    return found["verdict"], found["reason"]


def test_what_comes_goes_and_stays_free() -> None:
    held = [
        ReplicaSize(1, "/a", T0, 300),
        ReplicaSize(1, "/b", T1, 50),
        ReplicaSize(1, "/a", T1, 7, is_future=True),
    ]
    disks = [disk(1, 1000, 400, "/a"), disk(1, 1000, 900, "/b"), disk(2, 2000, 1900)]
    one, two = room(disks, held, [Move(T0, (1,), (2,), 310), Move(T1, (1,), (1,), 50)])
    assert one == {
        "broker": 1,
        "comes": 0,
        "goes": 300,
        "total": 2000,
        "free": 1300,
        "free_least": 1300,
        "free_after": 1600,
        "directories": [
            {"path": "/a", "total": 1000, "free": 400, "goes": 300},
            {"path": "/b", "total": 1000, "free": 900, "goes": 0},
        ],
        "verdict": FITS,
        "reason": "",
    }
    assert (two["comes"], two["free_least"], two["free_after"], two["verdict"]) == (310, 1590, 1590, FITS)
    assert room_lines([two]) == [
        "broker 2: 310 B come, 0 B go; disks: 1.9 KiB free, 1.6 KiB while replicas move, 1.6 KiB after"
    ]
    assert room(disks, held, []) == []


def test_what_is_too_large_is_refused_and_what_goes_makes_no_room() -> None:
    large = Move(T0, (1,), (2,), 101)
    said, why = verdict([disk(2, 1000, 100)], large)
    assert said == TOO_FULL
    assert "101 B come and 100 B are free" in why
    with pytest.raises(DiskTooFull, match="broker 2"):
        refuse_overfull(room([disk(2, 1000, 100)], [], [large]))
    leaves = [ReplicaSize(2, "/d", T1, 500)]
    [both] = [e for e in room([disk(2, 1000, 100)], leaves, [large, Move(T1, (2,), (1,), 500)]) if e["broker"] == 2]
    assert (both["verdict"], both["free_after"]) == (TOO_FULL, 499)
    refuse_overfull(room([disk(2, 10_000, 9_000)], [], [large]))


def test_one_replica_has_to_fit_in_one_directory() -> None:
    two = [disk(2, 1000, 600, "/a"), disk(2, 1000, 500, "/b")]
    assert verdict(two, Move(T0, (1,), (2,), 601))[0] == TOO_FULL
    assert verdict(two, Move(T0, (1,), (2,), 551))[0] == TIGHT
    assert verdict(two, Move(T0, (1,), (2,), 100))[0] == FITS


def test_a_disk_that_gets_nearly_full_is_a_warning() -> None:
    move = Move(T0, (1,), (2,), 150)
    assert verdict([disk(2, 1000, 350)], move) == (FITS, "")
    assert verdict([disk(2, 1000, 349)], move)[0] == TIGHT
    assert warnings(room([disk(2, 1000, 349)], [], [move])) == [
        "broker 2: its disks will be 80% full while replicas move"
    ]


@pytest.mark.parametrize("unknown", [[], [disk(2, None, None)], [disk(2, 9, 9, "/a"), disk(2, None, None, "/b")]])
def test_where_a_broker_does_not_tell_nothing_is_claimed(unknown: list[DirectorySpace]) -> None:
    said, why = verdict(unknown, Move(T0, (1,), (2,), 10**15))
    assert (said, "does not tell" in why) == (UNKNOWN, True)
    assert not warnings(room(unknown, [], [Move(T0, (1,), (2,), 10**15)]))


def test_a_directory_that_is_offline_holds_nothing() -> None:
    disks = [disk(2, 1000, 900, "/a", online=False), disk(2, 1000, 100, "/b")]
    assert verdict(disks, Move(T0, (1,), (2,), 500))[0] == TOO_FULL


def test_directories_of_one_volume_count_once() -> None:
    assert volumes([disk(1, 10_000, 5_000, "/a"), disk(1, 10_000, 5_009, "/b"), disk(1, 10_000, 4_000, "/c")]) == [
        (10_000, 5_000),
        (10_000, 4_000),
    ]


def test_new_equal_disks_that_look_like_one_are_a_warning_and_no_refusal() -> None:
    new = [disk(2, 1000, 990, f"/{n}") for n in range(4)]
    moves = [Move(TopicPartition("t", n), (1,), (2,), 300) for n in range(10)]
    said, why = verdict(new, *moves)
    assert said == TIGHT
    assert "990 B are free if its directories are on one disk" in why
    refuse_overfull(room(new, [], moves))
    assert verdict(new, *moves, *moves)[0] == TOO_FULL


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=4),
    st.lists(st.integers(0, 10**6), max_size=6),
)
def test_nothing_fits_that_is_larger_than_what_is_free(disks: list[tuple[int, int]], sizes: list[int]) -> None:
    directories = [disk(2, max(pair), min(pair), f"/{n}") for n, pair in enumerate(disks)]
    moves = [Move(TopicPartition("t", n), (1,), (2,), each) for n, each in enumerate(sizes)]
    for entry in room(directories, [], moves):
        if entry["broker"] == 2 and sum(sizes) > sum(one.usable or 0 for one in directories):
            assert entry["verdict"] in (TOO_FULL, UNKNOWN)
