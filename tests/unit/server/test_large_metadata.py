"""Metadata of very many partitions, asked for in some bytes: no other client waits for it."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.response import metadata_response
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import LEADER_DURING_DELETE, BrokerInfo, Endpoint, TopicPartition
from logyard.broker.protocol import codec
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import longest_turn
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
METADATA, VERSION = 3, 9
TOPICS, PARTITIONS = 5_000, 4
NAMES = [f"topic-{number}" for number in range(TOPICS)]
# A turn has some milliseconds' work; in one turn it takes 0.2 s.
TURN_S = 0.06
MADE = "logyard.broker.server.handlers.metadata.metadata_response"


def tell(broker: InsideBroker, names: list[str], leader: int = 1, topic_id: UUID | None = None) -> None:
    """The broker hears of these topics, or, by the leader, that they are gone."""
    itself = BrokerInfo(1, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", broker.port),))
    for name in names:
        updates = tuple(
            PartitionUpdate(TopicPartition(name, number), leader, 0, (1,), (1,), partition_epoch=0)
            for number in range(PARTITIONS)
        )
        ids = {} if topic_id is None else {name: topic_id}
        broker.components.metadata.apply_update(UpdateMetadata(1, 1, 1, updates, (itself,), ids))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    settings = {"auto.create.topics.enable": "false"}
    async with InsideBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        await started.create_topic(NAMES[0], PARTITIONS)  # after this its controller has nothing more to tell
        tell(started, NAMES)
        yield started


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose parts of an answer were made, in their order."""
    found: list[str] = []

    def noting(*asked: Any, **more: Any) -> dict[str, Any]:
        fields = metadata_response(*asked, **more)
        found.extend(topic["name"] for topic in fields["topics"])
        return fields

    monkeypatch.setattr(MADE, noting)
    return found


async def told_bytes(broker: InsideBroker, topics: list[str] | None, **more: Any) -> memoryview:
    client = await SaslClient.connect(broker.port)
    named = None if topics is None else [{"name": name} for name in topics]
    client.send(client.encode(METADATA, VERSION, topics=named, allow_auto_topic_creation=False, **more))
    answer = await client.frame(60)
    await client.close()
    assert answer is not None
    return memoryview(answer)


async def ask(broker: InsideBroker, topics: list[str] | None, **more: Any) -> Any:
    return codec.decode_response(METADATA, VERSION, await told_bytes(broker, topics, **more))[1]


@pytest.mark.parametrize("topics", [None, NAMES[:1000][::-1]])
async def test_others_have_their_turns_and_it_is_kept(
    broker: InsideBroker, made: list[str], topics: list[str] | None
) -> None:
    tell(broker, ["later"])
    tell(broker, ["later"], LEADER_DURING_DELETE)  # what was kept before is outdated
    gc.disable()
    try:
        async with longest_turn() as longest:
            answer = await told_bytes(broker, topics)
    finally:
        gc.enable()
    told = codec.decode_response(METADATA, VERSION, answer)[1]
    assert [topic.name for topic in told.topics] == (topics or NAMES)
    assert {topic.error_code for topic in told.topics} == {0}
    assert {tuple(p.partition_index for p in topic.partitions) for topic in told.topics} == {tuple(range(PARTITIONS))}
    assert [each.node_id for each in told.brokers] == [1]
    assert longest.seconds < TURN_S
    assert await ask(broker, topics) == told
    assert len(made) == len(topics or NAMES)


async def test_it_is_made_once_for_all_who_ask_meanwhile(broker: InsideBroker, made: list[str]) -> None:
    tell(broker, ["later"])
    answers = await asyncio.gather(*(ask(broker, None) for _ in range(10)))
    assert all(answer == answers[0] for answer in answers)
    assert made == [*NAMES, "later"]
    tell(broker, ["later"], LEADER_DURING_DELETE)


async def test_each_who_asks_has_an_answer_of_its_own_number(broker: InsideBroker) -> None:
    tell(broker, ["later"])
    tell(broker, ["later"], LEADER_DURING_DELETE)

    async def number(wanted: int) -> int:
        client = await SaslClient.connect(broker.port)
        for _ in range(wanted):
            frame = client.encode(METADATA, VERSION, topics=None)
        client.send(frame)
        answer = await client.frame(60)
        await client.close()
        assert answer is not None
        return codec.decode_response(METADATA, VERSION, memoryview(answer))[0]

    assert await asyncio.gather(*map(number, range(1, 6))) == [1, 2, 3, 4, 5]


async def test_those_that_differ_are_made_one_after_the_other(broker: InsideBroker, made: list[str]) -> None:
    """Each takes much memory while it is made."""
    tell(broker, ["later"])
    tell(broker, ["later"], LEADER_DURING_DELETE)
    await asyncio.gather(ask(broker, None), ask(broker, None, include_cluster_authorized_operations=True))
    assert made == NAMES * 2


async def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    broker: InsideBroker, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(broker, ["later"])

    def deleting(*asked: Any, **more: Any) -> dict[str, Any]:
        tell(broker, ["later"], LEADER_DURING_DELETE)
        return metadata_response(*asked, **more)

    with monkeypatch.context() as during:
        during.setattr(MADE, deleting)
        told = await ask(broker, None)
    assert [topic.name for topic in told.topics] == NAMES
    assert not made
    assert await ask(broker, None) == told
    assert made == NAMES, "what was begun before a change is not kept"


async def test_unknown_names_are_told_among_many(broker: InsideBroker) -> None:
    told = await ask(broker, [*NAMES[:1000], "nowhere"])
    assert told.topics[-1].name == "nowhere"
    assert [topic.error_code for topic in told.topics[-2:]] == [0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_who_has_no_rights_is_told_of_nothing(tmp_path: Path) -> None:
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    async with InsideBroker(tmp_path, acls) as denying:
        tell(denying, NAMES)
        assert (await ask(denying, None, include_topic_authorized_operations=True)).topics == []
        told = await ask(denying, NAMES[:1000])
    assert {topic.error_code for topic in told.topics} == {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    assert {len(topic.partitions) for topic in told.topics} == {0}


async def test_a_name_that_an_id_gets_meanwhile_is_not_told_without_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    new = UUID(int=7)
    async with InsideBroker(tmp_path, acls) as denying:
        tell(denying, NAMES)

        def creating(*asked: Any, **more: Any) -> dict[str, Any]:
            tell(denying, ["secret"], topic_id=new)
            return metadata_response(*asked, **more)

        monkeypatch.setattr(MADE, creating)
        client = await SaslClient.connect(denying.port)
        asked = [*({"name": name} for name in NAMES[:500]), {"name": None, "topic_id": new}]
        answer = await client.ask(METADATA, 12, topics=asked)
        await client.close()
    assert answer.topics[-1].topic_id == new
    assert answer.topics[-1].name is None
    assert {topic.error_code for topic in answer.topics} == {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
