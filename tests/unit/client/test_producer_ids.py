"""Producer ids without gaps between blocks or doubles, asked of the controller."""

import asyncio

import pytest

from logyard.broker.client.controller_link import ToController
from logyard.broker.client.controller_requests import ControllerChannel
from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import BrokerInfo
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker


def ids_from(controller: BrokerInfo | None) -> ProducerIds:
    to_controller = ToController(lambda: controller, "PLAINTEXT", "me")
    channel = ControllerChannel(to_controller, to_controller, 1, lambda: 9)
    return ProducerIds(channel.allocate_producer_ids)


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
        ids = ids_from(broker.info)
        assert [await ids.next() for _ in range(9)] == list(range(5000, 5009))
        assert len(broker.asked) == 1
        assert await ids.next() == 5009
        while len(broker.asked) < 2:
            await asyncio.sleep(0.001)
        assert [await ids.next() for _ in range(15)] == list(range(5010, 5025))
        ids.close()


async def test_many_at_once_never_share_an_id() -> None:
    async with ScriptedBroker(Blocks()) as broker:
        ids = ids_from(broker.info)
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(55)))) == list(range(5000, 5055))
        ids.close()


async def test_no_controller_no_ids() -> None:
    ids = ids_from(None)
    with pytest.raises(ApiError) as caught:
        await ids.next(timeout_s=0.01)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ids.close()


async def test_refusals_are_asked_again() -> None:
    refusals = iter([{"error_code": 41}, {"error_code": 77}, {"error_code": 4711}])
    blocks = Blocks()
    async with ScriptedBroker(lambda asked: next(refusals, None) or blocks(asked)) as broker:
        ids = ids_from(broker.info)
        assert await ids.next() == 5000
        assert len(broker.asked) == 4
        ids.close()
