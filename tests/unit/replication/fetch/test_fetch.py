"""Fetch: what consumers and followers see, the checks, and waiting (facts §10, §15, §22)."""

import uuid
from typing import Any

import pytest

from logyard.broker.errors import CorruptData, ErrorCode, StorageError
from logyard.broker.log import fetch as log_fetch
from logyard.broker.log import read_window
from logyard.broker.log.disk.memory import MemoryFile
from logyard.broker.log.producers import Origin
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment_list import SegmentList
from logyard.broker.metadata.updates import PartitionUpdate
from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import ABORT
from logyard.broker.replication.events import FetchParams, Isolation, PartitionFetch
from tests.support.disk_logs import batch, parse
from tests.support.logs import NOW, marker, transactional
from tests.support.replica_world import T0, T1, Pending, World, fetch_once, follower_fetch, produce

MB = 10**6


def ask(offset: int = 0, tp: TopicPartition = T0, max_bytes: int = MB, **fields: Any) -> Any:
    return PartitionFetch(tp, offset, max_bytes, **fields)


def fetch(world: World, *asks: Any, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = MB, **fields: Any) -> Any:
    return fetch_once(world.replicas, FetchParams(wait_ms, min_bytes, max_bytes, **fields), list(asks))


def offsets(result: Any) -> Any:
    return [b.base for b in parse(result.records)]


@pytest.fixture
def world() -> World:
    """Broker 1 leads flights-0 and flights-1 alone in sync; broker 2 is a replica too."""
    world = World()
    world.tell(world.order(replicas=(1, 2), isr=(1,)), world.order(T1, replicas=(1, 2), isr=(1,)))
    return world


def test_a_consumer_sees_what_is_committed(world: World) -> None:
    world.tell(world.order(leader_epoch=1, isr=(1, 2), replicas=(1, 2), partition_epoch=1))
    produce(world, count=2)
    assert fetch(world, ask())[0].records == b""
    follower_fetch(world, 2, 2)
    result = fetch(world, ask())[0]
    assert (offsets(result), result.high_watermark, result.log_start_offset) == ([0], 2, 0)


def test_a_follower_and_the_debugging_consumer_see_everything(world: World) -> None:
    world.tell(world.order(leader_epoch=1, isr=(1, 2), replicas=(1, 2), partition_epoch=1))
    produce(world)
    assert offsets(follower_fetch(world, 2, 0)[0]) == [0]
    assert offsets(fetch(world, ask(), replica_id=-2)[0]) == [0]


def test_read_committed_ends_at_the_last_stable_offset_and_names_aborted_transactions(world: World) -> None:
    for data, origin in (
        (batch(timestamp=NOW), Origin.CLIENT),
        (transactional(9, 0), Origin.CLIENT),
        (marker(ABORT, producer_id=9), Origin.COORDINATOR),
        (transactional(8, 0), Origin.CLIENT),
    ):
        world.log(T0).append_as_leader(data, 0, now_ms=NOW, origin=origin)
    produce(world)
    result = fetch(world, ask(), isolation=Isolation.READ_COMMITTED)[0]
    assert (offsets(result), result.last_stable_offset, result.aborted) == ([0, 1, 2], 3, [(9, 1)])
    assert fetch(world, ask())[0].aborted is None


def abort_many(world: World, count: int) -> None:
    """Transactions of one record, each of them aborted, at the end of the log."""
    log = world.log(T0)
    for number in range(count):
        log.append_as_leader(transactional(9, number), 0, now_ms=NOW)
        log.append_as_leader(marker(ABORT, producer_id=9), 0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("cold", [False, True])
def test_an_answer_names_aborted_transactions_no_further_than_its_records_reach(world: World, cold: bool) -> None:
    """Else each answer of a topic with many names all that follow: a quadratic list for who reads it."""
    abort_many(world, 500)
    world.logs.disk.cold = cold
    result: Any = fetch(world, ask(10, max_bytes=600), isolation=Isolation.READ_COMMITTED)
    if cold:
        for work, finished in list(world.blocked):
            finished.set_result(work())
        result = result.result()
    (told,) = result
    read = offsets(told)
    assert read[0] == 10
    first, *others = told.aborted
    assert first == (9, 10)
    assert {(9, offset) for offset in read[::2]} <= {first, *others}
    assert len(told.aborted) < 80, "as far as the index goes in steps of 4096 bytes"


@pytest.mark.parametrize("late", [False, True])
def test_records_whose_aborted_transactions_are_gone_are_not_shown(world: World, late: bool) -> None:
    """A log that is cut while a thread reads takes the names along, and who reads again gets both."""
    abort_many(world, 5)
    world.logs.disk.cold = True
    waiting: Any = fetch(world, ask(), isolation=Isolation.READ_COMMITTED)
    ((work, finished),) = world.blocked
    records = work() if late else None
    world.log(T0).segments.cuts += 1
    finished.set_result(records if late else work())
    (told,) = waiting.result()
    assert (told.error, bytes(told.records)) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("cold", [False, True])
def test_records_whose_aborted_transactions_cannot_be_told_are_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    """They are refused, and the other partitions of the request are not."""
    abort_many(world, 2)
    world.log(T1).append_as_leader(batch(timestamp=NOW), 0, now_ms=NOW)
    world.log(T1).set_high_watermark(1)
    world.logs.disk.cold = cold
    damaged, told_of = world.log(T0).segments, SegmentList.aborted_between

    def between(segments: SegmentList, start: int, end: int) -> list[AbortedTxn]:
        if segments is damaged:
            raise StorageError("too many open files")
        return told_of(segments, start, end)

    monkeypatch.setattr(SegmentList, "aborted_between", between)
    told: Any = fetch(world, ask(), ask(tp=T1), isolation=Isolation.READ_COMMITTED)
    if cold:
        for work, finished in list(world.blocked):
            finished.set_result(work())
        told = told.result()
    assert [(one.error, bool(len(one.records))) for one in told] == [
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.NONE, True),
    ]


