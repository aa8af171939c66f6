"""The election rules, table for table (facts §5)."""

import pytest

from logyard.broker.controller.partitions.leader_election import Election, Strategy, elect, recipients
from logyard.broker.model import Assignment

OFF, RE, PR, SH = Strategy.OFFLINE, Strategy.REASSIGN, Strategy.PREFERRED, Strategy.SHUTDOWN


@pytest.mark.parametrize(
    ("strategy", "isr", "live", "leader"),
    [
        (OFF, (2, 4), {4}, 4),
        (OFF, (2,), {4}, None),
        (Strategy.UNCLEAN, (2,), {4}, 4),
        (RE, (2, 4), {4}, 4),
        (RE, (2,), set(), None),
        (RE, (), {2}, None),
        (PR, (2, 4), {2, 4}, 2),
        (PR, (2,), set(), None),
        (PR, (4,), {2, 4}, None),
    ],
)
def test_table(strategy: Strategy, isr: tuple[int, ...], live: set[int], leader: int | None) -> None:
    election = elect(strategy, Assignment((2, 4)), isr, live)
    assert (election and election.leader) == leader


@pytest.mark.parametrize(
    ("isr", "down", "expected"),
    [
        ((2, 4), {2}, Election(4, (4,))),
        ((2,), {2}, None),
        ((2, 4), {2, 4}, None),
    ],
)
def test_controlled_shutdown(isr: tuple[int, ...], down: set[int], expected: Election | None) -> None:
    assert elect(SH, Assignment((2, 4)), isr, {2, 4}, shutting_down=down) == expected


def test_offline_takes_assignment_order_and_keeps_only_live_members() -> None:
    assert elect(OFF, Assignment((3, 1, 2)), (1, 2, 3), {1, 2}) == Election(1, (1, 2))


def test_unclean_if_the_topic_allows_it() -> None:
    assert elect(OFF, Assignment((3, 1, 2)), (3,), {1, 2}, unclean_allowed=True) == Election(1, (1,), unclean=True)


def test_no_unclean_election_while_an_isr_member_is_alive() -> None:
    assert elect(Strategy.UNCLEAN, Assignment((3, 1, 2)), (2,), {1, 2}) == Election(2, (2,))


def test_reassign_looks_at_the_target_only_and_keeps_the_isr() -> None:
    moving = Assignment((1, 2, 3)).reassign_to((4, 5))
    assert elect(RE, moving, (1, 5, 4), {1, 2, 3, 4, 5}) == Election(4, (1, 5, 4))


def test_recipients() -> None:
    moving = Assignment((1, 2)).reassign_to((3, 2))
    assert recipients(OFF, moving, {1, 3}) == (3, 1)
    assert recipients(RE, moving, {1}) == (3, 2)
    assert recipients(PR, moving, {1}) == (3, 2, 1)
    assert recipients(SH, moving, {1, 2}) == (2, 1)
