"""Leaders where clients go by `transaction.version` 2: partitions are added, epochs grow (facts §17.12)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions import verification
from logyard.broker.transactions.verification import VerificationNotOffered
from tests.support.transactional_broker import ID, PID, TOPIC, TransactionalBroker

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
TV2 = 12


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TransactionalBroker]:
    async with TransactionalBroker(tmp_path) as broker:
        yield broker


async def end(world: TransactionalBroker, epoch: int, *, committed: bool = True) -> ErrorCode:
    told = await world.end(0, epoch=epoch, committed=committed, version=2, transaction_version=2)
    return told[0]


@pytest.mark.parametrize("switched_on", [True, False])
async def test_the_first_batch_adds_its_partition(world: TransactionalBroker, switched_on: bool) -> None:
    """Whether or not others are verified: nobody else adds it."""
    world.inside.components.store.logs.verification.is_on = switched_on
    assert await world.produce(0, partitions=[0, 1], version=TV2) == {0: NONE, 1: NONE}
    assert await world.produce(1, partitions=[0, 1], version=TV2) == {0: NONE, 1: NONE}
    ((question,),) = world.coordinator.asked
    assert (question.transactional_id, question.producer_id, question.epoch, question.adds) == (ID, PID, 0, True)
    assert list(question.partitions) == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]


async def test_an_older_request_only_verifies(world: TransactionalBroker) -> None:
    assert await world.produce(0, version=TV2 - 1) == {0: NONE}
    assert [question.adds for (question,) in world.coordinator.asked] == [False]


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (CONCURRENT, CONCURRENT),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_what_the_coordinator_says(world: TransactionalBroker, told: ErrorCode, heard: ErrorCode) -> None:
    world.coordinator.refusing = told
    assert await world.produce(0, version=TV2) == {0: heard}
    assert world.log().log_end_offset == 0
    assert len(world.coordinator.asked) == (1 + len(verification.ADD_AGAIN_S) if told is CONCURRENT else 1)


async def test_a_coordinator_that_cannot_be_asked_gets_no_records(world: TransactionalBroker) -> None:
    """It would never end what it has not heard of; what is only verified is appended, as in Kafka."""
    world.coordinator.failing = VerificationNotOffered("old")
    assert await world.produce(0, version=TV2) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    assert await world.produce(0, version=TV2 - 1) == {0: NONE}


async def test_the_end_of_the_transaction_before_is_waited_for(world: TransactionalBroker) -> None:
    assert await world.produce(0, version=TV2) == {0: NONE}
    world.coordinator.refusing = CONCURRENT
    following = asyncio.ensure_future(world.produce(0, epoch=1, version=TV2))
    await asyncio.sleep(0.03)
    assert not following.done(), "the partition's transaction is of the epoch before"
    assert await end(world, 1) is NONE
    world.coordinator.refusing = NONE
    assert await following == {0: NONE}
    log = world.log()
    assert (log.log_end_offset, log.last_stable_offset) == (3, 2)
    assert await end(world, 2, committed=False) is NONE
    assert [(a.first_offset, a.last_offset) for a in log.aborted_transactions(0, 9)] == [(2, 3)]


async def test_a_late_batch_reaches_no_later_transaction(world: TransactionalBroker) -> None:
    """KAFKA-17754, of a Produce."""
    assert await world.produce(0, version=TV2) == {0: NONE}
    assert await end(world, 1) is NONE
    for epoch, open_epoch in ((0, None), (0, 1)):
        if open_epoch is not None:
            assert await world.produce(0, epoch=open_epoch, version=TV2) == {0: NONE}
        asked = len(world.coordinator.asked)
        late = await world.produce(1, epoch=epoch, version=TV2)
        assert late == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert len(world.coordinator.asked) <= asked + 1


async def test_a_late_marker_ends_no_later_transaction(world: TransactionalBroker) -> None:
    assert await world.produce(0, version=TV2) == {0: NONE}
    assert await end(world, 1) is NONE
    assert await end(world, 1) is NONE, "a repetition, before anything follows"
    assert await world.produce(0, epoch=1, version=TV2) == {0: NONE}
    assert await end(world, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.log().last_stable_offset == 3, "the transaction is open"
    assert await world.end(0, epoch=1) == {0: NONE}, "by an administrator, or of an older client"


async def test_a_late_marker_leaves_the_next_transactions_guard(world: TransactionalBroker) -> None:
    assert await world.produce(0, version=TV2) == {0: NONE}
    world.coordinator.hold()
    following = asyncio.ensure_future(world.produce(0, epoch=1, version=TV2))
    await asyncio.sleep(0.01)
    for _ in range(2):
        assert await end(world, 1) is NONE
    world.coordinator.release()
    assert await following == {0: NONE}


async def test_an_abort_that_overtakes_the_addition_keeps_the_batch_out(world: TransactionalBroker) -> None:
    """KAFKA-12671: a marker of a higher epoch ends the guard."""
    world.coordinator.hold()
    late = asyncio.ensure_future(world.produce(0, version=TV2))
    await asyncio.sleep(0.01)
    assert await end(world, 1, committed=False) is NONE
    world.coordinator.release()
    assert await late == {0: ErrorCode.INVALID_PRODUCER_EPOCH}


async def test_a_transaction_begins_with_sequence_0(world: TransactionalBroker) -> None:
    """Below version 2 a partition that has lost a producer's state takes any sequence."""
    refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await world.produce(3, version=TV2) == {0: refused}
    assert await world.produce(3, version=TV2 - 1, producer_id=PID + 1) == {0: NONE}
    assert await world.produce(0, version=TV2) == {0: NONE}
    assert await end(world, 1) is NONE
    assert await world.produce(1, epoch=1, version=TV2) == {0: refused}


async def test_offsets_add_the_groups_partition(world: TransactionalBroker) -> None:
    number = await world.led_group()
    assert await world.commit_in_transaction(5, version=5) is NONE
    (question,) = world.coordinator.asked[-1]
    assert question.adds
    assert list(question.partitions) == [TopicPartition("__consumer_offsets", number)]
    assert await world.end(number, topic="__consumer_offsets", epoch=1, version=2, transaction_version=2) == {
        number: NONE
    }
    assert await world.committed(stable=True) == (NONE, 5)
    assert await world.commit_in_transaction(9, version=5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await world.commit_in_transaction(9, version=5, producer_epoch=1) is NONE