@pytest.mark.parametrize("offset", [-1, 3, 99])
def test_out_of_range(world: World, offset: int) -> None:
    produce(world, count=2)
    assert fetch(world, ask(offset))[0].error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_between_the_watermark_and_the_end_is_not_out_of_range(world: World) -> None:
    world.tell(world.order(leader_epoch=1, isr=(1, 2), replicas=(1, 2), partition_epoch=1))
    produce(world, count=2)
    assert fetch(world, ask(2))[0].error == ErrorCode.NONE


def test_leader_epochs(world: World) -> None:
    world.tell(world.order(leader_epoch=5, replicas=(1, 2), isr=(1,)))
    errors = [fetch(world, ask(leader_epoch=e))[0].error for e in (4, 5, 6, -1)]
    assert errors == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NONE,
    ]


def test_followers_serve_new_consumers_only_and_never_followers(world: World) -> None:
    world.tell(world.order(leader=2, leader_epoch=3, replicas=(1, 2)))
    refused = fetch(world, ask())[0]
    assert (refused.error, refused.leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 3))
    assert fetch(world, ask(), only_leader=False)[0].error == ErrorCode.NONE


def test_unknown_elsewhere_and_offline(world: World) -> None:
    world.hear([1, 2], [PartitionUpdate(TopicPartition("far", 0), 2, 1, (2,), (2,))])
    world.replicas.requests.take_offline([T1])
    errors = [fetch(world, ask(tp=TopicPartition(*tp)))[0].error for tp in [("none", 0), ("far", 0), T1]]
    assert errors == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]


def test_another_topic_of_the_same_name(world: World) -> None:
    mine, other = uuid.uuid4(), uuid.uuid4()
    world.log(T0).topic_id = mine
    assert fetch(world, ask(topic_id=other))[0].error == ErrorCode.INCONSISTENT_TOPIC_ID
    assert fetch(world, ask(topic_id=mine))[0].error == ErrorCode.NONE


def test_a_follower_that_is_not_assigned(world: World) -> None:
    assert follower_fetch(world, 3, 0)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower_fetch(world, 3, 0, leader_epoch=0)[0].error == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_budget_is_shared_but_the_first_batch_always_comes(world: World) -> None:
    for tp in (T0, T1):
        produce(world, tp=tp)
        produce(world, tp=tp)
    size = len(batch())
    one, two = fetch(world, ask(), ask(tp=T1), max_bytes=size * 3)
    assert (offsets(one), offsets(two)) == ([0, 1], [0])
    one, two = fetch(world, ask(), ask(tp=T1), max_bytes=1)
    assert (offsets(one), offsets(two)) == ([0], [])
    one, two = fetch(world, ask(), ask(tp=T1), max_bytes=1, min_one=False)
    assert (offsets(one), offsets(two)) == ([], [])
    assert offsets(fetch(world, ask(max_bytes=size))[0]) == [0]


async def test_waiting_ends_with_data(world: World) -> None:
    pending = fetch(world, ask(), wait_ms=500)
    assert isinstance(pending, Pending)
    assert not pending.done()
    produce(world)
    assert offsets(pending.result()[0]) == [0]
    assert (await world.replicas.gauges())["delayed_fetches"] == 0


def test_waiting_ends_with_time(world: World) -> None:
    pending = fetch(world, ask(), wait_ms=500)
    world.advance(500)
    assert pending.result()[0].records == b""


def test_waiting_for_many_bytes_counts_all_partitions(world: World) -> None:
    size = len(batch())
    pending = fetch(world, ask(), ask(tp=T1), wait_ms=500, min_bytes=2 * size)
    produce(world)
    assert not pending.done()
    produce(world, tp=T1)
    assert [offsets(r) for r in pending.result()] == [[0], [0]]


def test_a_consumer_waits_for_the_watermark_not_for_the_append(world: World) -> None:
    world.tell(world.order(leader_epoch=1, isr=(1, 2), replicas=(1, 2), partition_epoch=1))
    pending = fetch(world, ask(), wait_ms=500)
    produce(world)
    assert not pending.done()
    follower_fetch(world, 2, 1)
    assert offsets(pending.result()[0]) == [0]


