"""Thousands of transactions at once: nobody else has to wait for all of them, and each one ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog.testing

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.transactions import loading, owned_transactions, record_format
from logyard.broker.transactions.markers import runner as markers
from logyard.broker.transactions.markers.routing import destinations
from logyard.broker.transactions.runner import Rules
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored, Transaction
from tests.support.longest_turn import longest_turn_of_the_new
from tests.support.transaction_world import TIMEOUT_MS, TP, TransactionWorld

IDS = 10_000
PER_TURN = owned_transactions.PER_TURN
NONE = ErrorCode.NONE


def fill(world: TransactionWorld, state: State, count: int = IDS) -> None:
    """Put so many transactions of that state into the log, of four partitions each."""
    now_ms = world.clock.now_ms()
    for number in range(count):
        name = f"id-{number}"
        stored = Stored(5000 + number, 0, TIMEOUT_MS, state, frozenset(TP), now_ms, now_ms)
        records = world.log.partitions.setdefault(world.owned.partitioning.partition_for(name), [])
        records.append((record_format.key(name), record_format.value(stored)))


def count(world: TransactionWorld, state: State) -> int:
    return len(world.matching([state], (), -1) or ())


async def become(world: TransactionWorld, state: State) -> None:
    async with asyncio.timeout(20):
        while count(world, state) < IDS:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def largest_turn(world: TransactionWorld, what: str) -> AsyncIterator[list[int]]:
    """How many records were appended (`what` is "records"), or markers sent, in one turn of the event loop at most."""
    largest = [0]

    def seen() -> int:
        if what == "records":
            return sum(len(records) for _, records, _ in world.log.batches)
        return sum(len(sent) for _, sent in world.links.requests)

    def turn() -> None:
        before = seen()
        run_once()
        largest[0] = max(largest[0], seen() - before)

    # The loop is asked itself: a task that looks in between sees the end of one turn and the start of the next one.
    loop: Any = asyncio.get_running_loop()
    run_once = loop._run_once
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "_run_once", turn)
        await asyncio.sleep(0)
        yield largest
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
async def crowded() -> AsyncIterator[TransactionWorld]:
    """No partition is led yet."""
    world = TransactionWorld()
    yield world
    await world.coordinator.close()


@pytest.mark.parametrize(("partitions", "most"), [(4, AT_ONCE), (5000, 10)])
async def test_a_partition_with_very_many_ids_is_loaded_in_turns(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch, partitions: int, most: int
) -> None:
    """All of them were made in the turn after the last was read."""
    ids = 3 * most
    places = frozenset(TopicPartition("t", number) for number in range(partitions))
    value = record_format.value(Stored(1, 0, TIMEOUT_MS, State.PREPARE_COMMIT, places, 1, 1))
    world.log.partitions[0] = [(record_format.key(f"id-{number}"), value) for number in range(ids)]
    made = largest = 0

    def counted(*values: Any) -> Transaction:
        nonlocal made
        made += 1
        return Transaction(*values)

    monkeypatch.setattr(loading, "Transaction", counted)
    load = asyncio.ensure_future(loading.load(world.log, 0, asyncio.sleep, lambda: Now(0, 0)))
    while not load.done():
        before = made
        await asyncio.sleep(0)
        largest = max(largest, made - before)
    assert largest == most
    assert list(await load) == [f"id-{number}" for number in range(ids)]


async def test_a_partition_with_very_many_ids_is_given_up_in_turns(world: TransactionWorld) -> None:
    """All of them were freed in the turn in which it was given up."""
    led = world.owned.loaded()[0]
    places = [TopicPartition("t", number) for number in range(4)]
    for number in range(2 * 100_000):
        stored = Stored(number, 0, TIMEOUT_MS, State.PREPARE_COMMIT, frozenset(places), 1, 1)
        led.transactions[f"id-{number}"] = Transaction(f"id-{number}", stored, unmarked=set(places))
    partition = led.number
    del led  # nobody holds them but the coordinator
    async with longest_turn_of_the_new() as longest:
        world.coordinator.on_follower(partition)
        assert not list(world.owned.all())
        await world.pass_turns(400)
    assert longest.seconds < 0.03


async def test_open_ones_that_time_out_together_are_aborted_in_portions(crowded: TransactionWorld) -> None:
    fill(crowded, State.ONGOING)
    await crowded.elect()
    assert count(crowded, State.ONGOING) == IDS
    crowded.clock.advance(TIMEOUT_MS / 1000 + 1)
    async with largest_turn(crowded, "records") as largest:
        await crowded.coordinator.abort_timed_out()
    assert 0 < largest[0] <= 2 * PER_TURN, "ends of the first ones are written while others are aborted"
    await become(crowded, State.COMPLETE_ABORT)
    marked = [tp for _, marker in crowded.links.sent for tp in marker.partitions]
    assert len(marked) == IDS * len(TP), "each once"


async def test_a_new_coordinator_ends_decided_ones_in_portions(crowded: TransactionWorld) -> None:
    fill(crowded, State.PREPARE_COMMIT)
    async with largest_turn(crowded, "markers") as largest:
        await crowded.elect()
        await become(crowded, State.COMPLETE_COMMIT)
    assert 0 < largest[0] <= 2 * markers.PER_REQUEST, "two brokers"
    marked = [tp for _, marker in crowded.links.sent for tp in marker.partitions]
    assert len(marked) == IDS * len(TP), "each once"


async def test_a_request_comes_through_while_decided_ones_are_ended(crowded: TransactionWorld) -> None:
    fill(crowded, State.PREPARE_COMMIT)
    crowded.links.gate.clear()
    await crowded.elect()
    producer = await crowded.begin("x", TP[0])
    assert await crowded.end(producer) is NONE
    assert await crowded.coordinator.add_partitions("id-1", producer, TP) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    crowded.links.gate.set()
    await become(crowded, State.COMPLETE_COMMIT)


async def test_a_broker_that_cannot_be_reached_is_asked_for_a_portion_each_time(
    crowded: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.002)
    fill(crowded, State.PREPARE_ABORT)
    crowded.links.unreachable = {1}
    await crowded.elect()
    async with asyncio.timeout(20):
        while sum(broker == 1 for broker, _ in crowded.links.requests) < 20:
            await asyncio.sleep(0.002)
    assert max(len(sent) for _, sent in crowded.links.requests) <= markers.PER_REQUEST
    assert count(crowded, State.PREPARE_ABORT) == IDS
    crowded.links.unreachable = set()
    await become(crowded, State.COMPLETE_ABORT)
    for broker in (1, 2):
        marked = [tp for at, marker in crowded.links.sent if at == broker for tp in marker.partitions]
        assert len(marked) == IDS * len(TP) // 2, "each once"


async def test_leaders_that_move_from_such_a_broker_are_found(crowded: TransactionWorld) -> None:
    fill(crowded, State.PREPARE_COMMIT)
    crowded.links.unreachable = {1}
    await crowded.elect()
    await crowded.pass_turns(200)
    crowded.lead(2, 2, 2, 2)
    await become(crowded, State.COMPLETE_COMMIT)
    assert {broker for broker, _ in crowded.links.sent} == {2}


async def test_leaders_that_are_not_there_are_looked_up_a_portion_each_time(
    crowded: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 0.002)
    looked, retries = [0], [0]

    def look(*arguments: Any) -> Any:
        looked[0] += 1
        return destinations(*arguments)

    def call_later(delay: float, callback: Any, *arguments: Any) -> Any:
        retries[0] += delay == markers.RETRY_S  # a retry starts the timer of the next one
        return started(delay, callback, *arguments)

    loop = asyncio.get_running_loop()
    started = loop.call_later
    monkeypatch.setattr(markers, "destinations", look)
    monkeypatch.setattr(loop, "call_later", call_later)
    crowded.lead(-1, -1, -1, -1)
    fill(crowded, State.PREPARE_COMMIT)
    await crowded.elect()
    async with asyncio.timeout(20):
        while looked[0] < IDS + 10 * markers.PER_RETRY:
            await asyncio.sleep(0.002)
    assert looked[0] <= IDS + retries[0] * markers.PER_RETRY
    assert retries[0] >= 10


async def test_what_may_be_deleted_is_asked_about_and_nothing_else(
    crowded: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that waited was looked up each second, in one turn."""
    monkeypatch.setattr(markers, "RETRY_S", 3600)
    crowded.lead(-1, -1, -1, -1)
    fill(crowded, State.PREPARE_COMMIT)
    await crowded.elect()
    await crowded.pass_turns(200)
    looked, look = [0], crowded.metadata.partition

    def counted(tp: TopicPartition) -> Any:
        looked[0] += 1
        return look(tp)

    monkeypatch.setattr(crowded.metadata, "partition", counted)
    producer = await crowded.begin("x", TopicPartition("deleted", 0))
    assert await crowded.end(producer) is NONE
    await crowded.settle()
    assert crowded.coordinator.describe("x").state == "CompleteCommit"
    assert 0 < looked[0] < 10


