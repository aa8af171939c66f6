"""Requests that wait for the end of their id's last transaction."""

import asyncio

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.transactions import ends
from logyard.broker.transactions.events import Producer
from tests.support.transaction_world import TP, TransactionWorld


async def decided(world: TransactionWorld) -> Producer:
    """An id whose transaction is committed; its marker is under way."""
    producer = await world.begin("x", TP[0])
    world.links.gate.clear()
    assert await world.end(producer) is ErrorCode.NONE
    return producer


async def test_the_next_transaction_waits_for_the_end_of_the_last(world: TransactionWorld) -> None:
    producer = await decided(world)
    adding = asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[1]]))
    await world.settle()
    assert not adding.done()
    world.links.gate.set()
    assert await adding is ErrorCode.NONE
    assert world.coordinator.describe("x").partitions == {TP[1]}


async def test_the_next_producer_waits_too(world: TransactionWorld) -> None:
    await decided(world)
    asking = asyncio.ensure_future(world.initialize())
    await world.settle()
    assert not asking.done()
    world.links.gate.set()
    assert (await asking).producer == Producer(1000, 1)


async def test_nobody_waits_for_long(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "WAIT_S", 0.01)
    producer = await decided(world)
    waiting = [world.coordinator.add_partitions("x", producer, [TP[1]]) for _ in range(3)]
    assert set(await asyncio.gather(*waiting)) == {ErrorCode.CONCURRENT_TRANSACTIONS}


async def test_who_gave_up_leaves_the_others_waiting(world: TransactionWorld) -> None:
    producer = await decided(world)
    first, second = (asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[1]])) for _ in range(2))
    await world.settle()
    first.cancel()
    await world.settle()
    world.links.gate.set()
    assert await second is ErrorCode.NONE


async def test_an_open_transaction_is_not_waited_for(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.log.holds = True
    adding = asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[1]]))
    await world.settle()
    assert await world.coordinator.add_partitions("x", producer, [TP[2]]) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.log.acknowledge()
    assert await adding is ErrorCode.NONE
