"""Markers on their way: who gets them, what is tried again, and what becomes of an answer (facts §17.5)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from logyard.broker import tasks
from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import partition_for
from logyard.broker.transactions import completion
from logyard.broker.transactions.markers import runner
from logyard.broker.transactions.markers.routing import destinations
from logyard.broker.transactions.ports import Marker, MarkerAnswer
from logyard.broker.transactions.transaction import Transaction
from tests.support.transaction_world import LISTENER, TP, TransactionWorld

DONE = [ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
FENCED = [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RETRY_S", 0.002)


async def commit(world: TransactionWorld, name: str, *partitions: int) -> None:
    producer = await world.begin(name, *(TP[n] for n in partitions))
    assert await world.coordinator.end(name, producer, commits=True) is ErrorCode.NONE
    await world.settle()


def state(world: TransactionWorld, name: str = "x") -> str:
    return world.coordinator.describe(name).state


async def ended(world: TransactionWorld, name: str = "x") -> None:
    async with asyncio.timeout(5):
        while state(world, name) != "CompleteCommit":
            await asyncio.sleep(0.002)


async def test_one_request_to_a_broker_has_all_that_waited(world: TransactionWorld) -> None:
    world.links.gate.clear()
    await commit(world, "a", 0)
    for name in ("b", "c", "d"):
        await commit(world, name, 0, 2)
    assert [len(markers) for _, markers in world.links.requests] == [1]
    world.links.gate.set()
    await ended(world, "d")
    assert [len(markers) for _, markers in world.links.requests] == [1, 3]
    assert [m.partitions for m in world.links.requests[1][1]] == [[TP[0], TP[2]]] * 3


async def test_brokers_do_not_wait_for_each_other(world: TransactionWorld) -> None:
    world.links.unreachable = {1}
    await commit(world, "x", 0)
    await commit(world, "y", 1)
    await ended(world, "y")
    assert state(world) == "PrepareCommit"
    world.links.unreachable = set()
    await ended(world)


async def test_a_leader_that_moves_while_its_request_is_out_is_found(world: TransactionWorld) -> None:
    """The metadata came before the request failed, and none come later."""
    world.links.gate.clear()
    world.links.unreachable = {1}
    await commit(world, "x", 0)
    world.lead(2, 2, 2, 2)
    world.links.gate.set()
    await ended(world)
    assert [broker for broker, _ in world.links.sent] == [2]


@pytest.mark.parametrize("code", DONE)
async def test_what_counts_as_written(world: TransactionWorld, code: ErrorCode) -> None:
    world.links.answers[TP[0]] = code
    await commit(world, "x", 0)
    await ended(world)
    assert len(world.links.requests) == 1


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in DONE + FENCED] + [None])
async def test_anything_else_is_asked_again_and_holds_nobody_up(
    world: TransactionWorld, code: ErrorCode | None
) -> None:
    world.links.gate.clear()
    await commit(world, "first", 0)
    world.links.answers[TP[0]] = code
    await commit(world, "x", 0, 2)
    await commit(world, "y", 2)
    world.links.gate.set()
    await ended(world, "y")
    assert (state(world), world.coordinator.describe("x").partitions) == ("PrepareCommit", {TP[0]})
    del world.links.answers[TP[0]]
    await ended(world)
    again = [m.partitions for _, markers in world.links.requests[2:] for m in markers]
    assert again == [[TP[0]]] * len(again), "what is written is not sent again"


@pytest.mark.parametrize("code", FENCED)
async def test_a_fenced_one_rests_until_the_next_load(world: TransactionWorld, code: ErrorCode) -> None:
    world.links.answers[TP[0]] = code
    await commit(world, "x", 0)
    await asyncio.sleep(0.02)
    assert (state(world), len(world.links.requests)) == ("PrepareCommit", 1)
    world.links.answers.clear()
    await world.elect(6)
    await ended(world)
    assert [m.coordinator_epoch for _, m in world.links.sent] == [5, 6]


async def test_an_answer_without_the_producer_is_asked_again(world: TransactionWorld) -> None:
    with mock.patch.object(world.links, "write_markers", mock.AsyncMock(return_value={})) as asked:
        await commit(world, "x", 0)
        await asyncio.sleep(0.02)
        assert asked.await_count > 1
    await ended(world)


async def test_a_leader_that_moved_is_looked_up(world: TransactionWorld) -> None:
    world.links.unreachable = {1}
    await commit(world, "x", 0)
    world.lead(2, 2, 2, 2)
    await ended(world)
    assert [broker for broker, _ in world.links.sent] == [2]


@pytest.mark.parametrize("leader", [-1, 9])
async def test_without_a_living_leader_markers_wait(world: TransactionWorld, leader: int) -> None:
    world.lead(leader, 2, 1, 2)
    await commit(world, "x", 0, 1)
    await asyncio.sleep(0.01)
    assert world.coordinator.describe("x").partitions == {TP[0]}
    world.lead(1, 2, 1, 2)
    await ended(world)
    assert [(broker, m.partitions) for broker, m in world.links.sent] == [(2, [TP[1]]), (1, [TP[0]])]


@pytest.mark.parametrize("deleted_first", [True, False])
async def test_deleted_partitions_need_no_marker(world: TransactionWorld, deleted_first: bool) -> None:
    producer = await world.begin("x", TP[0], TP[1])
    world.links.unreachable = {1}
    if deleted_first:
        world.delete(0)
    assert await world.coordinator.end("x", producer, commits=True) is ErrorCode.NONE
    await world.settle()
    if not deleted_first:
        world.delete(0)
    await ended(world)
    assert [m.partitions for _, m in world.links.sent] == [[TP[1]]]


async def test_a_transaction_of_deleted_partitions_ends_at_once(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.delete(0)
    assert await world.coordinator.end("x", producer, commits=True) is ErrorCode.NONE
    await world.settle()
    assert state(world) == "CompleteCommit"


def test_nothing_counts_as_deleted_before_metadata_have_come() -> None:
    assert destinations(MetadataCache(), LISTENER, TP) == {None: TP}


async def test_a_partition_that_metadata_do_not_have_yet_gets_its_marker_later(world: TransactionWorld) -> None:
    """A broker that has just started hears of brokers first, then it is elected, then it hears of partitions."""
    producer = await world.begin("x", TP[0], TP[1])
    world.lead(-2, -2, 1, 2)
    assert await world.coordinator.end("x", producer, commits=True) is ErrorCode.NONE
    await world.settle()
    assert state(world) == "PrepareCommit"
    assert world.links.sent == []
    world.lead(1, 2, 1, 2)
    await ended(world)
    assert sorted(tp for _, m in world.links.sent for tp in m.partitions) == [TP[0], TP[1]]


async def test_markers_of_an_earlier_election_are_not_sent(world: TransactionWorld) -> None:
    world.links.unreachable = {1, 2}
    await commit(world, "x", 0, 1)
    for partition in range(3):
        world.coordinator.on_follower(partition)
    world.links.unreachable = set()
    await asyncio.sleep(0.02)
    assert world.links.sent == []
    await world.elect(9)
    await ended(world)
    assert sorted((broker, m.coordinator_epoch) for broker, m in world.links.sent) == [(1, 9), (2, 9)]


async def test_an_answer_for_an_earlier_election_changes_nothing(world: TransactionWorld) -> None:
    world.links.gate.clear()
    await commit(world, "x", 0)
    world.lead(-1, 2, 1, 2)
    await world.elect(6)
    world.links.gate.set()
    await asyncio.sleep(0.01)
    assert world.coordinator.describe("x").partitions == {TP[0]}, "the new election's own marker is still to come"
    world.lead(1, 2, 1, 2)
    await ended(world)
    await world.settle()
    assert [stored for stored in world.states() if stored == 4] == [4], "completed once"


async def test_a_failure_of_ours_loses_no_marker(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PAUSE_S", 0.001)
    failed: list[int] = []
    write = world.links.write_markers

    async def failing_once(broker_id: int, markers: Sequence[Marker]) -> Mapping[int, MarkerAnswer]:
        if not failed:
            failed.append(broker_id)
            raise ValueError("planted")
        return await write(broker_id, markers)

    monkeypatch.setattr(world.links, "write_markers", failing_once)
    await commit(world, "x", 0)
    await ended(world)


@pytest.mark.parametrize("failing", ["verdict", "destinations"])
async def test_a_failure_with_one_transaction_holds_up_no_other(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Those behind it in the same answer or portion, and itself."""
    before = tasks.failures.total()
    world.links.unreachable = {1}
    for name in ("x", "y", "z"):
        await commit(world, name, 0)
    work, calls = getattr(runner, failing), []

    def failing_once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise ValueError("planted")
        return work(*args)

    monkeypatch.setattr(runner, failing, failing_once)
    world.links.unreachable = set()
    for name in ("x", "y", "z"):
        await ended(world, name)
    assert tasks.failures.total() == before + 1


