"""A leader that writes its ISR itself: what is written, what is refused, and when the controller is told."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.zk import isr_writer
from logyard.broker.zk.isr_writer import DirectIsrWriter
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import isr_notifications, partition_state, paths
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, ZkCode
from tests.support.virtual_loop import run_virtually

TP = TopicPartition("t", 0)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3), controller_epoch=9)


class World:
    """A tree with one partition, and its leader's writer."""

    def __init__(self) -> None:
        self.tree = ZooKeeperTree(ManualClock())
        self.zk = MemoryZooKeeper(self.tree)
        self.writer = DirectIsrWriter(self.zk, 1)

    async def make(self, tp: TopicPartition = TP) -> None:
        await create_persistent_paths(self.zk)
        path = partition_state.path(tp)
        await self.zk.pipeline([[Create(parent)] for parent in paths.ancestors(path)])
        await self.zk.multi([Create(path, partition_state.encode(STATE))])

    async def change(self, *isr: int, leader_epoch: int = 4, partition_epoch: int = 0) -> IsrChangeResult:
        answer: asyncio.Future[IsrChangeResult] = asyncio.get_running_loop().create_future()
        self.writer.submit(TP, None, leader_epoch, isr, partition_epoch, answer.set_result)
        return await answer

    def state(self) -> PartitionState:
        found = self.tree.read(partition_state.path(TP))
        assert found is not None
        return partition_state.decode(found.data, found.version)

    def notices(self) -> list[list[TopicPartition]]:
        names = self.tree.children(isr_notifications.PATH) or []
        found = [self.tree.read(isr_notifications.path(name)) for name in names]
        return [isr_notifications.decode(znode.data) for znode in found if znode is not None]


def run(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def test_written_on_the_version_read_and_told_when_quiet() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        assert await world.change(1, 2) == IsrChangeResult(ErrorCode.NONE, 1, 4, (1, 2), 1)
        assert world.state() == PartitionState(1, 4, (1, 2), 9, 1)
        await asyncio.sleep(isr_writer.LINGER_S - 1)
        assert (await world.change(1, partition_epoch=1)).partition_epoch == 2
        await asyncio.sleep(isr_writer.LINGER_S - 1)
        assert world.notices() == []
        await asyncio.sleep(2 * isr_writer.CHECK_S)
        assert world.notices() == [[TP]]
        world.writer.close()

    run(work())


def test_told_again_where_zookeeper_refused_it() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        await world.zk.multi([Delete(isr_notifications.PATH)])
        await world.change(1, 2)
        await asyncio.sleep(isr_writer.LINGER_S + 2 * isr_writer.CHECK_S)
        await world.zk.multi([Create(isr_notifications.PATH)])
        await asyncio.sleep(2 * isr_writer.CHECK_S)
        assert world.notices() == [[TP]]
        world.writer.close()

    run(work())


def test_told_after_a_minute_at_the_latest() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        epoch = 0
        while not world.notices():
            epoch = (await world.change(1, 2 + epoch % 2, partition_epoch=epoch)).partition_epoch
            await asyncio.sleep(1)
        assert isr_writer.DELAY_MAX_S <= epoch <= isr_writer.DELAY_MAX_S + 2 * isr_writer.CHECK_S
        world.writer.close()

    run(work())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 5}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_leader_of_another_epoch_writes_nothing(change: dict[str, int], code: ErrorCode) -> None:
    async def work() -> None:
        world = World()
        await world.make()
        assert (await world.change(1, **change)).error is code
        assert world.state() == STATE
        world.writer.close()

    run(work())


def test_somebody_elses_partition_is_not_written() -> None:
    async def work() -> None:
        world = World()
        world.writer = DirectIsrWriter(world.zk, 2)
        await world.make()
        assert (await world.change(2)).error is ErrorCode.FENCED_LEADER_EPOCH
        world.writer.close()

    run(work())


@pytest.mark.parametrize("data", [None, b"rubbish"])
def test_no_readable_state(data: bytes | None) -> None:
    async def work() -> None:
        world = World()
        if data is not None:
            await world.make()
            await world.zk.multi([SetData(partition_state.path(TP), data)])
        expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if data is None else ErrorCode.INVALID_UPDATE_VERSION
        assert (await world.change(1)).error is expected
        world.writer.close()

    run(work())


def test_a_leader_that_is_behind_hears_what_is_committed() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        ahead = PartitionState(1, 4, (1, 3), 9)
        await world.zk.multi([SetData(partition_state.path(TP), partition_state.encode(ahead))])
        assert await world.change(1, 2) == IsrChangeResult(ErrorCode.NONE, 1, 4, (1, 3), 1)
        assert world.state().isr == (1, 3)
        world.writer.close()

    run(work())


def test_a_lost_session_delays_only() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        world.tree.expire(world.zk.session_id)
        assert (await world.change(1, 2)).error is ErrorCode.NONE
        await asyncio.sleep(3 * isr_writer.CHECK_S + isr_writer.LINGER_S)
        assert world.notices() == [[TP]]
        world.writer.close()

    run(work())


def test_a_lost_reply_is_no_refusal() -> None:
    async def work() -> None:
        world = World()
        await world.make()
        world.zk.lose_replies()
        assert await world.change(1, 2) == IsrChangeResult(ErrorCode.NONE, 1, 4, (1, 2), 1)
        world.writer.close()

    run(work())


def test_what_zookeeper_refuses_was_not_attempted() -> None:
    """Without the right to write, say: the leader keeps its ISR, and may ask again."""

    class Forbidden(MemoryZooKeeper):
        async def pipeline(self, multis: Any) -> Any:
            return [[OpResult(ZkCode.FAILED)] * len(ops) for ops in multis]

    async def work() -> None:
        world = World()
        await world.make()
        world.writer = DirectIsrWriter(Forbidden(world.tree), 1)
        assert await world.change(1, 2) == IsrChangeResult(ErrorCode.OPERATION_NOT_ATTEMPTED)
        assert world.state() == STATE
        world.writer.close()

    run(work())
