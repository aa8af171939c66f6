"""The fetch loop: its requests, its reaction to every answer, and its retries."""

import asyncio
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FollowerFetchAnswer
from logyard.broker.replication.follower.session import EPOCH_MAX, FollowerSession, next_epoch
from logyard.broker.replication.ports import LinkError
from tests.support.disk_logs import stored
from tests.support.followed import Followed, Leader, answer, run
from tests.support.replica_world import T0, T1
from tests.support.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_records_watermark_and_start_are_taken_over(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [
            [answer(records=stored(0, 0) + stored(1, 0), hw=1)],
            [answer(records=stored(2, 0), hw=9, start=1)],
        ]
        f.follow()
        await asyncio.sleep(0.01)
        log = f.log()
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 3, 1)
        assert [r.session_epoch for r in f.leader.asked] == [0, 1, 2]
        assert [[(a.offset, a.last_fetched_epoch) for a in r.partitions] for r in f.leader.asked] == [
            [(0, -1)],
            [(2, 0)],
            [(3, 0)],
        ]
        assert f.leader.asked[0].replica_epoch == 55
        assert f.progressed == [T0, T0]

    run(loop, story)


def test_idle_partitions_are_not_sent_again(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.follow()
        f.follow(T1)
        await asyncio.sleep(0.7)
        f.leader.script = [[answer(T1, stored(0, 0))]]
        await asyncio.sleep(1)
        asked = [[a.tp for a in r.partitions] for r in f.leader.asked]
        assert asked[0] == [T0, T1]
        assert [tp for request in asked[1:] for tp in request] == [T1]

    run(loop, story)


def test_a_divergence_is_cut_off(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.follow(leader_epoch=0)
        await asyncio.sleep(0)
        log = f.log()
        log.append_as_follower(memoryview(stored(0, 0) + stored(1, 1) + stored(2, 1)))
        f.leader.script = [[], [answer(diverging=(1, 2))]]
        f.follow(leader_epoch=3)
        await asyncio.sleep(1)
        assert log.log_end_offset == 2
        assert (f.leader.asked[-1].session_epoch, f.log().epochs.latest) != (0, None)
        offsets = [(a.offset, a.last_fetched_epoch, a.leader_epoch) for r in f.leader.asked for a in r.partitions]
        assert offsets[-2:] == [(3, 1, 3), (2, 1, 3)]

    run(loop, story)


def test_an_epoch_without_records_is_cut_off_too(loop: VirtualLoop) -> None:
    """This broker led epoch 4 without a record; the leader of epoch 5 never heard of it."""

    async def story(f: Followed) -> None:
        f.world.tell(f.world.order(leader=1, leader_epoch=4, isr=(1,)))
        f.leader.script = [[answer(diverging=(3, 0))], [answer(records=stored(0, 5), hw=0)]]
        f.follow(leader_epoch=5)
        await asyncio.sleep(0.1)
        assert f.log().log_end_offset == 1
        assert f.log().epochs.entries == ((5, 0),)
        assert f.leader.asked[1].partitions[0].last_fetched_epoch == -1

    run(loop, story)


def test_a_log_without_epochs_starts_at_its_watermark(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.world.tell(f.world.order(leader=9, replicas=(1, 9)))
        log = f.log()
        log.append_as_follower(memoryview(stored(0, 0) + stored(1, 0)))
        log.epochs.clear()
        log.set_high_watermark(1)
        f.world.tell(f.world.order(leader=2))
        await asyncio.sleep(0.1)
        assert (log.log_end_offset, f.leader.asked[0].partitions[0].offset) == (1, 1)

    run(loop, story)


@pytest.mark.parametrize("error", [103, 56, 2, -1])
def test_other_errors_back_off(loop: VirtualLoop, error: ErrorCode) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[answer(error=ErrorCode(error))]]
        f.follow()
        f.follow(T1)
        await asyncio.sleep(1.9)
        spans = [(t, [a.tp for a in r.partitions]) for t, r in zip(f.leader.times, f.leader.asked, strict=True)]
        again = [t for t, tps in spans[1:] if T0 in tps]
        assert again, spans
        assert again[0] >= 1.0
        assert f.leader.asked[1].forgotten == [(T0, uuid.UUID(int=0))]

    run(loop, story)


@pytest.mark.parametrize("error", [3, 6, 75, 100])
def test_a_leader_that_does_not_know_yet_is_asked_again_soon_then_less_often(
    loop: VirtualLoop, error: ErrorCode
) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[answer(error=ErrorCode(error))] for _ in range(9)]
        f.follow()
        await asyncio.sleep(5)
        times = f.leader.times
        pauses = [round(b - a, 2) for a, b in itertools.pairwise(times)]
        assert pauses[:8] == [0.03, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

    run(loop, story)


def test_fenced_waits_for_the_controller(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[answer(error=ErrorCode.FENCED_LEADER_EPOCH)]]
        f.follow()
        f.follow(T1)
        await asyncio.sleep(5)
        assert list(f.fetchers.failed) == [T0]
        assert all(a.tp == T1 for r in f.leader.asked[1:] for a in r.partitions)
        f.follow(leader_epoch=1)
        await asyncio.sleep(1)
        assert not f.fetchers.failed
        assert f.leader.asked[-2].partitions[0].tp == T0 or f.leader.asked[-1].partitions[0].tp == T0

    run(loop, story)


@pytest.mark.parametrize("trouble", [StorageError("disk"), CorruptData("header"), FileNotFoundError(), KeyError(1)])
def test_an_error_of_a_log_affects_only_its_partition_and_is_tried_again(loop: VirtualLoop, trouble: Any) -> None:
    def first_record(request: Any) -> Any:
        return [answer(records=stored(0, 0)) for ask in request.partitions if (ask.tp, ask.offset) == (T0, 0)]

    async def story(f: Followed) -> None:
        f.follow()
        f.follow(T1)
        f.log().refuse = trouble
        f.leader.script = [[answer(records=stored(0, 0)), answer(T1, stored(0, 0))]]
        await asyncio.sleep(0.1)
        assert list(f.fetchers.failed) == [T0]
        assert f.log(T1).log_end_offset == 1
        assert (await f.world.replicas.gauges())["failed_partitions_count"] == 1
        f.leader.script = [[answer(T1, stored(1, 0))]]
        f.leader.answering = first_record
        await asyncio.sleep(1.5)
        assert (f.log().log_end_offset, f.log(T1).log_end_offset) == (0, 2)
        f.log().refuse = None
        await asyncio.sleep(3)
        assert f.log().log_end_offset == 1
        assert (await f.world.replicas.gauges())["failed_partitions_count"] == 0

    with structlog.testing.capture_logs() as said:
        run(loop, story)
    lines = [line for line in said if line["event"] == "cannot be followed now"]
    assert [line["again_in_s"] for line in lines][:2] == [1.0, 2.0]
    assert all(line["error"] and line["partition"] == str(T0) for line in lines)
    assert said[-1]["event"] == "is followed again"


def test_a_partition_with_other_orders_is_not_tried_again(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.follow()
        f.log().refuse = StorageError("disk")
        f.leader.script = [[answer(records=stored(0, 0))]]
        await asyncio.sleep(0.1)
        f.world.tell(f.world.order(leader=1, leader_epoch=1, isr=(1,)))
        await asyncio.sleep(0)
        asked = len(f.leader.asked)
        await asyncio.sleep(100)
        assert (f.fetchers.failed, len(f.leader.asked)) == ({}, asked)

    run(loop, story)


def test_damage_at_the_leader_is_logged_once(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.follow()
        f.log().refuse = ApiError(ErrorCode.CORRUPT_MESSAGE, "batch at 0: its CRC is wrong")
        f.leader.script = [[answer(records=stored(0, 0))] for _ in range(5)]
        await asyncio.sleep(10)
        assert not f.fetchers.failed

    with structlog.testing.capture_logs() as said:
        run(loop, story)
    assert [(line["event"], line["offset"]) for line in said] == [("the leader's records cannot be appended", 0)]


def test_a_damaged_batch_is_asked_for_again(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.follow()
        f.log().refuse = ApiError(ErrorCode.CORRUPT_MESSAGE)
        f.leader.script = [[answer(records=stored(0, 0))]]
        await asyncio.sleep(0.1)
        f.log().refuse = None
        f.leader.script = [[answer(records=stored(0, 0))]]
        await asyncio.sleep(3)
        assert f.log().log_end_offset == 1

    run(loop, story)


def test_a_broken_link_is_tried_again_from_scratch(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[], ConnectionResetError(), LinkError("down"), TimeoutError(), []]
        f.follow()
        await asyncio.sleep(4)
        assert [(r.session_id, r.session_epoch) for r in f.leader.asked[:6]] == [
            (0, 0),
            (7, 1),
            (7, 0),
            (7, 0),
            (7, 0),
            (7, 1),
        ]
        assert f.leader.times[2] - f.leader.times[1] >= 1.0

    run(loop, story)


def test_a_bug_does_not_end_replication(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [ZeroDivisionError(), [answer(records=stored(0, 0))]]
        f.follow()
        await asyncio.sleep(2)
        assert f.log().log_end_offset == 1

    with structlog.testing.capture_logs() as said:
        run(loop, story)
    assert [(line["event"], line["log_level"]) for line in said] == [("fetching failed", "error")]


@pytest.mark.parametrize(
    ("error", "next_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_lost_session_is_opened_anew(loop: VirtualLoop, error: ErrorCode, next_id: int) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[], FollowerFetchAnswer(error, 0, ())]
        f.follow()
        await asyncio.sleep(0.1)
        third = f.leader.asked[2]
        assert (third.session_id, third.session_epoch, [a.tp for a in third.partitions]) == (next_id, 0, [T0])

    run(loop, story)


def test_a_leader_that_refuses_is_not_asked_again_at_once(loop: VirtualLoop) -> None:
    """For a right that this broker does not have, say: it was asked as fast as it answered."""

    async def story(f: Followed) -> None:
        f.leader.script = [FollowerFetchAnswer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0, ()) for _ in range(9)]
        f.follow()
        await asyncio.sleep(3.5)
        assert [round(t) for t in f.leader.times] == [0, 1, 2, 3]

    run(loop, story)


def test_an_answer_that_comes_too_late_is_dropped(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.script = [[answer(records=stored(0, 0))]]
        f.follow()
        await asyncio.sleep(0.0005)
        f.world.tell(f.world.order(leader=1, leader_epoch=1))
        await asyncio.sleep(0.1)
        assert f.log().log_end_offset == 0

    run(loop, story)


def test_a_partition_that_moves_is_asked_of_its_new_leader(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        links = f.leaders = {2: Leader(loop), 3: Leader(loop)}
        f.follow()
        f.follow(T1)
        await asyncio.sleep(0.1)
        f.world.tell(f.world.order(leader=3, leader_epoch=1))
        await asyncio.sleep(1)
        assert [a.tp for a in links[3].asked[0].partitions] == [T0]
        assert links[2].asked[1].forgotten == [(T0, uuid.UUID(int=0))]

    run(loop, story)


def test_topic_ids_decide_the_kind_of_session(loop: VirtualLoop) -> None:
    mine = uuid.UUID(int=3)

    async def story(f: Followed) -> None:
        f.follow(topic_ids={"flights": mine})
        await asyncio.sleep(0.7)
        assert f.leader.asked[0].uses_topic_ids
        other = TopicPartition("older", 0)
        f.follow(other)
        await asyncio.sleep(1)
        mixed = next(r for r in f.leader.asked if any(a.tp == other for a in r.partitions))
        assert (mixed.uses_topic_ids, mixed.session_epoch, len(mixed.partitions)) == (False, 0, 2)
        f.follow(other, topic_ids={"older": uuid.UUID(int=4)})
        await asyncio.sleep(1)
        last = next(r for r in reversed(f.leader.asked) if r.session_epoch == 0)
        assert (last.uses_topic_ids, len(last.partitions)) == (True, 2)

    run(loop, story)


def test_old_protocols_ask_for_epochs_first(loop: VirtualLoop) -> None:
    """A follower with epochs 1 [0,2) and 3 [2,4) learns step by step where the leader left it."""

    async def story(f: Followed) -> None:
        f.world.tell(f.world.order(leader=9, replicas=(1, 9)))
        log = f.log()
        log.append_as_follower(memoryview(b"".join(stored(n, 1 if n < 2 else 3) for n in range(4))))
        f.leader.epochs = {3: (ErrorCode.NONE, 2, 3), 1: (ErrorCode.NONE, 1, 1)}
        f.world.tell(f.world.order(leader=2, leader_epoch=5))
        await asyncio.sleep(0.1)
        assert log.log_end_offset == 1
        (first, *_) = f.leader.asked
        assert [(a.offset, a.last_fetched_epoch) for a in first.partitions] == [(1, -1)]

    run(loop, story, truncates_on_fetch=False)


def test_a_disk_that_fails_while_epochs_are_asked_for_costs_one_partition(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(f: Followed) -> None:
        def broken(offset: int) -> None:
            raise StorageError("disk")

        f.world.tell(f.world.order(leader=9, replicas=(1, 9)), f.world.order(T1, leader=9, replicas=(1, 9)))
        for tp in (T0, T1):
            f.log(tp).append_as_follower(memoryview(b"".join(stored(n, 1) for n in range(4))))
        monkeypatch.setattr(f.log(T0), "truncate_to", broken)
        f.leader.epochs = {1: (ErrorCode.NONE, 1, 2)}
        f.world.tell(f.world.order(leader=2, leader_epoch=5), f.world.order(T1, leader=2, leader_epoch=5))
        await asyncio.sleep(0.1)
        assert list(f.fetchers.failed) == [T0]
        assert f.log(T1).log_end_offset == 2
        assert [a.tp for a in f.leader.asked[0].partitions] == [T1]

    run(loop, story, truncates_on_fetch=False)


def test_session_epochs_wrap_past_zero() -> None:
    assert [next_epoch(e) for e in (0, 1, EPOCH_MAX)] == [1, 2, 1]


def test_a_leader_without_sessions_is_asked_in_full_each_time() -> None:
    session = FollowerSession()
    session.open([])
    assert session.answered(FollowerFetchAnswer(ErrorCode.NONE, 0, ()))
    assert session.is_full
