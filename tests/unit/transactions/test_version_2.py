"""The coordinator where `transaction.version` is 2: what it stores, loads and answers (facts §17.12)."""

import asyncio

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.transactions import record_format
from logyard.broker.transactions.events import Initialize, Initialized, Producer
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import EPOCH_MAX, Stored
from tests.support.transaction_world import TIMEOUT_MS, TP, TransactionWorld

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
PID, OLD_PID, NEXT_ID, USED_UP = 7, 6, 8, EPOCH_MAX - 1


@pytest.fixture
async def raising(world: TransactionWorld) -> TransactionWorld:
    world.version = 2
    return world


async def end(world: TransactionWorld, producer: Producer, *, commits: bool = True) -> Initialized:
    return await world.coordinator.end_and_raise("x", producer, commits=commits)


def versions(world: TransactionWorld) -> list[int]:
    values = [value for records in world.log.partitions.values() for _, value in records if value is not None]
    return [int.from_bytes(value[:2], "big") for value in values]


@pytest.mark.parametrize(("level", "written"), [(0, 0), (1, 1), (2, 1)])
async def test_values_are_of_version_1_where_the_feature_is_on(
    world: TransactionWorld, level: int, written: int
) -> None:
    world.version = level
    producer = await world.begin("x", TP[0])
    assert await world.end(producer) is NONE
    await world.settle()
    assert set(versions(world)) == {written}
    assert world.states()[-1] is State.COMPLETE_COMMIT


async def test_each_end_raises_the_epoch_and_markers_carry_it(raising: TransactionWorld) -> None:
    first = await raising.begin("x", TP[0])
    answer = await end(raising, first)
    second = Producer(first.producer_id, first.epoch + 1)
    assert answer == Initialized(NONE, second)
    await raising.settle()
    assert [(m.producer_epoch, m.version, m.commits) for _, m in raising.links.sent] == [(second.epoch, 2, True)]
    assert await end(raising, first) == answer  # a retry
    assert await raising.coordinator.add_partitions("x", first, [TP[1]]) is ErrorCode.PRODUCER_FENCED
    assert await raising.coordinator.add_partitions("x", second, [TP[1]], client_version=2) is NONE
    assert (await end(raising, first)).error is ErrorCode.PRODUCER_FENCED  # late: it cannot end the next one
    assert raising.coordinator.describe("x").state == "Ongoing"
    assert (await end(raising, second, commits=False)).producer.epoch == second.epoch + 1


async def test_an_abort_of_nothing_behind_a_commit_waits_for_its_markers(raising: TransactionWorld) -> None:
    """Its client has the answer to the commit, and may not be fenced by it (KAFKA-18464)."""
    producer = await raising.begin("x", TP[0])
    raising.links.gate.clear()
    second = (await end(raising, producer)).producer
    await raising.settle()
    assert raising.coordinator.describe("x").state == "PrepareCommit"
    assert await end(raising, second, commits=False) == Initialized(CONCURRENT)
    raising.links.gate.set()
    await raising.settle()
    third = Producer(producer.producer_id, second.epoch + 1)
    assert await end(raising, second, commits=False) == Initialized(NONE, third)
    assert [m.commits for _, m in raising.links.sent] == [True]


async def test_an_older_client_keeps_its_epoch(raising: TransactionWorld) -> None:
    producer = await raising.begin("x", TP[0])
    assert await raising.end(producer) is NONE
    await raising.settle()
    assert await raising.coordinator.add_partitions("x", producer, [TP[1]]) is NONE
    assert await raising.end(producer) is NONE
    await raising.settle()
    assert [(m.producer_epoch, m.version) for _, m in raising.links.sent] == [(0, 0), (0, 0)]