async def test_of_a_topic_that_is_deleted_all_are_ended(
    crowded: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "ASK_AGAIN_S", 0.01)
    crowded.lead(-1, -1, -1, -1)
    fill(crowded, State.PREPARE_COMMIT)
    await crowded.elect()
    await crowded.pass_turns(200)
    crowded.delete(0, 1, 2, 3)
    await become(crowded, State.COMPLETE_COMMIT)
    assert crowded.links.sent == []


async def test_metadata_have_all_of_them_looked_up(crowded: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "RETRY_S", 3600)
    crowded.lead(-1, -1, -1, -1)
    fill(crowded, State.PREPARE_COMMIT)
    await crowded.elect()
    await crowded.pass_turns(200)
    assert not crowded.links.requests
    crowded.lead(1, 2, 1, 2)
    await become(crowded, State.COMPLETE_COMMIT)


async def test_an_election_that_is_lost_ends_a_sweep(crowded: TransactionWorld) -> None:
    fill(crowded, State.ONGOING)
    await crowded.elect()
    crowded.clock.advance(TIMEOUT_MS / 1000 + 1)
    sweep = asyncio.ensure_future(crowded.coordinator.abort_timed_out())
    while not crowded.log.batches:
        await asyncio.sleep(0)
    for partition in range(3):
        crowded.coordinator.on_follower(partition)
    await sweep
    assert len(crowded.log.batches) <= PER_TURN


async def test_ids_that_expire_together_go_in_portions(crowded: TransactionWorld) -> None:
    fill(crowded, State.COMPLETE_COMMIT)
    await crowded.elect()
    crowded.clock.advance(Rules().expiration_ms / 1000 + 1)
    async with largest_turn(crowded, "records") as largest:
        await crowded.coordinator.expire_ids()
    assert 0 < largest[0] <= PER_TURN
    assert crowded.matching(None, (), -1) == []


async def test_a_death_that_cannot_be_written_leaves_nothing_pending(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-7519: such an id would answer CONCURRENT_TRANSACTIONS for ever."""
    await world.begin("x")
    world.clock.advance(Rules().expiration_ms / 1000)
    with monkeypatch.context() as patched:
        patched.setattr(world.log, "append", lambda *_: 1 / 0)
        await world.coordinator.expire_ids()
    assert (await world.initialize()).producer.epoch == 1
