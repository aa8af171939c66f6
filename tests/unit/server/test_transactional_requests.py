"""What a leader does in transactions, by real requests: verified Produce, and markers (facts §17.3, §17.5)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.decode import records
from logyard.broker.replication.ports import LinkError
from logyard.broker.server.request import Session
from logyard.broker.transactions.verification import VerificationNotOffered
from tests.support.transactional_broker import GROUP, ID, PID, TOPIC, TransactionalBroker

NONE = ErrorCode.NONE


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TransactionalBroker]:
    async with TransactionalBroker(tmp_path) as broker:
        yield broker


# Produce


async def test_only_the_first_batch_of_a_transaction_is_verified(world: TransactionalBroker) -> None:
    assert await world.produce(0, partitions=[0, 1]) == {0: NONE, 1: NONE}
    assert await world.produce(1, partitions=[0, 1]) == {0: NONE, 1: NONE}
    ((question,),) = world.coordinator.asked
    tps = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    assert (question.transactional_id, question.producer_id, question.epoch) == (ID, PID, 0)
    assert list(question.partitions) == tps
    await world.end(0)
    assert await world.produce(2, partitions=[0, 1]) == {0: NONE, 1: NONE}
    assert list(world.coordinator.asked[1][0].partitions) == tps[:1]


@pytest.mark.parametrize(
    ("told", "version", "heard"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 11, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 11, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_what_the_coordinator_says_is_told_so_that_the_client_goes_on(
    world: TransactionalBroker, told: ErrorCode, version: int, heard: ErrorCode
) -> None:
    world.coordinator.refusing = told
    assert await world.produce(0, partitions=[0, 1], version=version) == {0: heard, 1: heard}
    assert world.log().log_end_offset == 0
    # What is kept for a producer that is not the id's would fill the memory: a client may make up any number of them.
    assert len(world.log().producers.guards) == (told is not ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    world.coordinator.refusing = NONE
    assert await world.produce(0, partitions=[0, 1], version=version) == {0: NONE, 1: NONE}


@pytest.mark.parametrize(
    ("failing", "heard"),
    [
        (LinkError("gone"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (CorruptData("odd"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (ValueError("a bug"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.INVALID_TXN_STATE),
        (VerificationNotOffered("old"), NONE),
    ],
)
async def test_a_coordinator_that_does_not_answer_the_questions(
    world: TransactionalBroker, failing: Exception, heard: ErrorCode
) -> None:
    world.coordinator.failing = failing
    assert await world.produce(0) == {0: heard}


async def test_while_the_coordinator_is_waited_for_only_this_connection_waits(world: TransactionalBroker) -> None:
    world.coordinator.hold()
    first = asyncio.ensure_future(world.produce(0))
    await asyncio.sleep(0.01)
    held = world.session
    assert held.last_append is not None
    assert not held.is_appending, "small requests may be started"
    world.session = Session(2, "PLAINTEXT", "127.0.0.1")
    assert await world.plain() == {0: NONE}
    assert not first.done()
    world.coordinator.release()
    assert await first == {0: NONE}
    assert held.last_append is None


async def test_a_batch_of_a_client_that_has_gone_is_not_appended(world: TransactionalBroker) -> None:
    """KAFKA-17754: by another connection it may have begun the next transaction meanwhile."""
    world.coordinator.hold()
    late = asyncio.ensure_future(world.produce(0))
    await asyncio.sleep(0.01)
    world.session.is_gone = True
    world.coordinator.release()
    with pytest.raises(ApiError):
        await late
    assert world.log().log_end_offset == 0


async def test_an_abort_that_overtakes_the_verification_keeps_the_batch_out(world: TransactionalBroker) -> None:
    """KAFKA-12671."""
    world.coordinator.hold()
    late = asyncio.ensure_future(world.produce(0))
    await asyncio.sleep(0.01)
    assert await world.end(0, committed=False) == {0: NONE}
    world.coordinator.release()
    assert await late == {0: ErrorCode.INVALID_TXN_STATE}
    assert world.log().last_stable_offset == world.log().log_end_offset == 1


async def test_requests_that_are_refused_as_a_whole(world: TransactionalBroker) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await world.produce(0, transactional_id=None, partitions=[0, 1]) == {0: refused, 1: refused}
    frames = [await _batch(world, producer_id=PID, epoch=epoch) for epoch in (0, 1)]
    parts = [{"index": n, "records": frame} for n, frame in enumerate(frames)]
    topics = [{"name": TOPIC, "partition_data": parts}]
    answer = await world("Produce", 9, transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=topics)
    codes = [p.error_code for p in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert world.coordinator.asked == []


async def _batch(world: TransactionalBroker, *, producer_id: int, epoch: int) -> bytes:
    record = batch.Record(0, 1, b"k", b"v")
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    return bytes(batch.build([record], transactional=True, **fields))


async def test_partitions_that_are_not_led_here_are_not_asked_about(world: TransactionalBroker) -> None:
    assert await world.produce(0, partitions=[0, 7]) == {0: NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    ((question,),) = world.coordinator.asked
    assert [tp.partition for tp in question.partitions] == [0]


async def test_verification_is_switched_off_by_a_dynamic_setting(world: TransactionalBroker) -> None:
    world.inside.components.store.logs.verification.is_on = False
    assert await world.produce(0) == {0: NONE}
    assert world.coordinator.asked == []


async def test_a_request_of_many_parts_is_verified_too(tmp_path: Path) -> None:
    async with TransactionalBroker(tmp_path, partitions=120) as world:
        every = range(120)
        assert await world.produce(0, partitions=every) == dict.fromkeys(every, NONE)
        assert sum(len(q.partitions) for asked in world.coordinator.asked for q in asked) == 120
        assert await world.produce(1, partitions=every) == dict.fromkeys(every, NONE)


# WriteTxnMarkers


@pytest.mark.parametrize("version", [0, 1])
async def test_markers_end_transactions(world: TransactionalBroker, version: int) -> None:
    await world.produce(0, partitions=[0, 1])
    log = world.log()
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    assert await world.end(0, 1, coordinator_epoch=3, version=version) == {0: NONE, 1: NONE}
    assert log.last_stable_offset == log.high_watermark == 2
    assert log.producers.entries[PID].coordinator_epoch == 3
    assert log.aborted_transactions(0, 2) == []
    await world.produce(1)
    await world.end(0, committed=False, coordinator_epoch=3, version=version)
    assert [(a.first_offset, a.last_offset) for a in log.aborted_transactions(0, 9)] == [(2, 3)]


async def test_who_may_not_end_a_transaction_any_more(world: TransactionalBroker) -> None:
    await world.end(0, epoch=5, coordinator_epoch=7)
    assert await world.end(0, epoch=4, coordinator_epoch=7) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await world.end(0, epoch=5, coordinator_epoch=6) == {0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert await world.end(0, epoch=5, coordinator_epoch=7) == {0: NONE}, "the same coordinator may repeat itself"
    assert await world.end(0, epoch=6, coordinator_epoch=8) == {0: NONE}


async def test_a_marker_without_a_transaction_is_written_and_is_in_no_index(world: TransactionalBroker) -> None:
    """KAFKA-10702."""
    assert await world.end(0, committed=False, epoch=3) == {0: NONE}
    log = world.log()
    assert (log.log_end_offset, log.producers.entries[PID].epoch, log.aborted_transactions(0, 9)) == (1, 3, [])


async def test_a_fence_keeps_late_batches_out(world: TransactionalBroker) -> None:
    """The markers of a fence carry the raised epoch. KAFKA-19690: the late batch hears of the epoch, nothing else."""
    await world.produce(0)
    assert await world.end(0, committed=False, epoch=1) == {0: NONE}
    world.coordinator.refusing = NONE
    assert await world.produce(1, epoch=0) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await world.produce(0, epoch=1) == {0: NONE}


async def test_every_partition_and_producer_of_the_request_is_answered(world: TransactionalBroker) -> None:
    """A coordinator of Kafka's asks no more for what an answer leaves out."""
    topics = [{"name": TOPIC, "partition_indexes": [0, 9, 0]}, {"name": "nowhere", "partition_indexes": [0]}]
    marker = {"producer_epoch": 0, "transaction_result": True, "topics": topics, "coordinator_epoch": 0}
    markers = [{"producer_id": pid, **marker} for pid in (1, 2, 1)]
    answer = await world("WriteTxnMarkers", markers=markers)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for told in answer.markers:
        found = {(t.name, p.partition_index): p.error_code for t in told.topics for p in t.partitions}
        assert found == {(TOPIC, 0): NONE, (TOPIC, 9): unknown, ("nowhere", 0): unknown}
    assert [told.producer_id for told in answer.markers] == [1, 2]
    assert world.log().log_end_offset == 3
    assert (await world("WriteTxnMarkers", markers=[])).markers == []


