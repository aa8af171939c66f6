"""Many tiny batches are appended in portions, and nothing is lost if something happens in between."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.replication.follower import fetcher
from logyard.broker.replication.follower.portions import PARTITIONS_AT_ONCE, portions
from tests.support.disk_logs import parse, stored
from tests.support.followed import Followed, answer, run
from tests.support.replica_world import T0
from tests.support.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "portions", lambda records: [each.data for each in parse(records)] or [b""])
    monkeypatch.setattr(fetcher, "ONE_PORTION_BYTES", 0)


@pytest.mark.parametrize("left", [0, 1, 30])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_batches_are_cut_between_and_all_there(count: int, left: int) -> None:
    one = bytes(batch.build([batch.Record(0, 1, None, b"x")]))
    data = one * count + one[:left]
    cut = [bytes(each) for each in portions(data, 3)]
    assert b"".join(cut) == data
    assert all(len(each) == 3 * len(one) for each in cut[:-1])
    assert len(cut[-1]) // len(one) <= 3


def test_bytes_that_are_no_batch_are_passed_on() -> None:
    for data in (b"", b"x" * 5, b"\xff" * 500, bytes(500)):
        assert [bytes(each) for each in portions(data, 1)] == [data]


class Told(list[TopicPartition]):
    """Calls `act` on the loop's next turn when the first portion is in."""

    def __init__(self, loop: VirtualLoop, act: Any) -> None:
        self.loop, self.act = loop, act

    def append(self, tp: TopicPartition) -> None:
        if not self:
            self.loop.call_soon(self.act)
        super().append(tp)


def test_the_loop_gets_its_turns_in_between(loop: VirtualLoop, one_by_one: Any) -> None:
    async def story(f: Followed) -> None:
        ends = []
        f.progressed = Told(loop, lambda: ends.append(f.log().log_end_offset))
        f.leader.script = [[answer(records=b"".join(stored(n, 0) for n in range(5)), hw=5)]]
        f.follow()
        await asyncio.sleep(0.1)
        assert f.log().log_end_offset == 5
        assert ends[0] < 5

    run(loop, story)


def test_partitions_of_one_answer_are_taken_in_turns(loop: VirtualLoop) -> None:
    many = [TopicPartition("t", number) for number in range(3 * PARTITIONS_AT_ONCE)]

    async def story(f: Followed) -> None:
        taken: list[int] = []

        def look() -> None:
            taken.append(len(f.progressed))
            if taken[-1] < len(many):
                loop.call_soon(look)

        f.progressed = Told(loop, look)
        f.leader.script = [[answer(tp, stored(0, 0), hw=1) for tp in many]]
        for tp in many:
            f.follow(tp)
        await asyncio.sleep(0.1)
        assert taken[-1] == len(many)
        assert max(after - before for before, after in pairwise([0, *taken])) == PARTITIONS_AT_ONCE

    run(loop, story)


def test_a_new_epoch_in_between_leaves_the_rest_out(loop: VirtualLoop, one_by_one: Any) -> None:
    async def story(f: Followed) -> None:
        f.progressed = Told(loop, lambda: f.follow(leader_epoch=1))
        f.leader.script = [[answer(records=stored(0, 0) + stored(1, 0) + stored(2, 0))]]
        f.follow()
        await asyncio.sleep(0.5)
        assert f.log().log_end_offset < 3
        again = [a for r in f.leader.asked for a in r.partitions if a.leader_epoch == 1]
        assert again[0].offset == f.log().log_end_offset, "what is left is asked for, of the new leader"

    run(loop, story)


def test_a_partition_that_is_followed_no_more_gets_nothing_more(loop: VirtualLoop, one_by_one: Any) -> None:
    async def story(f: Followed) -> None:
        f.progressed = Told(loop, lambda: f.fetchers.stop([T0]))
        f.leader.script = [[answer(records=b"".join(stored(n, 0) for n in range(9)))]]
        f.follow()
        await asyncio.sleep(0.5)
        assert f.log().log_end_offset < 4

    run(loop, story)
