"""The controller's requests about very many partitions: no client waits for them, and each is seen as a whole."""

import gc
import struct
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from logyard.broker.model import LEADER_DURING_DELETE
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import frame_of, least_answer
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
MANY = 100_000
# One topic that has all partitions, as many topics as partitions, and what is between.
TOPICS = [1, pytest.param(2_000, marks=[pytest.mark.long, pytest.mark.slow]), MANY]
# A turn has some milliseconds' work; the largest of UpdateMetadata and StopReplica took 33.
TURN_S = 0.06
LEADER_AND_ISR_TURN_S = 0.05
BROKER = {
    "id": 1,
    "endpoints": [{"port": 9092, "host": "h", "listener": "PLAINTEXT", "security_protocol": 0}],
    "rack": None,
}
FROM = {"controller_id": 1, "controller_epoch": 9, "broker_epoch": -1, "is_kraft_controller": False}


@pytest_asyncio.fixture(loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


async def ask(broker: InsideBroker, key: int, version: int, asked: dict[str, Any] | bytes) -> tuple[Any, float]:
    return await least_answer(broker, key, version, asked, TURN_S)


def of_topics(topics: int, state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "topic_name": f"many-{number}",
            "topic_id": UUID(int=number + 2),
            "partition_states": [state | {"partition_index": index} for index in range(MANY // topics)],
        }
        for number in range(topics)
    ]


EPOCHS = (9, 3)  # the controller's and the leader's; between them a state has its leader


def update(topics: int) -> bytes:
    """All partitions are led by broker 1."""
    state = {
        "controller_epoch": EPOCHS[0], "leader": 1, "leader_epoch": EPOCHS[1], "isr": [1, 2], "zk_version": 4,
        "replicas": [1, 2, 3], "offline_replicas": [],
    }  # fmt: skip
    return frame_of(UPDATE_METADATA, 8, FROM | {"live_brokers": [BROKER], "topic_states": of_topics(topics, state)})


def led_by(leader: int, told: bytes) -> bytes:
    """The same with another leader, in its place in the bytes: to write it all anew takes longer than to read it."""
    before, after = (struct.pack(">iii", EPOCHS[0], each, EPOCHS[1]) for each in (1, leader))
    assert told.count(before) == MANY
    return told.replace(before, after)


@pytest.mark.parametrize("topics", TOPICS)
async def test_metadata_of_many_partitions(broker: InsideBroker, topics: int) -> None:
    metadata, told = broker.components.metadata, update(topics)
    for leader, left in ((1, MANY), (2, MANY), (LEADER_DURING_DELETE, 0)):
        answer, longest_s = await ask(broker, UPDATE_METADATA, 8, led_by(leader, told))
        assert answer.error_code == 0
        assert longest_s < TURN_S
        assert metadata.partition_count() == left
        assert len(list(metadata.topics())) == (topics if left else 0)
        assert {p.leader for p in metadata.partitions("many-0").values()} == ({leader} if left else set())
        assert metadata.topic_name(UUID(int=2)) == ("many-0" if left else None)


def order(topics: int) -> dict[str, Any]:
    state = {
        "controller_epoch": 9, "leader": 2, "leader_epoch": 3, "isr": [2], "partition_epoch": 4, "replicas": [2, 3],
        "adding_replicas": [], "removing_replicas": [], "is_new": True, "leader_recovery_state": 0,
    }  # fmt: skip
    return FROM | {"type": 1, "topic_states": of_topics(topics, state), "live_leaders": []}


@pytest.mark.parametrize("topics", TOPICS)
async def test_orders_about_many_partitions(broker: InsideBroker, topics: int) -> None:
    """None of them is this broker's. Of as many topics the freeing of the answer was the longest turn, 38 ms."""
    answer, longest_s = await least_answer(broker, LEADER_AND_ISR, 7, order(topics), LEADER_AND_ISR_TURN_S)
    told = [p.error_code for topic in answer.topics for p in topic.partition_errors]
    assert longest_s < LEADER_AND_ISR_TURN_S
    assert told == [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * MANY
    state = {"leader_epoch": 3, "delete_partition": False}
    answer, longest_s = await ask(broker, STOP_REPLICA, 3, FROM | {"topic_states": of_topics(topics, state)})
    assert longest_s < TURN_S
    assert [p.error_code for p in answer.partition_errors] == [0] * MANY


async def test_what_an_order_makes_is_not_all_searched_for_garbage(broker: InsideBroker) -> None:
    """Each search of a request of 100,000 topics took 0.2 to 0.5 s."""
    client = await SaslClient.connect(broker.port)
    frame = client.encode(LEADER_AND_ISR, 7, **order(MANY))
    searched: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            searched.append(about["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        client.send(frame)
        assert await client.frame(120) is not None
    finally:
        gc.callbacks.remove(note)
    await client.close()
    assert 2 not in searched
