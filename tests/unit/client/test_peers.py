"""The controller's senders: in order, one at a time, again and again until answered or dropped."""

import asyncio
from typing import Any

from logyard.broker.client.peers import ControllerPeers
from logyard.broker.model import BrokerInfo
from tests.support.scripted_broker import Answer, Asked, Hang, HangUp, ScriptedBroker

STOP_REPLICA = 5


def fields(epoch: int) -> dict[str, Any]:
    return {"controller_id": 1, "controller_epoch": epoch, "broker_epoch": 1}


class Answers:
    """Collects what the callbacks hear."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Any]] = []
        self._news = asyncio.Event()

    def callback(self, number: int) -> Any:
        def hear(answer: Any) -> None:
            self.heard.append((number, answer if answer is None else answer.error_code))
            self._news.set()

        return hear

    async def until(self, count: int) -> list[tuple[int, Any]]:
        while len(self.heard) < count:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)
        return self.heard


def peers_of(*brokers: ScriptedBroker, request_timeout_s: float = 30.0) -> ControllerPeers:
    peers = ControllerPeers("PLAINTEXT", "controller", request_timeout_s)
    for broker in brokers:
        peers.add_broker(broker.info)
    return peers


async def test_in_order_one_at_a_time() -> None:
    under_way = 0

    async def slowly(asked: Asked) -> Answer:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await asyncio.sleep(0)
        under_way -= 1
        return {"error_code": asked.body.controller_epoch}

    async with ScriptedBroker(slowly) as broker:
        peers, answers = peers_of(broker), Answers()
        for number in range(20):
            peers.send(1, STOP_REPLICA, 3, fields(number), answers.callback(number))
        assert await answers.until(20) == [(n, n) for n in range(20)]
        peers.close()


async def test_sent_again_until_answered() -> None:
    said: list[Answer] = [HangUp(), b"\x00\x00\x00\x05\x00\x00\x00\x00\x00"]
    tries = iter(said)

    def script(asked: Asked) -> Answer:
        return next(tries, {"error_code": 77})

    async with ScriptedBroker(script) as broker:
        peers, answers = peers_of(broker, request_timeout_s=0.05), Answers()  # the second try is never answered
        peers.send(1, STOP_REPLICA, 3, fields(1), answers.callback(1))
        peers.send(1, STOP_REPLICA, 3, fields(2), answers.callback(2))
        assert await answers.until(2) == [(1, 77), (2, 77)]
        assert [asked.body.controller_epoch for asked in broker.asked] == [1, 1, 1, 2]
        peers.close()


async def test_a_broker_that_comes_back_is_told_what_waited() -> None:
    broker = ScriptedBroker(lambda asked: {"error_code": 0})
    await broker.start()
    await broker.stop()
    peers, answers = peers_of(broker), Answers()
    peers.send(1, STOP_REPLICA, 3, fields(1), answers.callback(1))
    await asyncio.sleep(0.01)
    await broker.start()
    assert await answers.until(1) == [(1, 0)]
    peers.close()
    await broker.stop()


async def test_a_removed_broker_answers_none() -> None:
    async with ScriptedBroker(lambda asked: Hang()) as broker:
        peers, answers = peers_of(broker), Answers()
        peers.send(1, STOP_REPLICA, 3, fields(1), answers.callback(1))
        peers.send(1, STOP_REPLICA, 3, fields(2), answers.callback(2))
        peers.remove_broker(1)
        peers.remove_broker(1)
        peers.send(1, STOP_REPLICA, 3, fields(3), answers.callback(3))
        assert answers.heard == [(1, None), (2, None), (3, None)]


async def test_a_broker_without_an_address_answers_none() -> None:
    peers, answers = ControllerPeers("PLAINTEXT", "controller"), Answers()
    peers.add_broker(BrokerInfo(1, ()))
    peers.send(1, STOP_REPLICA, 3, fields(1), answers.callback(1))
    assert answers.heard == [(1, None)]


async def test_a_broker_added_again_starts_afresh() -> None:
    async with ScriptedBroker(lambda asked: Hang()) as old, ScriptedBroker(lambda asked: {"error_code": 0}) as new:
        peers, answers = peers_of(old), Answers()
        peers.send(1, STOP_REPLICA, 3, fields(1), answers.callback(1))
        peers.add_broker(new.info)
        peers.send(1, STOP_REPLICA, 3, fields(2), answers.callback(2))
        assert await answers.until(2) == [(1, None), (2, 0)]
        peers.close()


async def test_neither_a_bad_request_nor_a_bad_callback_stops_the_sender() -> None:
    def fails(answer: Any) -> None:
        raise RuntimeError("a bug in a callback")

    async with ScriptedBroker(lambda asked: {"error_code": 0}) as broker:
        peers, answers = peers_of(broker), Answers()
        peers.send(1, STOP_REPLICA, 3, {"controller_id": "no number"}, answers.callback(1))
        peers.send(1, STOP_REPLICA, 3, fields(2), fails)
        peers.send(1, STOP_REPLICA, 3, fields(3), answers.callback(3))
        assert await answers.until(2) == [(1, None), (3, 0)]
        peers.close()


async def test_a_chosen_correlation_id_reaches_the_broker_even_twice() -> None:
    """The controller's is the id of its event, which may cause several requests to one broker."""
    seen: list[int] = []

    def note(asked: Asked) -> Answer:
        seen.append(asked.correlation_id)
        return {"error_code": 0}

    async with ScriptedBroker(note) as broker:
        peers, answers = peers_of(broker), Answers()
        for number in range(2):
            peers.send(1, STOP_REPLICA, 3, fields(number), answers.callback(number), 4711)
        assert await answers.until(2) == [(0, 0), (1, 0)]
        peers.close()
    assert seen == [4711, 4711]
