"""Transactions past their time, ids that nobody uses, and what tools are told."""

from typing import Any

import pytest
import structlog.testing

from logyard.broker.errors import ErrorCode
from logyard.broker.transactions import completion
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.runner import Rules
from logyard.broker.transactions.states import State
from tests.support.transaction_world import TIMEOUT_MS, TP, TransactionWorld

NONE = ErrorCode.NONE
LOADING, NOT_AVAILABLE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR, CONCURRENT = ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS
COMMIT = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


async def test_a_transaction_past_its_time_is_fenced_and_aborted(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.clock.advance(TIMEOUT_MS / 1000)
    await world.coordinator.abort_timed_out()
    assert world.coordinator.describe("x").state == "Ongoing"
    world.clock.advance(0.002)
    await world.coordinator.abort_timed_out()
    await world.settle()
    assert [(m.producer_epoch, m.commits) for _, m in world.links.sent] == [(1, False)]
    assert world.coordinator.describe("x").state == "CompleteAbort"
    assert await world.end(producer, commits=False) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("seconds", [3_600.0, -3_600.0])
async def test_a_wall_clock_that_jumps_ends_nothing(world: TransactionWorld, seconds: float) -> None:
    await world.begin("x", TP[0])
    world.clock.set_wall(seconds)
    await world.coordinator.abort_timed_out()
    assert world.coordinator.describe("x").state == "Ongoing"
    world.clock.advance(TIMEOUT_MS / 1000 + 1)
    await world.coordinator.abort_timed_out()
    await world.settle()
    assert world.coordinator.describe("x").state == "CompleteAbort"


async def test_a_loaded_transaction_has_what_is_left_of_its_time(world: TransactionWorld) -> None:
    await world.begin("x", TP[0])
    world.clock.advance(TIMEOUT_MS / 1000 - 5)
    await world.elect(6)
    await world.coordinator.abort_timed_out()
    assert world.coordinator.describe("x").state == "Ongoing"
    world.clock.advance(6)
    await world.coordinator.abort_timed_out()
    await world.settle()
    assert world.coordinator.describe("x").state == "CompleteAbort"


async def test_one_that_cannot_be_aborted_does_not_keep_the_others(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await world.begin(name, TP[0])
    world.clock.advance(TIMEOUT_MS / 1000 + 1)
    failed: list[str] = []
    fence = completion.fence

    def failing_once(transaction: Any, now: Any, version: int) -> Any:
        if not failed:
            failed.append(transaction.transactional_id)
            raise RuntimeError("planted")
        return fence(transaction, now, version)

    monkeypatch.setattr(completion, "fence", failing_once)
    await world.coordinator.abort_timed_out()
    await world.settle()
    states = {name: world.coordinator.describe(name).state for name in ("a", "b", "c")}
    assert sorted(states.values()) == ["CompleteAbort", "CompleteAbort", "Ongoing"]
    await world.coordinator.abort_timed_out()
    await world.settle()
    assert world.coordinator.describe(failed[0]).state == "CompleteAbort"


async def test_ids_that_nobody_uses_go(world: TransactionWorld) -> None:
    for name in ("empty", "ended", "open"):
        producer = await world.begin(name, *([] if name == "empty" else [TP[0]]))
        if name == "ended":
            await world.coordinator.end(name, producer, commits=True)
    await world.settle()
    await world.coordinator.expire_ids()
    assert len(world.matching(None, (), -1) or ()) == 3
    world.clock.advance(Rules().expiration_ms / 1000)
    await world.coordinator.expire_ids()
    assert [d.transactional_id for d in world.matching(None, (), -1) or ()] == ["open"]
    assert (world.stored("empty")[-1], world.stored("ended")[-1]) == (None, None)
    assert world.log.batches[-1][2] == Rules().request_timeout_ms
    assert (await world.initialize("ended")).producer.epoch == 0, "a new producer id"


async def test_an_id_that_could_not_be_removed_stays(world: TransactionWorld) -> None:
    await world.begin("x")
    world.clock.advance(Rules().expiration_ms / 1000)
    world.log.holds = True
    await world.coordinator.expire_ids()
    assert (await world.initialize()).error is CONCURRENT
    with structlog.testing.capture_logs() as said:
        world.log.acknowledge(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [(line["event"], line["log_level"], line["error"]) for line in said] == [
        ("transactional ids not expired", "warning", "NOT_ENOUGH_REPLICAS")
    ]
    world.log.holds = False
    assert (await world.initialize()).producer == Producer(1000, 1)


async def test_what_came_of_an_expiry_is_told(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    append = world.log.append

    def failing_after_all(*asked: Any) -> None:
        append(*asked)
        raise RuntimeError("planted")

    await world.begin("x")
    await world.begin("y")
    world.clock.advance(Rules().expiration_ms / 1000)
    with structlog.testing.capture_logs() as said:
        monkeypatch.setattr(world.log, "append", failing_after_all)
        await world.coordinator.expire_ids()
    expired = [line for line in said if line["event"] == "transactional ids expired"]
    assert sum(line["ids"] for line in expired) == 2
    assert not any("error" in line for line in expired)
    assert {line["event"] for line in said} == {"transactional ids expired", "task failed"}


@pytest.mark.parametrize(("limit", "batches"), [(1 << 20, 1), (300, 3), (1, 9)])
async def test_tombstones_fit_into_batches(limit: int, batches: int) -> None:
    world = TransactionWorld()
    await world.elect()
    number = world.owned.partitioning.partition_for
    names = [name for name in (f"id-{n:04}" for n in range(100)) if number(name) == 0][:9]
    for name in names:
        await world.begin(name)
    world.clock.advance(Rules().expiration_ms / 1000)
    world.log.batches.clear()
    world.log.batch_limit = limit
    await world.coordinator.expire_ids()
    assert len(world.log.batches) == batches
    assert sum(len(records) for _, records, _ in world.log.batches) == len(names)
    await world.coordinator.close()


async def test_the_list_by_state_producer_and_duration(world: TransactionWorld) -> None:
    await world.begin("empty")
    world.clock.advance(10)
    one = await world.begin("old", TP[0])
    world.clock.advance(10)
    await world.begin("young", TP[0])

    def listed(*asked: Any) -> list[str]:
        return sorted(d.transactional_id for d in world.matching(*asked) or ())

    assert listed(None, (), -1) == ["empty", "old", "young"]
    assert listed([State.ONGOING], (), -1) == ["old", "young"]
    assert listed([], (), -1) == []
    assert listed(None, {one.producer_id}, -1) == ["old"]
    assert listed(None, (), 9_999) == ["empty", "old"], "without a start it is always old enough"
    assert listed(None, (), 10_000) == ["empty"]
