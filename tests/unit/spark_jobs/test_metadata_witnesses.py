"""Whether a topic exists is asked of the controller; kafka-python asks real sockets here."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.spark_jobs import metadata
from logyard.spark_jobs.metadata import ClusterUnreachable, Metadata, MetadataClient, NotTold
from tests.support.scripted_broker import Answer, Asked, HangUp, ScriptedBroker

API_VERSIONS, METADATA = 18, 3
OFFERED = {API_VERSIONS: 3, METADATA: 9}
PARTITION: dict[str, Any] = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0}
PARTITION |= {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}


class Yard:
    """Three brokers, of which the first is asked where any will do. `controllers`: whom each takes for the controller;
    who is that knows topics, by error code (`codes`), and the others none, but for `informed`. `partitions`: how many
    of each topic a broker knows. `starting`: how many more looks at topics find a broker that has just started."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {"t": ErrorCode.NONE}
        self.controllers = {1: 2, 2: 2, 3: 2}
        self.away: set[int] = set()
        self.informed: set[int] = set()
        self.partitions = dict.fromkeys(self.controllers, 1)
        self.starting = 0
        self.brokers = [ScriptedBroker(partial(self._answer, b), b) for b in self.controllers]

    def _answer(self, broker: int, asked: Asked) -> Answer:
        if broker in self.away:
            return HangUp()
        if asked.api_key == API_VERSIONS:
            keys = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in OFFERED.items()]
            return {"error_code": 0, "api_keys": keys}
        codes = self.codes if self.controllers[broker] == broker or broker in self.informed else {}
        named = list(codes) if asked.body.topics is None else [topic.name for topic in asked.body.topics]
        here = [{"node_id": b.broker_id, "host": "127.0.0.1", "port": b.port, "rack": None} for b in self.brokers]
        if named and self.starting:
            self.starting, here, codes = self.starting - 1, [], {}
        return {
            "brokers": here,
            "cluster_id": "c",
            "controller_id": self.controllers[broker],
            "topics": [
                {
                    "error_code": int(code := codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
                    "name": name,
                    "is_internal": False,
                    "partitions": []
                    if code
                    else [{**PARTITION, "partition_index": n} for n in range(self.partitions[broker])],
                }
                for name in named
            ],
        }

    async def witnessed(self, *topics: str) -> Metadata:
        return await self.asked(lambda client: client.witnessed(topics))

    async def asked(self, ask: Callable[[MetadataClient], Metadata]) -> Metadata:
        def work() -> Metadata:
            client = MetadataClient(f"127.0.0.1:{self.brokers[0].port}", {})
            try:
                return ask(client)
            finally:
                client.close()

        return await asyncio.to_thread(work)


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    monkeypatch.setattr(random, "shuffle", lambda nodes: nodes.sort())  # so kafka-python asks the first
    made = Yard()
    async with AsyncExitStack() as stack:
        for broker in made.brokers:
            await stack.enter_async_context(broker)
        yield made


async def test_the_controller_knows_better(yard: Yard) -> None:
    assert (await yard.asked(lambda client: client.look(["t"]))).missing == ("t",)
    told = await yard.witnessed("t", "gone")
    assert (list(told.topics), told.missing) == (["t"], ("gone",))


async def test_the_controller_lists_all_topics_and_those_it_has_no_answer_for(yard: Yard) -> None:
    yard.codes = {"t": ErrorCode.NONE, "half-made": ErrorCode.LEADER_NOT_AVAILABLE}
    assert (await yard.asked(lambda client: client.look(None))).topics == {}
    told = await yard.asked(lambda client: client.witnessed(None))
    assert (list(told.topics), told.missing) == (["t"], ("half-made",))


def completed(client: MetadataClient) -> Metadata:
    return client.completed(client.look(["t", "gone"]))


@pytest.mark.parametrize(("controller", "away"), [(2, 3), (3, 2), (-1, 2), (2, 2)])
async def test_partitions_that_one_broker_has_not_heard_of_are_there(yard: Yard, controller: int, away: int) -> None:
    """Without a controller, and where it does not answer, another broker's word has to do."""
    yard.controllers = dict.fromkeys(yard.controllers, controller)
    yard.informed = {1, 2, 3}
    yard.partitions = {1: 2, 2: 5, 3: 5}
    yard.away = {away}
    told = await yard.asked(completed)
    assert sorted(told.topics["t"]) == list(range(5))
    assert told.missing == ("gone",)


async def test_where_nobody_else_answers_one_broker_has_to_do(yard: Yard) -> None:
    yard.controllers = dict.fromkeys(yard.controllers, -1)
    yard.informed, yard.away = {1}, {2, 3}
    assert list((await yard.asked(completed)).topics["t"]) == [0]
    yard.codes = {}
    assert (await yard.asked(completed)).topics == {}


async def test_without_a_controller_nobody_can_tell(yard: Yard) -> None:
    yard.controllers = dict.fromkeys(yard.controllers, -1)
    with pytest.raises(ClusterUnreachable, match="no controller now"):
        await yard.witnessed("gone")
    yard.controllers = {1: 2, 2: 3, 3: 3}
    with pytest.raises(ClusterUnreachable, match="broker 2 is not, or not yet, controller"):
        await yard.witnessed("gone")


async def test_who_says_alone_that_it_is_controller_is_no_witness(yard: Yard) -> None:
    yard.controllers = {1: 1, 2: 2, 3: 2}
    with pytest.raises(ClusterUnreachable, match="broker 2 knows another controller than broker 1"):
        await yard.witnessed("gone")


async def test_a_controller_that_knows_no_brokers_yet_is_no_witness(yard: Yard) -> None:
    yard.starting = 1
    with pytest.raises(ClusterUnreachable, match="broker 2 is not, or not yet, controller"):
        await yard.witnessed("gone")


async def test_a_broker_that_is_away_contradicts_nobody(yard: Yard) -> None:
    yard.controllers, yard.away = dict.fromkeys(yard.controllers, 1), {2}
    assert (await yard.witnessed("gone")).missing == ("gone",)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotTold),
        (ErrorCode.LEADER_NOT_AVAILABLE, ClusterUnreachable),
    ],
)
async def test_another_answer_is_not_that_it_is_gone(yard: Yard, code: ErrorCode, error: type[Exception]) -> None:
    yard.codes = {"t": code}
    with pytest.raises(error, match="topic t"):
        await yard.witnessed("t")


async def test_a_broker_that_has_just_started_is_asked_again(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.controllers = dict.fromkeys(yard.controllers, 1)
    yard.starting = 2
    assert list((await yard.asked(lambda client: client.look(["t"]))).topics) == ["t"]
    monkeypatch.setattr(metadata, "STARTING_S", 0.0)
    yard.starting = 9
    with pytest.raises(ClusterUnreachable, match="knows no brokers yet"):
        await yard.asked(lambda client: client.look(["t"]))
