"""One connection to another broker: pipelining, large answers, time-outs, broken and refused connections."""

import asyncio
import struct
import time
from typing import Any
from uuid import UUID

import pytest

from logyard.broker.client.link import FRAME_BYTES_MAX, SCRATCH_BYTES, Link
from logyard.broker.protocol import codec
from logyard.broker.replication.ports import LinkError
from tests.support.longest_turn import longest_turn_uncollected
from tests.support.scripted_broker import Answer, Asked, Hang, HangUp, ScriptedBroker

METADATA, LEADER_AND_ISR = 3, 4


def cluster(asked: Asked) -> Answer:
    """Metadata whose cluster id repeats the client id."""
    return {"cluster_id": asked.client_id, "controller_id": len(asked.body.topics or [])}


def link_to(broker: ScriptedBroker, request_timeout_s: float = 10.0) -> Link:
    return Link("127.0.0.1", broker.port, client_id="me", request_timeout_s=request_timeout_s)


def asking(topics: int) -> dict[str, object]:
    return {"topics": [{"name": f"t{n}"} for n in range(topics)]}


async def test_a_request_and_its_answer() -> None:
    async with ScriptedBroker(cluster) as broker:
        link = link_to(broker)
        answer = await link.request(METADATA, 9, asking(3))
        assert (answer.cluster_id, answer.controller_id) == ("me", 3)
        assert link.connected
        link.close()
        with pytest.raises(LinkError, match="closed"):
            await link.request(METADATA, 9, asking(1))


