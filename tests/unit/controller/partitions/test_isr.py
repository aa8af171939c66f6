"""AlterPartition check by check (facts §22), and the notifications of direct writers."""

from typing import Any

import pytest

from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR, UPDATE_METADATA
from logyard.broker.controller.events import AlterPartition, AlterPartitionResult, IsrChange
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import isr_notifications, partition_state
from logyard.broker.znodes.ops import Create, SetData
from tests.support.controller_world import World

TP = TopicPartition("t", 0)


@pytest.fixture
async def led(world: World) -> World:
    """Topic t, partition 0 on 2, 1, 3, led by 2 with all in sync at leader epoch 0, partition epoch 0."""
    await world.make_topic("t", (2, 1, 3))
    for broker in world.brokers.values():
        broker.received.clear()
    return world


async def ask(world: World, *, requester: int = 2, epoch: int | None = None, version: int = 3, **change: Any) -> Any:
    fields: dict[str, Any] = {"partition": 0, "leader_epoch": 0, "new_isr": (2, 1), "partition_epoch": 0}
    if "topic" not in change:
        fields["topic_id"] = world.topic("t").topic_id
    broker_epoch = world.brokers[requester].epoch if epoch is None else epoch
    request = AlterPartition(requester, broker_epoch, (IsrChange(**(fields | change)),), version)
    result: AlterPartitionResult = await world.controller.runner.ask(request)
    await world.settle()
    return result


async def test_a_shrink_is_written_sent_and_answered(led: World) -> None:
    result = await ask(led)
    (altered,) = result.partitions
    expected = PartitionState(2, 0, (2, 1), 1, 1)
    assert (result.error, altered.error, altered.state) == (0, 0, expected)
    assert led.state("t") == expected
    for broker in led.brokers.values():
        assert broker.told(LEADER_AND_ISR) == []
        assert broker.metadata[TP]["isr"] == [2, 1]
        assert len(broker.told(UPDATE_METADATA)) == 1


async def test_by_name_for_old_versions(led: World) -> None:
    result = await ask(led, version=1, topic="t")
    assert result.partitions[0].error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [0, 10**9])
async def test_broker_epoch_must_be_equal(led: World, epoch: int) -> None:
    assert (await ask(led, epoch=epoch)).error is ErrorCode.STALE_BROKER_EPOCH


async def test_unknown_requester(led: World) -> None:
    request = AlterPartition(9, 1, ())
    assert (await led.controller.runner.ask(request)).error is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic_id": __import__("uuid").UUID(int=99)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"recovering": True, "new_isr": (2,)}, ErrorCode.INVALID_REQUEST),
        ({"recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"requester": 1}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (1, 3)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (2, 1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (2, 9)}, ErrorCode.INVALID_REQUEST),
        ({"new_isr": (2, 1), "isr_epochs": (-1, 0)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_refusals(led: World, change: dict[str, Any], code: ErrorCode) -> None:
    result = await ask(led, **change)
    assert result.error is ErrorCode.NONE
    assert [p.error for p in result.partitions] == [code]
    assert led.state("t") == PartitionState(2, 0, (2, 1, 3), 1)


async def test_no_leadership_information(led: World) -> None:
    await led.make_topic("u", (9,))
    result = await ask(led, topic_id=led.topic("u").topic_id)
    assert result.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_same_isr_in_the_same_order_is_success_even_when_stale(led: World) -> None:
    await ask(led)
    result = await ask(led, partition_epoch=0)
    assert result.partitions[0].error is ErrorCode.NONE
    assert result.partitions[0].state == PartitionState(2, 0, (2, 1), 1, 1)
    other_order = await ask(led, partition_epoch=0, new_isr=(1, 2))
    assert other_order.partitions[0].error is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(("version", "code"), [(1, 55), (2, 107), (3, 107)])
async def test_dead_member(led: World, version: int, code: int) -> None:
    await ask(led)
    await led.kill(3)
    state = led.state("t")
    assert state is not None
    result = await ask(
        led, version=version, new_isr=(2, 1, 3), leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
    )
    assert result.partitions[0].error == code


async def test_the_state_znode_changed_meanwhile(led: World) -> None:
    now = led.state("t")
    assert now is not None
    led.write(SetData(partition_state.path(TP), partition_state.encode(now._replace(isr=(2, 3)))))
    assert (await ask(led)).partitions[0].error is ErrorCode.INVALID_UPDATE_VERSION
    # what was read again is what counts now
    assert (await ask(led, partition_epoch=1)).partitions[0].error is ErrorCode.NONE


async def test_not_the_controller(led: World) -> None:
    with pytest.raises(ApiError) as refused:
        await led.brokers[2].runner.ask(AlterPartition(2, led.brokers[2].epoch, ()))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_notifications_of_direct_writers(led: World) -> None:
    now = led.state("t")
    assert now is not None
    led.write(SetData(partition_state.path(TP), partition_state.encode(now._replace(isr=(2,)))))
    led.write(
        Create(isr_notifications.SEQUENCE_PREFIX, isr_notifications.encode([TP]), sequential=True),
        Create(isr_notifications.SEQUENCE_PREFIX, b"rubbish", sequential=True),
    )
    await led.settle()
    assert led.brokers[3].metadata[TP]["isr"] == [2]
    assert led.tree.children(isr_notifications.PATH) == []
