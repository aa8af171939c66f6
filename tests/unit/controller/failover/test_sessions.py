"""Being elected, fenced, deposed; sessions that end; requests that must not be left waiting."""

import asyncio
from collections.abc import Callable

import pytest

from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR, UPDATE_METADATA
from logyard.broker.controller.events import (
    AllocateProducerIds,
    ControlledShutdown,
    CreateTopics,
    ListReassignments,
    NewTopic,
    ProducerIdBlock,
)
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.znodes import controller as controller_znode
from logyard.broker.znodes import producer_ids
from logyard.broker.znodes.ops import SetData
from tests.support.controller_world import World


async def test_epoch_grows_with_every_controller(world: World) -> None:
    await world.kill(1)
    assert (world.controller.id, world.controller.runner.epoch) == (2, 2)
    await world.kill(2)
    assert (world.controller.id, world.controller.runner.epoch) == (3, 3)
    assert world.read("/controller_epoch") == b"3"


async def test_lost_reply_in_the_election(make_world: Callable[..., World]) -> None:
    world = make_world()
    await world.start(1, 2)
    world.brokers[2].zk.lose_replies()
    await world.kill(1)
    assert (world.controller.id, world.controller.runner.epoch) == (2, 2)


async def test_controller_znode_deleted_by_hand(world: World) -> None:
    world.remove("/controller")
    await world.settle()
    assert world.controller.runner.epoch == 2
    await world.make_topic("t", (1, 2, 3))
    assert world.state("t") is not None


async def test_fenced_controller_writes_nothing_more(world: World) -> None:
    """Another broker raises the epoch: the next write fails its check, and this broker resigns."""
    await world.make_topic("t", (1, 2))
    world.write(SetData(controller_znode.EPOCH_PATH, b"7"))
    with pytest.raises(ApiError) as refused:
        await world.brokers[1].runner.ask(CreateTopics((NewTopic("u", 1, 1),)))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await world.settle()
    assert world.tree.children("/brokers/topics") == ["t"]
    # it lets go of /controller, so that somebody leads again, with a higher epoch than the raised one
    assert world.controller.runner.epoch == 8


async def test_session_expiry(world: World) -> None:
    await world.make_topic("t", (1, 2))
    first = world.brokers[1]
    asked = asyncio.ensure_future(first.runner.ask(ListReassignments()))
    leaving = asyncio.ensure_future(first.runner.ask(ControlledShutdown(2, -1)))
    await asyncio.sleep(0)
    first.runner.on_session_lost()
    with pytest.raises(ApiError) as refused:
        await asked
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ApiError) as refused:
        await leaving
    assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    before = first.epoch
    world.tree.expire(first.zk.session_id)
    await world.settle()
    # a new session: registered anew, and somebody leads
    assert first.epoch > before
    assert world.controller.runner.epoch == 2
    assert first.runner.active_id == world.controller.id
    assert world.brokers[3].told(UPDATE_METADATA)[-1]["controller_id"] == world.controller.id
    state = world.state("t")
    assert state is not None
    assert state.leader != -1


async def test_a_controller_without_a_session_sends_nothing(world: World) -> None:
    """A controller is cut off until its session is gone: its later requests have no effect."""
    await world.make_topic("t", (2, 3))
    first = world.brokers[1]
    first.zk.disconnect()
    world.tree.expire(first.zk.session_id)
    for _ in range(200):
        await asyncio.sleep(0)
    assert world.brokers[2].runner.is_active
    seen = len(world.brokers[3].received)
    asked = asyncio.ensure_future(first.runner.ask(CreateTopics((NewTopic("zombie", 1, 1),))))
    await asyncio.sleep(0)
    first.zk.reconnect()
    with pytest.raises(ApiError):
        await asked
    await world.settle()
    assert world.controller.id == 2
    assert world.tree.children("/brokers/topics") == ["t"]
    assert all(r.fields["controller_epoch"] == 2 for r in world.brokers[3].received[seen:])


async def test_requests_carry_the_epoch(world: World) -> None:
    await world.kill(1)
    await world.make_topic("t", (2, 3))
    assert {r["controller_epoch"] for r in world.brokers[3].told(LEADER_AND_ISR)} == {2}


async def test_a_stopped_runner_answers_waiting_requests(world: World) -> None:
    runner = world.controller.runner
    asked = asyncio.ensure_future(runner.ask(ListReassignments()))
    await asyncio.sleep(0)
    await runner.stop()
    with pytest.raises(ApiError):
        await asked
    with pytest.raises(ApiError):
        await runner.ask(ListReassignments())


async def test_a_failing_event_affects_no_other_event(world: World) -> None:
    real = world.controller.zk.children

    async def fails(paths: object) -> None:
        raise RuntimeError("a bug")

    world.controller.zk.children = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(ApiError) as refused:
        await world.controller.runner.ask(CreateTopics((NewTopic("t", 1, 1),)))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    world.controller.zk.children = real  # type: ignore[method-assign]
    (created,) = await world.controller.runner.ask(CreateTopics((NewTopic("t", 1, 1),)))
    assert created.error is ErrorCode.NONE


# Producer ids


async def test_blocks_follow_each_other(world: World) -> None:
    runner = world.controller.runner
    blocks = [await runner.ask(AllocateProducerIds(b, world.brokers[b].epoch)) for b in (2, 3, 2)]
    assert [(b.start, b.length) for b in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert producer_ids.decode(world.read(producer_ids.PATH) or b"") == producer_ids.ProducerIdBlock(2, 2000, 2999)


async def test_no_block_is_given_out_twice_where_the_znode_was_deleted(world: World) -> None:
    runner, asked = world.controller.runner, AllocateProducerIds(2, world.brokers[2].epoch)
    await runner.ask(asked)
    world.remove(producer_ids.PATH)
    start = (await runner.ask(asked)).start
    assert start == max(world.clock.now_ms() // 1000, 1) * 1000 >= 1000
    world.remove(producer_ids.PATH)
    world.make(producer_ids.PATH)
    world.clock.advance(3)
    assert (await runner.ask(asked)).start == start + 3000


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED), (2, 1, ErrorCode.STALE_BROKER_EPOCH)],
)
async def test_refused_blocks(world: World, broker: int, epoch: int, code: ErrorCode) -> None:
    answer = await world.controller.runner.ask(AllocateProducerIds(broker, epoch))
    assert answer == ProducerIdBlock(code)


async def test_an_unreadable_block_gives_no_ids(world: World) -> None:
    world.set(producer_ids.PATH, b"rubbish")
    asked = AllocateProducerIds(2, world.brokers[2].epoch)
    assert (await world.controller.runner.ask(asked)).error is ErrorCode.UNKNOWN_SERVER_ERROR
