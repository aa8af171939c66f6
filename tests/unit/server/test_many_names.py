"""Requests that name many things: what they cost the event loop grows with their number, and not with its square, nor
with what is there of one thing that is named again and again.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import longest_turn
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
CREATE_TOPICS, CREATE_PARTITIONS = 19, 37
NAMES = 20_000
BROKER = {"resource_type": 4, "resource_name": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    settings = {"offsets.topic.num.partitions": "1"}
    async with InsideBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        yield started


@pytest.mark.parametrize(
    ("key", "version", "topic"),
    [
        (CREATE_TOPICS, 5, {"num_partitions": 1, "replication_factor": 1}),
        (CREATE_PARTITIONS, 3, {"count": 2, "assignments": None}),
    ],
)
async def test_names_that_come_twice_are_found_at_once(
    broker: InsideBroker, key: int, version: int, topic: dict[str, Any]
) -> None:
    client = await SaslClient.connect(broker.port)
    topics = [{"name": f"t{number % (NAMES // 2)}"} | topic for number in range(NAMES)]
    async with longest_turn() as longest:
        answer = await client.ask(key, version, topics=topics, timeout_ms=1000, validate_only=True)
    found = answer.topics if key == CREATE_TOPICS else answer.results
    assert {one.error_code for one in found} == {int(ErrorCode.INVALID_REQUEST)}
    assert len(found) == NAMES // 2
    assert longest.seconds < 2  # a tenth of it; by comparing each with each, ten times as much
    await client.close()


@pytest.mark.parametrize(
    ("key", "version", "fields", "told"),
    [
        (3, 9, {"topics": [{"name": "t"}] * 50, "allow_auto_topic_creation": False}, "topics"),
        (9, 8, {"groups": [{"group_id": "g", "topics": None}] * 50}, "groups"),
        (15, 5, {"groups": ["g"] * 50}, "groups"),
        (
            32,
            4,
            {"resources": [BROKER | {"configuration_keys": None}] * 50},
            "results",
        ),
        (61, 0, {"topics": [{"name": "t", "partition_indexes": [0] * 50}] * 50}, "topics"),
        (65, 0, {"transactional_ids": ["x"] * 50}, "transaction_states"),
    ],
)
async def test_what_is_named_again_and_again_is_told_once(
    broker: InsideBroker, key: int, version: int, fields: dict[str, Any], told: str
) -> None:
    """Of a large group, say, a few kilobytes would have an answer of gigabytes."""
    client = await SaslClient.connect(broker.port)
    answer = await client.ask(key, version, **fields)
    (one,) = getattr(answer, told)
    assert len(getattr(one, "partitions", [])) <= 1
    await client.close()


async def test_what_is_asked_of_one_in_two_ways_is_told_in_both(broker: InsideBroker) -> None:
    client = await SaslClient.connect(broker.port)
    keys = [["log.dirs"], ["broker.id"], None, []]
    resources = [BROKER | {"configuration_keys": each} for each in keys]
    found = (await client.ask(32, 4, resources=resources)).results
    assert [len(one.configs) for one in found][:2] == [1, 1]
    assert len(found) == 3  # null and no name ask for the same: all
    parts = [{"name": "t", "partition_indexes": [number]} for number in (0, 1)]
    groups = [{"group_id": "g", "topics": [part]} for part in parts]
    assert len((await client.ask(9, 8, groups=groups)).groups) == 2
    (topic,) = (await client.ask(61, 0, topics=parts)).topics
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    await client.close()


async def test_a_commit_is_told_once(broker: InsideBroker) -> None:
    """It has up to 4 KB of text, and its partition four bytes in the request."""
    client = await SaslClient.connect(broker.port)
    topics = [{"name": "t", "partition_indexes": [0] * 50}] * 50
    async with asyncio.timeout(60):
        while (await client.ask(10, 4, key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
            await asyncio.sleep(0.02)
        while (answer := await client.ask(9, 7, group_id="g", topics=topics)).error_code:
            await asyncio.sleep(0.02)
    (topic,) = answer.topics
    assert [each.partition_index for each in topic.partitions] == [0]
    await client.close()


@pytest.mark.parametrize("version", [0, 2])
async def test_a_refusal_fits_into_its_answer(broker: InsideBroker, version: int) -> None:
    """A text of the protocol has 32,767 bytes at most: of a longer one clients would hear nothing."""
    client = await SaslClient.connect(broker.port)
    unknown = [{"name": f"no-such-setting-{number}", "value": "1"} for number in range(3000)]
    asked = [BROKER | {"configs": unknown}]
    (answer,) = (await client.ask(33, version, resources=asked, validate_only=True)).responses
    assert answer.error_code == int(ErrorCode.INVALID_CONFIG)
    assert answer.error_message.startswith("no-such-setting-0: unknown")
    (answer,) = (await client.ask(50, 0, users=[{"name": "ä" * 16_370}])).results
    assert answer.error_code == int(ErrorCode.RESOURCE_NOT_FOUND)
    await client.close()