async def test_an_end_that_is_not_stored_raises_nothing(raising: TransactionWorld) -> None:
    producer = await raising.begin("x", TP[0])
    raising.log.holds = True
    ending = asyncio.ensure_future(end(raising, producer))
    await raising.settle()
    raising.log.acknowledge(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert await ending == Initialized(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    raising.log.holds = False
    assert (await end(raising, producer)).producer.epoch == producer.epoch + 1


async def test_a_timed_out_client_goes_on_when_it_aborts(raising: TransactionWorld) -> None:
    producer = await raising.begin("x", TP[0])
    raising.clock.advance(TIMEOUT_MS / 1000 + 1)
    await raising.coordinator.abort_timed_out()
    await raising.settle()
    after = Producer(producer.producer_id, producer.epoch + 1)
    assert [(m.producer_epoch, m.version, m.commits) for _, m in raising.links.sent] == [(after.epoch, 2, False)]
    assert (await end(raising, producer)).error is ErrorCode.PRODUCER_FENCED
    assert await end(raising, producer, commits=False) == Initialized(NONE, after)
    known = await raising.coordinator.initialize(Initialize("x", TIMEOUT_MS, producer))
    assert known == Initialized(NONE, after)


@pytest.mark.parametrize("commits", [True, False])
async def test_used_up_epochs(raising: TransactionWorld, commits: bool) -> None:
    load(raising, Stored(PID, USED_UP, TIMEOUT_MS, State.ONGOING, frozenset({TP[0]}), 3, 2))
    await raising.elect(6)
    answer = await end(raising, Producer(PID, USED_UP), commits=commits)
    assert (answer.error, answer.producer.epoch) == (NONE, 0)
    fresh = answer.producer
    assert fresh.producer_id != PID
    await raising.settle()
    assert [(m.producer_id, m.producer_epoch) for _, m in raising.links.sent] == [(PID, EPOCH_MAX)]
    assert await end(raising, Producer(PID, USED_UP), commits=commits) == answer
    assert await raising.coordinator.add_partitions("x", fresh, [TP[0]], client_version=2) is NONE


def load(world: TransactionWorld, stored: Stored, version: int = 1) -> None:
    number = world.owned.partitioning.partition_for("x")
    world.log.partitions[number] = [(record_format.key("x"), record_format.value(stored, version))]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("epoch", [4, EPOCH_MAX])
async def test_a_load_of_an_end_knows_the_retry(
    raising: TransactionWorld, commits: bool, is_complete: bool, epoch: int
) -> None:
    has_next = epoch == EPOCH_MAX
    if is_complete:
        state = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
        pair = (NEXT_ID, 0) if has_next else (PID, epoch)
        stored = Stored(*pair, TIMEOUT_MS, state, frozenset(), 3, 2, PID if has_next else OLD_PID, -1, 2)
    else:
        state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
        next_id = NEXT_ID if has_next else -1
        stored = Stored(PID, epoch, TIMEOUT_MS, state, frozenset({TP[0]}), 3, 2, OLD_PID, next_id, 2)
    load(raising, stored)
    await raising.elect(6)
    assert [(m.producer_id, m.producer_epoch, m.version) for _, m in raising.links.sent] == (
        [] if is_complete else [(PID, epoch, 2)]
    )
    after = Producer(NEXT_ID, 0) if has_next else Producer(PID, epoch)
    assert await end(raising, Producer(PID, epoch - 1), commits=commits) == Initialized(NONE, after)
    other = await end(raising, Producer(PID, epoch - 1), commits=not commits)
    assert other.error is (ErrorCode.INVALID_TXN_STATE if commits else ErrorCode.PRODUCER_FENCED)
    known = await raising.coordinator.initialize(Initialize("x", TIMEOUT_MS, Producer(PID, epoch - 1)))
    assert known == Initialized(NONE, after)


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING])
@pytest.mark.parametrize("version", [0, 1])
async def test_a_load_of_what_is_not_decided(raising: TransactionWorld, state: State, version: int) -> None:
    partitions = frozenset({TP[0]}) if state is State.ONGOING else frozenset()
    load(raising, Stored(PID, 4, TIMEOUT_MS, state, partitions, 3, 2, OLD_PID, -1, 2), version)
    await raising.elect(6)
    assert raising.links.sent == []
    assert (await end(raising, Producer(PID, 3), commits=False)).error is ErrorCode.PRODUCER_FENCED
    assert await end(raising, Producer(PID, 4), commits=False) == Initialized(NONE, Producer(PID, 5))