async def test_one_that_cannot_be_completed_after_a_load_holds_up_no_other(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of one partition of the state log.
    names = [name for name in map(str, range(100)) if partition_for(name, 3) == 0][:3]
    world.links.unreachable = {1}
    for name in names:
        await commit(world, name, 0)
    begin, failed = completion.begin_completion, tasks.failures.total()

    def failing_for_one(transaction: Transaction, now: Now) -> Any:
        if transaction.transactional_id == names[0]:
            raise ValueError("planted")
        return begin(transaction, now)

    monkeypatch.setattr(completion, "begin_completion", failing_for_one)
    world.links.unreachable = set()
    await world.elect(6)
    for name in names[1:]:
        await ended(world, name)
    assert (state(world, names[0]), tasks.failures.total()) == ("PrepareCommit", failed + 1)
    monkeypatch.undo()
    await world.elect(7)
    await ended(world, names[0])


async def test_one_producer_has_one_place_in_a_request(world: TransactionWorld) -> None:
    """A new election finds the same transaction while the old one's marker is queued, which is not sent any more."""
    world.links.gate.clear()
    await commit(world, "first", 0)
    await commit(world, "x", 0)
    await world.elect(6)
    world.links.gate.set()
    await ended(world)
    for _, markers in world.links.requests:
        ids = [m.producer_id for m in markers]
        assert len(set(ids)) == len(ids)
    await ended(world, "first")
    sent = [m.producer_id for _, markers in world.links.requests for m in markers]
    assert sorted(map(sent.count, set(sent))) == [1, 2], "of the first its marker was under way"