async def test_requests_are_pipelined_over_one_connection() -> None:
    async with ScriptedBroker(cluster) as broker:
        link = link_to(broker)
        answers = await asyncio.gather(*(link.request(METADATA, 4 + n % 6, asking(n)) for n in range(100)))
        assert [answer.controller_id for answer in answers] == list(range(100))
        assert broker.connections == 1
        link.close()


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 40, SCRATCH_BYTES - 4, SCRATCH_BYTES, 3 * SCRATCH_BYTES, 2_000_000])
async def test_answers_of_any_size_and_what_follows_them(size: int) -> None:
    def long(asked: Asked) -> Answer:
        return {"brokers": [{"host": "h" * 30_000}] * (size // 30_000), "cluster_id": "x" * (size % 30_000)}

    async with ScriptedBroker(long) as broker:
        link = link_to(broker)
        for _ in range(3):
            answers = await asyncio.gather(*(link.request(METADATA, 8, asking(0)) for _ in range(3)))
            assert all(len(a.cluster_id) == size % 30_000 and len(a.brokers) == size // 30_000 for a in answers)
        link.close()


async def test_a_very_large_answer_does_not_hold_the_loop_up() -> None:
    """LeaderAndIsr's of 30,000 topics took 60 ms to decode."""
    topics = [{"topic_id": UUID(int=n + 1), "partition_errors": [{"partition_index": 0}]} for n in range(30_000)]
    answer = codec.encode_response(LEADER_AND_ISR, 7, 1, {"topics": topics})
    async with ScriptedBroker(lambda asked: answer) as broker:
        link = link_to(broker)
        fields = {"controller_id": 1, "live_leaders": [], "topic_states": []}
        async with longest_turn_uncollected() as longest:
            found = await link.request(LEADER_AND_ISR, 7, fields, correlation_id=1)
        assert [topic.topic_id.int for topic in found.topics] == list(range(1, 30_001))
        assert longest.seconds < 0.03
        link.close()


async def test_a_late_answer_costs_the_connection_and_the_next_request_makes_a_new_one() -> None:
    async with ScriptedBroker(lambda asked: Hang() if asked.correlation_id == 1 else cluster(asked)) as broker:
        link = link_to(broker, request_timeout_s=0.05)
        with pytest.raises(LinkError, match="in time"):
            await link.request(METADATA, 9, asking(1))
        assert not link.connected
        assert (await link.request(METADATA, 9, asking(2), timeout_s=10)).controller_id == 2
        assert broker.connections == 2
        link.close()


async def test_everything_under_way_fails_when_the_connection_breaks() -> None:
    async with ScriptedBroker(lambda asked: HangUp() if asked.correlation_id == 3 else Hang()) as broker:
        link = link_to(broker)
        results = await asyncio.gather(
            *(link.request(METADATA, 9, asking(n)) for n in range(3)), return_exceptions=True
        )
        assert all(isinstance(result, LinkError) for result in results)
        link.close()


async def test_an_answer_too_large_is_refused_before_it_is_allocated() -> None:
    async with ScriptedBroker(lambda asked: struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(8)) as broker:
        link = link_to(broker)
        with pytest.raises(LinkError, match="bytes"):
            await link.request(METADATA, 9, asking(1))
        link.close()


async def test_answers_to_nobody_are_dropped() -> None:
    def stray(asked: Asked) -> Answer:
        answer = codec.encode_response(METADATA, asked.version, asked.correlation_id, {"cluster_id": "mine"})
        return codec.encode_response(METADATA, asked.version, 999_999, {"cluster_id": "stray"}) + answer

    async with ScriptedBroker(stray) as broker:
        link = link_to(broker)
        assert (await link.request(METADATA, 9, asking(1))).cluster_id == "mine"
        link.close()


async def test_nobody_listens() -> None:
    async with ScriptedBroker(cluster) as broker:
        pass
    link = link_to(broker)
    with pytest.raises(LinkError, match=f"127.0.0.1:{broker.port} cannot be reached"):
        await link.request(METADATA, 9, asking(1))


async def test_closed_while_it_connects() -> None:
    async with ScriptedBroker(cluster) as broker:
        link = link_to(broker)
        request = asyncio.ensure_future(link.request(METADATA, 9, asking(1)))
        await asyncio.sleep(0)
        link.close()
        with pytest.raises(LinkError, match="closed"):
            await request
        assert not link.connected


@pytest.fixture
async def connections(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.BufferedProtocol]:
    """What links give the loop, which hands it the bytes that come."""
    made: list[asyncio.BufferedProtocol] = []
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def noted(*args: Any, **named: Any) -> Any:
        transport, protocol = await connect(*args, **named)
        made.append(protocol)
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", noted)
    return made


def arrives(connection: asyncio.BufferedProtocol, correlation_id: int) -> None:
    """An answer of nothing but its header comes in."""
    answer = struct.pack(">ii", 4, correlation_id)
    memoryview(connection.get_buffer(len(answer)))[: len(answer)] = answer
    connection.buffer_updated(len(answer))


async def test_who_is_cancelled_stays_cancelled_though_the_answer_has_just_come(
    connections: list[asyncio.BufferedProtocol],
) -> None:
    """Where it did not, a dropped sender of the controller ran on (found by the simulator, seed 25)."""
    async with ScriptedBroker(lambda asked: Hang()) as broker:
        link = link_to(broker)
        task = asyncio.ensure_future(link.request_frame(7, b"\0\0\0\0"))
        while not link.connected:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        arrives(connections[0], 7)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        link.close()


async def test_an_answer_that_comes_in_the_turn_its_time_is_up_counts(
    connections: list[asyncio.BufferedProtocol],
) -> None:
    """The time-out's callback runs after the answer's, and before who waits has had it."""
    async with ScriptedBroker(lambda asked: Hang()) as broker:
        link = link_to(broker)
        first = asyncio.ensure_future(link.request_frame(6, b"\0\0\0\0"))
        while not link.connected:
            await asyncio.sleep(0)
        first.cancel()
        task = asyncio.ensure_future(link.request_frame(7, b"\0\0\0\0", timeout_s=0.001))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(arrives, connections[0], 7)
        time.sleep(0.002)  # both are due in the loop's next turn
        assert await task == b"\0\0\0\7"
        assert link.connected
        link.close()
