"""What an election loads, and what an earlier one can no longer do."""

import asyncio

import pytest

from logyard.broker import tasks
from logyard.broker.errors import ErrorCode
from logyard.broker.transactions import record_format, runner
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored
from tests.support.transaction_world import TP, TransactionWorld, every_answer

NONE = ErrorCode.NONE
LOADING, NOT_AVAILABLE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR, CONCURRENT = ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS
COMMIT = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


@pytest.mark.parametrize(("partitions", "loses"), [(1, True), (1, False)])
async def test_an_append_of_an_earlier_election_changes_nothing(
    world: TransactionWorld, partitions: int, loses: bool
) -> None:
    producer = await world.begin("x", TP[0])
    world.log.holds = True
    ending = asyncio.ensure_future(world.end(producer))
    await world.settle()
    for partition in range(3):
        world.coordinator.on_follower(partition)
    if not loses:
        await world.elect(7)
    world.log.acknowledge()
    assert await ending is NOT_COORDINATOR
    await world.settle()
    epochs = [m.coordinator_epoch for _, m in world.links.sent]
    assert epochs == ([] if loses else [7] * partitions), "only what the new election found"


async def test_a_failed_append_of_an_earlier_election_keeps_its_error(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.log.holds = True
    ending = asyncio.ensure_future(world.end(producer))
    await world.settle()
    await world.elect(7)
    world.log.acknowledge(ErrorCode.REQUEST_TIMED_OUT)
    assert await ending is NOT_AVAILABLE


async def test_while_it_is_loaded_again_an_append_answers_so(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.log.holds = True
    ending = asyncio.ensure_future(world.end(producer))
    await world.settle()
    world.log.replicated = False
    await world.elect(7)
    world.log.acknowledge()
    assert await ending is LOADING


async def test_a_load_takes_the_last_record_of_each_id(world: TransactionWorld) -> None:
    number = world.owned.partitioning.partition_for("x")
    ended = Stored(9, 2, 100, State.COMPLETE_ABORT, updated_ms=3, start_ms=2)
    world.log.partitions[number] = [
        (record_format.key("x"), record_format.value(Stored(9, 1, 100, State.EMPTY))),
        (record_format.key("gone"), record_format.value(Stored(8, 1, 100, State.EMPTY))),
        (b"\x00\x07a later key", b"?"),
        (record_format.key("x"), record_format.value(ended)),
        (record_format.key("gone"), None),
    ]
    await world.elect(6)
    assert [d.transactional_id for d in world.matching(None, (), -1) or ()] == ["x"]
    assert world.coordinator.describe("x").producer == Producer(9, 2)
    assert world.links.sent == []


@pytest.mark.parametrize("commits", [True, False])
async def test_a_decided_transaction_is_ended_by_the_next_coordinator(world: TransactionWorld, commits: bool) -> None:
    producer = await world.begin("x", TP[0], TP[1])
    world.links.gate.clear()
    assert await world.end(producer, commits=commits) is NONE
    await world.settle()
    world.links.gate.set()
    await world.elect(8)
    assert {(broker, m.coordinator_epoch, m.commits) for broker, m in world.links.sent if m.coordinator_epoch == 8} == {
        (1, 8, commits),
        (2, 8, commits),
    }
    assert world.states()[-2:] == COMMIT[2:] if commits else [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert await world.end(producer, commits=commits) is NONE


async def test_nothing_is_served_before_what_was_read_is_replicated(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.links.unreachable = {1, 2}
    assert await world.end(producer) is NONE
    world.log.replicated = False
    await world.elect(8)
    world.links.unreachable = set()
    await asyncio.sleep(0.2)
    assert not [m for _, m in world.links.sent if m.coordinator_epoch == 8]
    assert await world.end(producer) is LOADING
    world.log.replicated = True
    await asyncio.sleep(0.1)
    assert await world.end(producer) is NONE


async def test_a_failed_load_is_tried_again(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOAD_AGAIN_S", 0.001)
    world.log.unreadable = 7
    await world.elect(6)
    assert await every_answer(world) == {LOADING}
    await asyncio.sleep(0.05)
    assert await every_answer(world) != {LOADING}


async def test_a_value_of_a_later_version_is_not_guessed_at(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOAD_AGAIN_S", 0.001)
    number = world.owned.partitioning.partition_for("x")
    world.log.partitions[number] = [(record_format.key("x"), b"\x00\x02")]
    await world.elect(6)
    await asyncio.sleep(0.02)
    assert await every_answer(world) == {LOADING}
    world.log.partitions[number].append((record_format.key("x"), None))
    world.log.partitions[number].pop(0)
    await asyncio.sleep(0.02)
    assert (await world.initialize()).error is NONE


async def test_a_load_ends_with_its_election(world: TransactionWorld) -> None:
    failures = tasks.failures.total()
    world.log.replicated = False
    await world.elect(6)
    for partition in range(3):
        world.coordinator.on_follower(partition)
    world.log.replicated = True
    await asyncio.sleep(0.05)
    assert await every_answer(world) == {NOT_COORDINATOR}
    assert tasks.failures.total() == failures
