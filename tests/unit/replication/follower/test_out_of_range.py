"""A follower after OFFSET_OUT_OF_RANGE: where it continues, and when it asks again."""

import asyncio
from collections.abc import Iterator

import pytest

from logyard.broker.errors import ErrorCode
from tests.support.disk_logs import stored
from tests.support.followed import Followed, answer, run
from tests.support.replica_world import T0
from tests.support.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "then"),
    [(0, 1, (0, 1)), (5, 9, (5, 5)), (2, 9, (0, 2)), (0, 2, (0, 2))],
)
def test_out_of_range(loop: VirtualLoop, leader_start: int, leader_end: int, then: tuple[int, int]) -> None:
    async def story(f: Followed) -> None:
        f.world.tell(f.world.order(leader=9, replicas=(1, 9)))
        f.log().append_as_follower(memoryview(stored(0, 0) + stored(1, 0)))
        f.log().epochs.clear()
        f.log().set_high_watermark(2)
        f.leader.ends[T0] = (ErrorCode.NONE, -1, leader_end)
        f.leader.starts[T0] = (ErrorCode.NONE, -1, leader_start)
        f.leader.script = [[answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)]]
        f.world.tell(f.world.order(leader=2))
        await asyncio.sleep(2)
        log = f.log()
        assert (log.log_start_offset, log.log_end_offset) == then
        assert f.leader.asked[1].partitions[0].offset == then[1]
        # Where nothing changed the same question waits a while.
        assert (f.leader.times[1] >= 1.0) == (then == (0, 2))

    run(loop, story)


@pytest.mark.parametrize("watermark", [1, 2])
def test_a_leader_that_keeps_no_epochs_is_followed_from_the_watermark(loop: VirtualLoop, watermark: int) -> None:
    """A log of an old message format: its leader refuses every epoch, here one without a record."""

    async def story(f: Followed) -> None:
        f.world.tell(f.world.order(leader=9, replicas=(1, 9)))
        f.log().append_as_follower(memoryview(stored(0, 0) + stored(1, 0)))
        f.world.tell(f.world.order(leader=1, leader_epoch=4, isr=(1, 2)))
        f.log().set_high_watermark(watermark)
        f.leader.ends[T0] = (ErrorCode.NONE, -1, 2)
        f.leader.starts[T0] = (ErrorCode.NONE, -1, 0)
        f.leader.answering = lambda request: [
            answer(error=ErrorCode.OFFSET_OUT_OF_RANGE) for a in request.partitions if a.last_fetched_epoch >= 0
        ]
        f.follow(leader_epoch=5)
        await asyncio.sleep(0.1)
        asked = [(a.offset, a.last_fetched_epoch) for r in f.leader.asked for a in r.partitions]
        assert asked == [(2, 4), (watermark, -1)]
        assert (f.log().log_end_offset, f.log().epochs.entries) == (watermark, ())

    run(loop, story)


def test_out_of_range_and_the_leader_does_not_answer(loop: VirtualLoop) -> None:
    async def story(f: Followed) -> None:
        f.leader.ends[T0] = (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
        f.leader.starts[T0] = (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
        f.leader.script = [[answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)]]
        f.follow()
        await asyncio.sleep(0.5)
        assert len(f.leader.asked) == 1
        await asyncio.sleep(0.7)
        assert len(f.leader.asked) == 2
        f.leader.ends[T0] = (ErrorCode.FENCED_LEADER_EPOCH,)
        f.leader.script = [[answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)]]
        await asyncio.sleep(2)
        assert list(f.fetchers.failed) == [T0]

    run(loop, story)