async def test_many_markers_leave_others_their_turn(tmp_path: Path) -> None:
    async with TransactionalBroker(tmp_path, partitions=200) as world:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        every = range(200)
        assert await world.end(*every) == dict.fromkeys(every, NONE)
        counting.cancel()
        assert turns >= 4


async def test_what_no_coordinator_expects_is_told_as_a_failed_disk(
    world: TransactionalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error ends the work of Kafka's coordinator on this transaction until its next load."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.log(), "append_as_leader", broken)
    assert await world.end(0, 1) == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: NONE}


async def test_read_committed_fetches_wake_when_the_marker_is_replicated(world: TransactionalBroker) -> None:
    """KAFKA-5376: what was aborted meanwhile is collected as the answer is made."""
    await world.produce(0)
    fetch = asyncio.ensure_future(_fetch(world, 0))
    await asyncio.sleep(0.02)
    assert not fetch.done(), "bytes count up to the last stable offset"
    await world.end(0, committed=False)
    part = await asyncio.wait_for(fetch, 5)
    assert (part.last_stable_offset, part.high_watermark) == (2, 2)
    assert [(a.producer_id, a.first_offset) for a in part.aborted_transactions] == [(PID, 0)]
    assert [r.offset for r in records(memoryview(bytes(part.records)))] == [0]


