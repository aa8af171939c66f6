"""Producer ids without gaps between blocks or doubles, and leave to shut down."""

import asyncio

import pytest

from logyard.broker.client.controller_channel import ControllerChannel
from logyard.broker.client.to_controller import ToController
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import BrokerInfo
from tests.support.scripted_broker import Answer, Asked, HangUp, ScriptedBroker


def channel_to(controller: BrokerInfo | None) -> ControllerChannel:
    return ControllerChannel(ToController(lambda: controller, "PLAINTEXT", "me"), 1, lambda: 9)


class Blocks:
    """A controller that hands out blocks of `size`."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.next = 5000

    def __call__(self, asked: Asked) -> Answer:
        assert (asked.api_key, asked.body.broker_id, asked.body.broker_epoch) == (67, 1, 9)
        start, self.next = self.next, self.next + self.size
        return {"producer_id_start": start, "producer_id_len": self.size}


async def test_ids_go_on_over_blocks_and_are_asked_for_ahead() -> None:
    async with ScriptedBroker(Blocks()) as broker:
        channel = channel_to(broker.info)
        ids = [await channel.next_producer_id() for _ in range(9)]
        assert ids == list(range(5000, 5009))
        assert len(broker.asked) == 1
        assert await channel.next_producer_id() == 5009
        while len(broker.asked) < 2:
            await asyncio.sleep(0.001)
        assert [await channel.next_producer_id() for _ in range(15)] == list(range(5010, 5025))
        channel.close()


async def test_many_at_once_never_share_an_id() -> None:
    async with ScriptedBroker(Blocks()) as broker:
        channel = channel_to(broker.info)
        ids = await asyncio.gather(*(channel.next_producer_id() for _ in range(55)))
        assert sorted(ids) == list(range(5000, 5055))
        channel.close()


async def test_no_controller_no_ids() -> None:
    channel = channel_to(None)
    with pytest.raises(ApiError) as caught:
        await channel.next_producer_id(timeout_s=0.01)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    channel.close()


async def test_refusals_are_asked_again() -> None:
    refusals = iter([{"error_code": 41}, {"error_code": 77}, {"error_code": 4711}])
    blocks = Blocks()
    async with ScriptedBroker(lambda asked: next(refusals, None) or blocks(asked)) as broker:
        channel = channel_to(broker.info)
        assert await channel.next_producer_id() == 5000
        assert len(broker.asked) == 4
        channel.close()


async def test_controlled_shutdown() -> None:
    remaining = [{"topic_name": "t", "partition_index": 0}]
    answers: list[Answer] = [
        {"error_code": 11},
        HangUp(),
        {"error_code": 0, "remaining_partitions": remaining},
        {"error_code": 0, "remaining_partitions": []},
    ]
    script = iter(answers)
    async with ScriptedBroker(lambda asked: next(script)) as broker:
        assert await channel_to(broker.info).controlled_shutdown(tries=4, backoff_ms=1)
        assert [(a.api_key, a.version, a.body.broker_id, a.body.broker_epoch) for a in broker.asked] == [
            (7, 3, 1, 9)
        ] * 4


async def test_controlled_shutdown_gives_up_after_the_last_try() -> None:
    async with ScriptedBroker(lambda asked: {"error_code": 77}) as broker:
        assert not await channel_to(broker.info).controlled_shutdown(tries=2, backoff_ms=1)
        assert len(broker.asked) == 2
    assert not await channel_to(None).controlled_shutdown(tries=1, backoff_ms=1)