def test_waiting_ends_with_leadership(world: World) -> None:
    pending = fetch(world, ask(), wait_ms=500)
    world.tell(world.order(leader=2, leader_epoch=1, replicas=(1, 2)))
    assert pending.result()[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_error_anywhere_ends_the_waiting_at_once(world: World) -> None:
    results = fetch(world, ask(), ask(tp=TopicPartition("none", 0)), wait_ms=500)
    assert [r.error for r in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("in_files", [False, True])
def test_cold_data_is_read_elsewhere_and_answered_later(world: World, in_files: bool) -> None:
    produce(world)
    world.logs.disk.cold = True
    pending = fetch(world, ask(), in_files=in_files)
    assert not pending.done()
    work, reading = world.blocked.pop()
    reading.set_result(work())
    assert offsets(pending.result()[0]) == [0]


def test_what_is_dropped_before_it_is_sent_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFile, "warm", lambda *_: True)
    for module in (log_fetch, read_window):
        monkeypatch.setattr(module, "FILE_BYTES_MIN", 1)  # few bytes are read at once
    produce(world)
    produce(world, tp=T1)
    world.logs.disk.cold = True
    pending = fetch(world, ask(), ask(tp=T1), in_files=True)
    for _ in range(2):
        work, warming = world.blocked.pop()
        warming.set_result(work())
    assert not pending.done()
    assert len(world.blocked) == 2
    for work, reading in world.blocked:
        reading.set_result(work())
    assert [offsets(result) for result in pending.result()] == [[0], [0]]


@pytest.mark.parametrize("in_files", [False, True])
def test_cold_data_of_a_past_epoch_is_thrown_away(world: World, in_files: bool) -> None:
    produce(world)
    world.logs.disk.cold = True
    pending = fetch(world, ask(), in_files=in_files)
    world.tell(world.order(leader=2, leader_epoch=1, replicas=(1, 2)))
    work, reading = world.blocked.pop()
    reading.set_result(work())
    result = pending.result()[0]
    assert (result.records, result.error) == (b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_diverging_epoch_and_no_progress_noted(world: World) -> None:
    """A leader of epochs 0 [0,2) and 3 [2,…): what a follower is told about each last fetched epoch."""
    produce(world, count=2)
    world.tell(world.order(leader_epoch=3, replicas=(1, 2), isr=(1,)))
    produce(world, count=2)
    partition = world.partition(T0)

    def told(offset: int, epoch: int) -> Any:
        result = follower_fetch(world, 2, offset, last_fetched_epoch=epoch)[0]
        return result.error if result.error else result.diverging

    assert told(3, 0) == (0, 2)
    assert told(5, 3) == (3, 4)
    assert partition.remotes[2].log_end_offset == -1
    assert told(3, 2) == (0, 2)
    assert told(2, 0) is None
    assert told(4, 0) == (0, 2), "at the log's end, but with another epoch"
    assert told(4, 3) is None
    assert told(4, 4) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.remotes[2].log_end_offset == 4


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    world = World(rack_aware_reads=True)
    world.tell(world.order(replicas=(1, 2, 3), isr=(1,)))
    produce(world)
    follower_fetch(world, 2, 1)
    asked: dict[str, Any] = {"rack": "rack2", "listener": "PLAINTEXT", "only_leader": False}
    result = fetch(world, ask(), **asked)[0]
    assert (result.preferred_read_replica, result.records) == (2, b"")
    assert fetch(world, ask(), **{**asked, "rack": "rack3"})[0].preferred_read_replica == -1
    assert offsets(fetch(world, ask(), **{**asked, "rack": "rack1"})[0]) == [0]


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (StorageError("disk"), ErrorCode.KAFKA_STORAGE_ERROR),
        (FileNotFoundError(), ErrorCode.KAFKA_STORAGE_ERROR),
        (CorruptData("header"), ErrorCode.CORRUPT_MESSAGE),
        (KeyError(1), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_one_log_is_answered_for_it_alone(world: World, trouble: Any, code: ErrorCode) -> None:
    produce(world)
    produce(world, tp=T1)
    world.log(T0).unreadable = trouble
    broken, sound = fetch(world, ask(), ask(tp=T1), replica_id=2)
    assert (broken.error, offsets(sound)) == (code, [0])
    waiting = fetch(world, ask(1), ask(1, T1), wait_ms=500, min_bytes=2)
    assert produce(world)[0].error is ErrorCode.NONE, "who writes does not suffer for who reads"
    assert waiting.result()[0].error is code


@pytest.mark.parametrize("in_files", [False, True])
def test_whatever_a_thread_raises_answers_the_fetch(world: World, in_files: bool) -> None:
    produce(world)
    produce(world, tp=T1)
    world.logs.disk.cold = True
    pending = fetch(world, ask(), ask(tp=T1), in_files=in_files)
    (_, first), (work, second) = world.blocked
    first.fail(KeyError(1))
    second.set_result(work())
    broken, sound = pending.result()
    assert (broken.error, broken.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    assert offsets(sound) == [0]
