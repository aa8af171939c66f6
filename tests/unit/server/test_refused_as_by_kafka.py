"""Requests that Kafka 3.9 refuses, and what it answers."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
METADATA, OFFSET_COMMIT, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, OFFSET_DELETE = 3, 8, 10, 19, 20, 47
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 32, 33, 44, 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SaslClient]:
    settings = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "true"}
    async with InsideBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        await started.create_topic("t", 1)
        client = await SaslClient.connect(started.port)
        yield client
        await client.close()


async def test_a_topic_is_deleted_by_its_name_or_by_its_id(client: SaslClient) -> None:
    """By both it could be another one of that name which is deleted: of the id nothing would be left."""
    both = [{"name": "t", "topic_id": uuid.uuid4()}]
    (answer,) = (await client.ask(DELETE_TOPICS, 6, topics=both, timeout_ms=1000)).responses
    assert answer.error_code == int(ErrorCode.INVALID_REQUEST)
    (topic,) = (await client.ask(METADATA, 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)).topics
    assert topic.error_code == 0


@pytest.mark.parametrize("copies", [1, 2])
async def test_the_name_of_a_quorums_log_is_reserved(client: SaslClient, copies: int) -> None:
    topic = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
    (answer,) = (await client.ask(CREATE_TOPICS, 7, topics=[topic] * copies, timeout_ms=1000)).topics
    assert answer.error_code == int(ErrorCode.INVALID_REQUEST)
    assert answer.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    named = [{"name": "__cluster_metadata"}]
    (found,) = (await client.ask(METADATA, 9, topics=named, allow_auto_topic_creation=True)).topics
    assert found.error_code == int(ErrorCode.INVALID_REQUEST)


async def test_a_name_that_no_topic_can_have_is_told_from_one_that_is_only_unknown(client: SaslClient) -> None:
    """Clients give up on the first, and ask again for the other."""
    names = ["", "..", "a/b", "x" * 250, "no-topic"]
    invalid, unknown = int(ErrorCode.INVALID_TOPIC_EXCEPTION), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # The second has more names than are answered in one turn.
    for asked in (names, [*names, *(f"{'no-topic-' * 9}{n}" for n in range(500))]):
        named = [{"name": name} for name in asked]
        answer = await client.ask(METADATA, 9, topics=named, allow_auto_topic_creation=False)
        assert {t.name: t.error_code for t in answer.topics} == {
            name: invalid if name in names[:4] else unknown for name in asked
        }
    resources = [{"resource_type": 2, "resource_name": name} for name in names]
    told = (await client.ask(DESCRIBE_CONFIGS, 4, resources=resources)).results
    assert {t.resource_name: t.error_code for t in told} == {n: invalid if n != "no-topic" else unknown for n in names}


async def test_settings_of_an_empty_list_are_all(client: SaslClient) -> None:
    asked = {"resource_type": 2, "resource_name": "t"}
    found = []
    both: tuple[list[str] | None, ...] = (None, [])
    for keys in both:
        (told,) = (await client.ask(DESCRIBE_CONFIGS, 4, resources=[{**asked, "configuration_keys": keys}])).results
        found.append([setting.name for setting in told.configs])
    assert "retention.ms" in found[0]
    assert found[0] == found[1]


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (0, 115), (3, 115)])
async def test_a_broker_is_no_endpoint_of_controllers(client: SaslClient, kind: int, code: int) -> None:
    assert (await client.ask(DESCRIBE_CLUSTER, 1, endpoint_type=kind)).error_code == code


async def test_offsets_are_kept_for_the_longest_time_there_is(client: SaslClient) -> None:
    """Old clients ask for it: the end of that time is no number of 64 bits."""
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    committing = {
        "group_id": "for ever",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": 2**63 - 1,
        "topics": [{"name": "t", "partitions": [commit]}],
    }
    await found_coordinator(client, "for ever")
    code, not_yet = 16, (14, 16)  # COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
    async with asyncio.timeout(60):
        while code in not_yet:
            code = (await client.ask(OFFSET_COMMIT, 4, **committing)).topics[0].partitions[0].error_code
    assert code == 0


async def found_coordinator(client: SaslClient, group: str) -> None:
    async with asyncio.timeout(60):
        while (await client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])).coordinators[0].error_code:
            await asyncio.sleep(0.02)


async def test_offsets_of_unknown_partitions_are_not_deleted(client: SaslClient) -> None:
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    committing = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "t", "partitions": [commit]}],
    }
    await found_coordinator(client, "g")
    async with asyncio.timeout(60):
        while (await client.ask(OFFSET_COMMIT, 8, **committing)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.02)
    asked = [
        {"name": "t", "partitions": [{"partition_index": 9}, {"partition_index": 0}]},
        {"name": "no-topic", "partitions": [{"partition_index": 0}]},
    ]
    answer = await client.ask(OFFSET_DELETE, 0, group_id="g", topics=asked)
    told = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert told == {("t", 9): unknown, ("t", 0): 0, ("no-topic", 0): unknown}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "t"])
async def test_topics_are_named_by_their_ids_from_the_twelfth_version_on(
    client: SaslClient, version: int, name: str | None
) -> None:
    """The two versions before have the field, and no null name in an answer: the connection was closed."""
    (known,) = (await client.ask(METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=False)).topics
    for topic_id in (known.topic_id, uuid.uuid4()):
        # The second has more names than are answered in one turn.
        for more in (0, 5000):
            asked = [{"name": name, "topic_id": topic_id}, *({"name": f"no-topic-{n}"} for n in range(more))]
            answer = await client.ask(METADATA, version, topics=asked, allow_auto_topic_creation=False)
            assert {t.error_code for t in answer.topics} == {int(ErrorCode.INVALID_REQUEST)}
            assert (len(answer.topics), answer.topics[0].name) == (1 + more, name or "")
    if name is None:
        answer = await client.ask(METADATA, version, topics=[{"name": None}], allow_auto_topic_creation=False)
        assert [(t.name, t.error_code) for t in answer.topics] == [("", int(ErrorCode.INVALID_REQUEST))]


async def test_there_is_no_default_topic(client: SaslClient) -> None:
    """Of brokers the empty name means all."""
    for api_key, version in ((ALTER_CONFIGS, 2), (INCREMENTAL_ALTER_CONFIGS, 1)):
        asked = [{"resource_type": 2, "resource_name": "", "configs": []}]
        (told,) = (await client.ask(api_key, version, resources=asked, validate_only=False)).responses
        assert told.error_code == int(ErrorCode.INVALID_REQUEST)