async def _fetch(world: TransactionalBroker, offset: int) -> Any:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = await world(
        "Fetch",
        11,
        replica_id=-1,
        max_wait_ms=20_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": TOPIC, "partitions": [part]}],
    )
    return answer.responses[0].partitions[0]


# Offsets


async def test_offsets_of_a_transaction_count_when_its_marker_is_answered(world: TransactionalBroker) -> None:
    """KAFKA-17507, KAFKA-15784."""
    number = await world.led_group()
    assert await world.commit_in_transaction(5) is NONE
    assert await world.committed() == (NONE, -1)
    assert await world.committed(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert await world.end(number, topic="__consumer_offsets") == {number: NONE}
    assert await world.committed(stable=True) == (NONE, 5)
    assert await world.commit_in_transaction(9) is NONE
    assert await world.end(number, committed=False, topic="__consumer_offsets") == {number: NONE}
    assert await world.committed(stable=True) == (NONE, 5)
    assert [list(q.partitions) for (q,) in world.coordinator.asked] == [
        [TopicPartition("__consumer_offsets", number)]
    ] * 2


@pytest.mark.parametrize(
    ("told", "version", "heard"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 0, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_what_the_coordinator_says_of_offsets(
    world: TransactionalBroker, told: ErrorCode, version: int, heard: ErrorCode
) -> None:
    number = await world.led_group()
    world.coordinator.refusing = told
    assert await world.commit_in_transaction(5, version=version) is heard
    assert world.log(number, "__consumer_offsets").log_end_offset == 0
    assert await world.committed(stable=True) == (NONE, -1)


async def test_offset_commits_that_are_refused(world: TransactionalBroker) -> None:
    await world.led_group()
    assert await world.commit_in_transaction(5, group="") is ErrorCode.INVALID_GROUP_ID
    assert await world.commit_in_transaction(5, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await world.commit_in_transaction(5, generation_id=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit_in_transaction(5, member_id="x", generation_id=0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit_in_transaction(5, producer_epoch=0) is NONE
    marker_of_the_next_epoch = await world.end(
        world.inside.components.coordinators.groups.partition_for("g"), topic="__consumer_offsets", epoch=1
    )
    assert set(marker_of_the_next_epoch.values()) == {NONE}
    assert await world.commit_in_transaction(5) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_group_that_is_not_coordinated_here(world: TransactionalBroker) -> None:
    groups = world.inside.components.coordinators.groups
    number = await world.led_group()
    groups.on_follower(number)
    for version in (1, 4):
        assert await world.commit_in_transaction(5, version=version) is ErrorCode.NOT_COORDINATOR
    world.coordinator.hold()
    assert world.coordinator.asked == []


async def test_each_partition_has_its_own_answer(world: TransactionalBroker) -> None:
    await world.led_group()
    long = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 5000}
    fine = {"partition_index": 1, "committed_offset": 2, "committed_metadata": None}
    topics = [{"name": TOPIC, "partitions": [long, fine]}, {"name": "nowhere", "partitions": [fine]}]
    fields = {"transactional_id": ID, "group_id": GROUP, "producer_id": PID, "producer_epoch": 0}
    answer = await world("TxnOffsetCommit", 0, **fields, topics=topics)
    found = {(t.name, p.partition_index): ErrorCode(p.error_code) for t in answer.topics for p in t.partitions}
    too_large, unknown = ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {(TOPIC, 0): too_large, (TOPIC, 1): NONE, ("nowhere", 1): unknown}
    assert await world.committed(stable=True, partition=0) == (NONE, -1)
    assert await world.committed(stable=True, partition=1) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
