"""The transaction coordinator's shell: one transaction, refusals, appends that fail."""

import asyncio

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import State
from tests.support.transaction_world import TP, TransactionWorld, every_answer

NONE = ErrorCode.NONE
LOADING, NOT_AVAILABLE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR, CONCURRENT = ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS
COMMIT = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


async def test_a_transaction_from_its_first_request_to_its_end(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0], TP[1])
    assert producer == Producer(1000, 0)
    assert await world.end(producer) is NONE
    await world.settle()
    assert world.states() == COMMIT
    assert sorted((broker, m.partitions) for broker, m in world.links.sent) == [(1, [TP[0]]), (2, [TP[1]])]
    marker = world.links.sent[0][1]
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commits) == (1000, 0, 5, True)
    assert await world.end(producer) is NONE, "a retry"
    assert await world.end(producer, commits=False) is ErrorCode.INVALID_TXN_STATE
    assert (await world.initialize()).producer == Producer(1000, 1)


async def test_an_end_is_answered_before_its_markers(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.links.gate.clear()
    assert await world.end(producer) is NONE
    assert await world.end(producer) is CONCURRENT
    assert (await world.initialize()).error is CONCURRENT
    assert await world.coordinator.add_partitions("x", producer, [TP[1]]) is CONCURRENT
    described = world.coordinator.describe("x")
    assert (described.state, described.partitions) == ("PrepareCommit", {TP[0]})
    world.links.gate.set()
    await world.settle()
    assert world.states() == COMMIT
    assert world.coordinator.describe("x").partitions == frozenset()


async def test_appends_wait_for_the_transactions_own_time_out(world: TransactionWorld) -> None:
    await world.initialize(timeout_ms=4711)
    assert [timeout for _, _, timeout in world.log.batches] == [4711]
    assert [len(records) for _, records, _ in world.log.batches] == [1]


async def test_no_change_before_the_log_has_it(world: TransactionWorld) -> None:
    producer = await world.begin()
    world.log.holds = True
    adding = asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[0]]))
    await world.settle()
    assert not adding.done()
    assert world.coordinator.describe("x").state == "Empty"
    assert await world.end(producer) is CONCURRENT
    world.log.acknowledge()
    assert await adding is NONE
    assert world.coordinator.describe("x").state == "Ongoing"


async def test_a_change_is_made_though_its_client_has_gone(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.log.holds = True
    ending = asyncio.ensure_future(world.end(producer))
    await world.settle()
    ending.cancel()
    await world.settle()
    world.log.holds = False
    world.log.acknowledge()
    await world.settle()
    assert world.states() == COMMIT
    assert world.coordinator.describe("x").state == "CompleteCommit"


async def test_two_at_once_for_a_new_id(world: TransactionWorld) -> None:
    answers = await asyncio.gather(world.initialize(), world.initialize())
    assert sorted(a.error for a in answers) in ([NONE, NONE], [NONE, CONCURRENT])
    epochs = [a.producer.epoch for a in answers if a.error is NONE]
    assert len(set(epochs)) == len(epochs), "no pair is given twice"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_bad_time_outs(world: TransactionWorld, timeout_ms: int) -> None:
    assert (await world.initialize(timeout_ms=timeout_ms)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await world.initialize(timeout_ms=900_000)).error is NONE


async def test_an_empty_id_is_refused_before_anything_else(world: TransactionWorld) -> None:
    refused = ErrorCode.INVALID_REQUEST
    assert (await world.initialize("", timeout_ms=0)).error is refused
    assert await world.coordinator.add_partitions("", Producer(1, 1), [TP[0]]) is refused
    assert world.coordinator.verify_partitions("", Producer(1, 1), [TP[0]]) == {TP[0]: refused}
    assert await world.coordinator.end("", Producer(1, 1), commits=True) is refused
    assert world.coordinator.describe("").error is refused


async def test_without_the_partition_another_is_to_be_asked() -> None:
    world = TransactionWorld()
    assert await every_answer(world) == {NOT_COORDINATOR}
    assert world.matching(None, (), -1) == []


async def test_while_it_is_loaded_all_is_to_be_asked_again(world: TransactionWorld) -> None:
    world.log.replicated = False
    await world.elect(6)
    assert await every_answer(world) == {LOADING}
    assert world.matching(None, (), -1) is None


async def test_an_unknown_id(world: TransactionWorld) -> None:
    mapping, someone = ErrorCode.INVALID_PRODUCER_ID_MAPPING, Producer(1, 1)
    assert await world.coordinator.add_partitions("x", someone, [TP[0]]) is mapping
    assert world.coordinator.verify_partitions("x", someone, [TP[0]]) == {TP[0]: mapping}
    assert await world.end(someone) is mapping
    assert world.coordinator.describe("x").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("appended", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
async def test_what_a_failed_append_answers(world: TransactionWorld, appended: ErrorCode, answer: ErrorCode) -> None:
    producer = await world.begin("x", TP[0])
    world.log.failing = appended
    assert await world.end(producer) is answer
    assert world.coordinator.describe("x").state == "Ongoing"
    world.log.failing = NONE
    assert await world.end(producer) is NONE, "nothing is left pending"


async def test_a_failed_first_initialization_leaves_the_id_unwritten(world: TransactionWorld) -> None:
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await world.initialize()).error is NOT_AVAILABLE
    world.log.failing = NONE
    assert (await world.initialize()).producer == Producer(1000, 0)


async def test_a_failed_fence_fences_and_is_not_raised_again(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert (await world.initialize()).error is NOT_AVAILABLE
    assert await world.end(producer) is ErrorCode.PRODUCER_FENCED
    world.log.failing = NONE
    assert (await world.initialize()).error is CONCURRENT
    await world.settle()
    assert (await world.initialize()).producer == Producer(1000, 2)


async def test_an_append_that_cannot_be_written_leaves_nothing_pending(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await world.begin("x", TP[0])
    with monkeypatch.context() as patched:
        patched.setattr(world.log, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await world.end(producer)
    assert await world.end(producer) is NONE


@pytest.mark.parametrize("commits", [True, False])
async def test_a_clock_that_goes_back_stops_no_change(world: TransactionWorld, commits: bool) -> None:
    producer = await world.begin()
    for partition in TP[:2]:
        world.clock.set_wall(-60.0)
        assert await world.coordinator.add_partitions("x", producer, [partition]) is NONE
    world.clock.set_wall(-60.0)
    assert await world.end(producer, commits=commits) is NONE
    world.clock.set_wall(-60.0)
    await world.settle()
    assert (await world.initialize()).producer == Producer(1000, 1)
    updated = [stored.updated_ms for stored in world.stored() if stored is not None]
    assert updated == sorted(updated, reverse=True)
