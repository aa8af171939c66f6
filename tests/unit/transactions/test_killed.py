"""A coordinator killed, or deposed, around every single record and request: each outcome is whole and as answered."""

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import structlog.testing

from logyard.broker.model import TopicPartition
from logyard.broker.transactions import record_format
from logyard.broker.transactions.states import DECIDED, PREVIOUS, State, completed
from tests.support.transaction_lives import Lives
from tests.support.virtual_loop import run_virtually

A, B, C = (TopicPartition("t", number) for number in range(3))
OUTCOMES = {1: {A: True, B: True}, 2: {B: False, C: False}, 3: {A: False, C: False}, 4: {A: True, B: True, C: True}}


# The protocol of 3.9, that of `transaction.version` 2, and that where the epochs of a producer id end on the way.
PROTOCOLS = [(0, -1), (2, -1), (2, 32763)]


async def story(kill_at: Sequence[int], *, zombies: bool, version: int, first_epoch: int) -> Lives:
    """A commit, an abort, a transaction that the producer's next instance fences, and a commit of that one."""
    lives = Lives(kill_at, zombies=zombies, version=version, first_epoch=first_epoch)
    producer = await lives.initialize()
    await lives.write(producer, 1, A)
    await lives.write(producer, 1, A, B)
    producer = await lives.end(producer, commits=True)
    await lives.write(producer, 2, B, C)
    producer = await lives.end(producer, commits=False)
    await lives.write(producer, 3, A, C)
    producer = await lives.initialize()
    await lives.write(producer, 4, A, B, C)
    await lives.end(producer, commits=True)
    for _ in range(1000):
        if lives.life.coordinator.describe("x").state == "CompleteCommit":
            break
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)
    check(lives)
    await lives.close()
    return lives


def check(lives: Lives) -> None:
    ended = {
        number: {tp: leader.ended[number] for tp, leader in lives.leaders.items() if number in leader.ended}
        for number in OUTCOMES
    }
    assert ended == OUTCOMES
    assert all(leader.open is None for leader in lives.leaders.values())
    stored = [record_format.decode_value(value) for _, value in lives.log.partitions[0] if value is not None]
    for before, after in pairwise(stored):
        is_repeated = before.state is after.state and after.state not in DECIDED
        # The end may be left out where more of the id follows; Lives checks that it has happened.
        end = completed(commits=before.state is State.PREPARE_COMMIT) if before.state in DECIDED else before.state
        assert {before.state, end} & PREVIOUS[after.state] or is_repeated, (before, after)
        assert (after.producer_id, after.epoch) >= (before.producer_id, before.epoch)
    assert stored[-1].state is State.COMPLETE_COMMIT


def steps(version: int, first_epoch: int) -> int:
    lives = run_virtually(story((), zombies=False, version=version, first_epoch=first_epoch))
    assert lives.deaths == 0
    return 2 * lives.effects


@pytest.fixture(autouse=True)
def silent() -> object:
    with structlog.testing.capture_logs() as logs:
        yield logs


@pytest.mark.parametrize("zombies", [False, True])
@pytest.mark.parametrize(("version", "first_epoch"), PROTOCOLS)
def test_killed_around_every_step(zombies: bool, version: int, first_epoch: int) -> None:
    total = steps(version, first_epoch)
    assert total > 30
    for point in range(total):
        lives = run_virtually(story([point], zombies=zombies, version=version, first_epoch=first_epoch))
        assert lives.deaths == 1, point


@pytest.mark.parametrize("zombies", [False, True])
@pytest.mark.parametrize(("version", "first_epoch"), PROTOCOLS)
def test_killed_again_and_again(zombies: bool, version: int, first_epoch: int) -> None:
    chance = random.Random(15)
    total = steps(version, first_epoch)
    for _ in range(60 if version == 0 else 40):
        points = chance.sample(range(total), 4)
        lives = run_virtually(story(points, zombies=zombies, version=version, first_epoch=first_epoch))
        assert lives.deaths >= 1, points
