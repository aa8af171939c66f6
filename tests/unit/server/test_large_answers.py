"""Small requests with large answers do not hold the event loop up, whatever the number of parts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group, Member
from logyard.broker.groups.offsets import Written
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.server.large_answers import PARTS_AT_ONCE, is_large
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import longest_turn
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
OFFSET_FETCH, DESCRIBE_GROUPS, DESCRIBE_LOG_DIRS = 9, 15, 35
GROUPS, COMMITS, MEMBERS = 300, 400, 400
REPLICAS = 100_000
ONE = "one with all"
# A turn has some milliseconds' work; without turns it takes 0.3 s and more.
TURN_S = 0.1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    settings = {"offsets.topic.num.partitions": "1"}
    async with InsideBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        client = await SaslClient.connect(started.port)
        async with asyncio.timeout(60):
            while (await client.ask(10, 4, key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
                await asyncio.sleep(0.02)
            while started.components.coordinators.groups.availability("g") is not ErrorCode.NONE:
                await asyncio.sleep(0.02)
        await client.close()
        for number in range(GROUPS):
            started.components.coordinators.groups.roster.add(_group(f"g{number}", COMMITS, MEMBERS))
        started.components.coordinators.groups.roster.add(_group(ONE, GROUPS * COMMITS, 1))
        yield started


def _group(name: str, commits: int, members: int) -> Group:
    group = Group(name, state_since_ms=0)
    for number in range(commits):
        commit = OffsetCommit(f"topic-{number % 10}", number // 10, number)
        group.offsets.load((commit.topic, commit.partition), Written(0, commit))
    for number in range(members):
        group.members[f"m{number}"] = Member(f"m{number}", None, "c", "/h", 9, 9, "consumer", ())
    return group


@pytest.mark.parametrize(
    ("key", "version", "fields", "parts"),
    [
        (OFFSET_FETCH, 8, {"groups": [{"group_id": f"g{n}", "topics": None} for n in range(GROUPS)]}, COMMITS),
        (OFFSET_FETCH, 8, {"groups": [{"group_id": ONE, "topics": None}], "require_stable": True}, GROUPS * COMMITS),
        (OFFSET_FETCH, 7, {"group_id": ONE, "topics": None}, GROUPS * COMMITS),
        (DESCRIBE_GROUPS, 5, {"groups": [f"g{n}" for n in range(GROUPS)]}, MEMBERS),
    ],
)
async def test_a_large_answer_is_made_in_portions(
    broker: InsideBroker, key: int, version: int, fields: dict[str, Any], parts: int
) -> None:
    client = await SaslClient.connect(broker.port)
    async with longest_turn() as longest:
        client.send(client.encode(key, version, **fields))
        answer = await client.frame()
    assert answer is not None
    assert longest.seconds < TURN_S
    await client.close()
    _, found = codec.decode_response(key, version, memoryview(answer))
    groups = found.groups or [found]
    assert len(groups) == len(fields.get("groups", [found]))
    assert {_parts(group) for group in groups} == {parts}


async def test_replicas_are_described_in_portions(broker: InsideBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = broker.components.store.log_dirs
    few = 20

    class Log:
        """What is told of a replica."""

        size, high_watermark, log_end_offset, is_future = 5, 9, 7, False
        failure: StorageError | None = None

        def __init__(self, tp: TopicPartition) -> None:
            self.tp, self.directory = tp, f"{path}/{tp.topic}-{tp.partition}"

    logs = [Log(TopicPartition(f"t{number // few}", number % few)) for number in range(REPLICAS)]
    gone, elsewhere = logs[3], logs[4]
    gone.failure, elsewhere.directory = StorageError("deleted"), f"{path}/inner/t0-4"
    monkeypatch.setattr(broker.components.store.logs, "everything", lambda: logs)
    client = await SaslClient.connect(broker.port)
    async with longest_turn() as longest:
        client.send(client.encode(DESCRIBE_LOG_DIRS, 4, topics=None))
        answer = await client.frame()
    assert answer is not None
    assert longest.seconds < TURN_S
    await client.close()
    _, found = codec.decode_response(DESCRIBE_LOG_DIRS, 4, memoryview(answer))
    [directory] = found.results
    assert (directory.error_code, directory.total_bytes > 0) == (0, True)
    listed = [
        (topic.name, each.partition_index, each.partition_size, each.offset_lag)
        for topic in directory.topics
        for each in topic.partitions
    ]
    assert listed == [(log.tp.topic, log.tp.partition, 5, 2) for log in [*logs[:3], *logs[5:]]]


def _parts(group: Any) -> int:
    return len(group.members) if hasattr(group, "members") else sum(len(topic.partitions) for topic in group.topics)


async def test_an_answer_of_few_parts_is_sent_in_the_turn_in_which_it_is_made() -> None:
    few: list[dict[str, Any]] = [{"partitions": [{}] * 9}] * (PARTS_AT_ONCE // 10)
    assert not is_large({"topics": few, "error_code": 0})
    assert is_large({"topics": [*few, {}]})
    assert is_large({"topics": [{"topics": few}] * 2})
