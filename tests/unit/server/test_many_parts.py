"""Requests of many small parts do not hold the event loop up, and are answered in full."""

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group, GroupState, Member
from logyard.broker.groups.offsets import Written
from logyard.broker.log.producers import ProducerEntry
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.server import authorization
from logyard.broker.server.handlers import join_group
from logyard.broker.server.large_answers import Pauses
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import timed_answer
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 2, 3, 8, 10
JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, DELETE_GROUPS, OFFSET_DELETE = 11, 13, 14, 42, 47
LIST_GROUPS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 16, 21, 23, 61
OFFSET_FETCH, DESCRIBE_GROUPS, ADD_PARTITIONS_TO_TXN, DESCRIBE_TRANSACTIONS = 9, 15, 24, 65
DESCRIBE_CONFIGS, LIST_TRANSACTIONS = 32, 66
NAMES = 60_000
PRODUCERS = 250_000
# A turn has some milliseconds' work; without turns it takes 0.2 s and more.
TURN_S = 0.1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    settings = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "true"}
    async with InsideBroker(tmp_path_factory.mktemp("broker"), settings) as started:
        await started.create_topic("t", 1)
        yield started


async def test_metadata_of_many_names(broker: InsideBroker) -> None:
    names = [f"no-{number}" for number in range(NAMES)]
    asked = {"topics": [{"name": name} for name in ["t", *names]], "allow_auto_topic_creation": False}
    answer, longest_s = await timed_answer(broker, METADATA, 9, asked)
    assert [topic.name for topic in answer.topics] == ["t", *names]
    assert [len(topic.partitions) for topic in answer.topics[:2]] == [1, 0]
    codes = {topic.error_code for topic in answer.topics[1:]}
    assert codes == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert [broker.node_id for broker in answer.brokers] == [1]
    assert longest_s < TURN_S


async def test_metadata_of_one_name_again_and_again(broker: InsideBroker) -> None:
    asked = {"topics": [{"name": "t"}] * NAMES, "allow_auto_topic_creation": True}
    answer, longest_s = await timed_answer(broker, METADATA, 9, asked)
    assert [topic.name for topic in answer.topics] == ["t"]
    assert longest_s < TURN_S


@pytest.mark.parametrize("version", [1, 9])
async def test_a_large_request_for_all_topics(broker: InsideBroker, version: int) -> None:
    """Bytes behind the last field are ignored, as in Kafka: it may have any size."""
    client = await SaslClient.connect(broker.port)
    frame = client.encode(METADATA, version, topics=None, allow_auto_topic_creation=False)[4:] + bytes(20_000)
    client.send(struct.pack(">i", len(frame)) + frame)
    answer = await client.frame()
    assert answer is not None
    assert "t" in {topic.name for topic in codec.decode_response(METADATA, version, memoryview(answer))[1].topics}
    await client.close()


async def test_a_large_request_creates_what_is_missing(broker: InsideBroker) -> None:
    asked = {"topics": [{"name": "t"}] * 9_000 + [{"name": "made"}], "allow_auto_topic_creation": True}
    answer, _ = await timed_answer(broker, METADATA, 9, asked)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("t", 0),
        ("made", int(ErrorCode.LEADER_NOT_AVAILABLE)),
    ]
    async with asyncio.timeout(30):
        while "made" not in broker.components.metadata:
            await asyncio.sleep(0.02)


async def test_the_coordinators_of_many_groups(broker: InsideBroker) -> None:
    asked = {"key_type": 0, "coordinator_keys": [f"g{number}" for number in range(NAMES)]}
    answer, longest_s = await timed_answer(broker, FIND_COORDINATOR, 4, asked)
    assert [found.key for found in answer.coordinators] == asked["coordinator_keys"]
    assert longest_s < TURN_S


LONG_NAMES = [f"{number:_<32000}" for number in range(100)]


@pytest.mark.parametrize(
    ("key", "version", "asked"),
    [
        (FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": LONG_NAMES}),
        (DESCRIBE_GROUPS, 5, {"groups": LONG_NAMES}),
        (DELETE_GROUPS, 2, {"groups_names": LONG_NAMES}),
        (OFFSET_FETCH, 8, {"groups": [{"group_id": name, "topics": None} for name in LONG_NAMES]}),
        (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": LONG_NAMES}),
        (ADD_PARTITIONS_TO_TXN, 4, {"transactions": [{"transactional_id": name} for name in LONG_NAMES]}),
    ],
)
async def test_names_of_any_length(broker: InsideBroker, key: int, version: int, asked: dict[str, Any]) -> None:
    """The partition of each is found by a hash that takes 3 ms."""
    await led_offsets(broker)
    _, longest_s = await timed_answer(broker, key, version, asked)
    assert longest_s < TURN_S


async def test_many_producers_of_a_partition(broker: InsideBroker) -> None:
    log = broker.components.replicas.hosted.partitions[TopicPartition("t", 0)].log
    assert log is not None
    for number in range(PRODUCERS):
        log.producers.entries[number] = ProducerEntry(number, 0)
    asked = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    answer, longest_s = await timed_answer(broker, DESCRIBE_PRODUCERS, 0, asked)
    (partition,) = answer.topics[0].partitions
    assert [producer.producer_id for producer in partition.active_producers] == list(range(PRODUCERS))
    assert longest_s < TURN_S


async def led_offsets(broker: InsideBroker) -> None:
    client = await SaslClient.connect(broker.port)
    async with asyncio.timeout(60):
        while (await client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
            await asyncio.sleep(0.02)
        while broker.components.coordinators.groups.availability("g") is not ErrorCode.NONE:
            await asyncio.sleep(0.02)
    await client.close()


async def test_a_commit_of_one_partition_again_and_again(broker: InsideBroker) -> None:
    """The last one counts, as in Kafka."""
    await led_offsets(broker)
    parts = [{"partition_index": 0, "committed_offset": n, "committed_metadata": ""} for n in range(NAMES)]
    parts.append({"partition_index": 7, "committed_offset": 1, "committed_metadata": ""})
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": [topic("t", parts)]}
    answer, longest_s = await timed_answer(broker, OFFSET_COMMIT, 8, asked)
    (told,) = answer.topics
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [p.error_code for p in told.partitions] == [0] * NAMES + [unknown]
    (found,) = broker.components.coordinators.groups.commits.fetch("g", {("t", 0)})[1]
    assert found[1].offset == NAMES - 1
    assert longest_s < TURN_S


def topic(name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "partitions": partitions}


async def test_the_offsets_of_many_partitions(broker: InsideBroker) -> None:
    parts = [{"partition_index": n, "timestamp": -1} for n in range(NAMES)]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [topic("t", parts)]}
    answer, longest_s = await timed_answer(broker, LIST_OFFSETS, 6, asked)
    (told,) = answer.topics
    assert [(p.partition_index, p.error_code, p.offset) for p in told.partitions[:2]] == [(0, 0, 0), (1, 3, -1)]
    assert len(told.partitions) == NAMES
    assert longest_s < TURN_S


PART = [{"partition_index": 0, "timestamp": -1}]


async def test_the_offsets_of_many_topics(broker: InsideBroker) -> None:
    names = [f"no-{number}" for number in range(NAMES * 5 // 2)]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [topic(name, PART) for name in names]}
    answer, longest_s = await timed_answer(broker, LIST_OFFSETS, 6, asked)
    assert [told.name for told in answer.topics] == names
    assert longest_s < TURN_S


async def test_a_partition_that_is_named_twice_in_a_large_request_is_not_searched(broker: InsideBroker) -> None:
    parts = [{"partition_index": n, "timestamp": 0} for n in [0, *range(1, 2000), 0]]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [topic("t", parts)]}
    answer, _ = await timed_answer(broker, LIST_OFFSETS, 6, asked)
    (told,) = answer.topics
    assert [p.partition_index for p in told.partitions] == [part["partition_index"] for part in parts]
    codes = [p.error_code for p in told.partitions]
    assert {codes[0], codes[-1]} == {int(ErrorCode.INVALID_REQUEST)}
    assert set(codes[1:-1]) == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}


async def no_topics(*asked: object) -> frozenset[str]:
    return frozenset()


@pytest.mark.parametrize(("key", "version"), [(LIST_OFFSETS, 6), (DELETE_RECORDS, 2)])
async def test_many_partitions_without_the_right(
    broker: InsideBroker, monkeypatch: pytest.MonkeyPatch, key: int, version: int
) -> None:
    monkeypatch.setattr(authorization, "topics_of_many", no_topics)
    parts = [{"partition_index": n, "timestamp": 0, "offset": 0} for n in range(8 * NAMES)]
    asked = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 0, "topics": [topic("t", parts)]}
    answer, longest_s = await timed_answer(broker, key, version, asked)
    (told,) = answer.topics
    assert len(told.partitions) == 8 * NAMES
    assert {p.error_code for p in told.partitions} == {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    assert longest_s < TURN_S


async def test_the_rights_on_many_names_are_asked_for_in_portions() -> None:
    asked: list[tuple[str, int]] = []
    turns: list[int] = []

    class Odd:
        is_open = False

        def allow(self, session: object, operation: object, resource: object, name: str, key: int, count: int) -> bool:
            asked.append((name, count))
            return int(name) % 2 == 1

    class Turns:
        async def next(self) -> None:
            turns.append(len(asked))

    services: Any = SimpleNamespace(rights=Odd(), turns=Turns())
    request: Any = SimpleNamespace(api_key=LIST_OFFSETS, session=None)
    names = [str(number) for number in range(1000)]
    found = await authorization.topics_of_many(services, request, Pauses(services), [*names, "7"])
    assert [name in found for name in names] == [False, True] * 500
    assert asked == [(name, 2 if name == "7" else 1) for name in names]
    # A refusal is written into the audit log: that takes longer.
    assert {after - before for before, after in itertools.pairwise(turns)} <= {0, 18, 19}


async def test_the_ends_of_epochs_of_many_partitions(broker: InsideBroker) -> None:
    parts = [{"partition": n, "leader_epoch": 0} for n in range(NAMES)]
    asked = {"replica_id": -1, "topics": [{"topic": "t", "partitions": parts}]}
    answer, longest_s = await timed_answer(broker, OFFSET_FOR_LEADER_EPOCH, 3, asked)
    (told,) = answer.topics
    assert [(p.partition, p.error_code) for p in told.partitions[:2]] == [(0, 0), (1, 3)]
    assert len(told.partitions) == NAMES
    assert longest_s < TURN_S


def members(count: int) -> list[dict[str, Any]]:
    return [{"member_id": f"m{number}", "group_instance_id": None} for number in range(count)]


@pytest.mark.parametrize(
    ("key", "version", "fields", "told"),
    [
        (LEAVE_GROUP, 4, lambda: {"group_id": "left", "members": members(4 * NAMES)}, "members"),
        (DELETE_GROUPS, 2, lambda: {"groups_names": [f"no-{number}" for number in range(4 * NAMES)]}, "results"),
    ],
)
async def test_many_members_and_groups_go(
    broker: InsideBroker, key: int, version: int, fields: Callable[[], dict[str, Any]], told: str
) -> None:
    await led_offsets(broker)
    left = Group("left", state_since_ms=0)
    left.add(Member("stays", None, "c", "/h", 60_000, 60_000, "consumer", ()))
    broker.components.coordinators.groups.roster.add(left)
    answer, longest_s = await timed_answer(broker, key, version, fields())
    assert len(getattr(answer, told)) == 4 * NAMES
    codes = {one.error_code for one in getattr(answer, told)}
    assert codes == {int(ErrorCode.UNKNOWN_MEMBER_ID if key == LEAVE_GROUP else ErrorCode.GROUP_ID_NOT_FOUND)}
    assert list(left.members) == ["stays"]
    assert longest_s < TURN_S


async def test_a_group_that_is_named_twice_is_deleted_once(broker: InsideBroker) -> None:
    await led_offsets(broker)
    group = Group("twice", state_since_ms=0)
    group.offsets.load(("t", 0), Written(0, OffsetCommit("t", 0, 5)))
    broker.components.coordinators.groups.roster.add(group)
    answer, _ = await timed_answer(broker, DELETE_GROUPS, 2, {"groups_names": ["twice", "no", "twice"]})
    codes = [(one.group_id, one.error_code) for one in answer.results]
    assert codes == [("twice", 0), ("no", int(ErrorCode.GROUP_ID_NOT_FOUND))]


async def test_all_members_leave_in_several_portions(broker: InsideBroker) -> None:
    await led_offsets(broker)
    group = Group("leaving", state_since_ms=0)
    for number in range(1000):
        group.add(Member(f"m{number}", None, "c", "/h", 60_000, 60_000, "consumer", (("range", b""),)))
    group.state = GroupState.STABLE
    broker.components.coordinators.groups.roster.add(group)
    answer, _ = await timed_answer(broker, LEAVE_GROUP, 4, {"group_id": "leaving", "members": members(1000)})
    assert answer.error_code == 0
    assert [(one.member_id, one.error_code) for one in answer.members] == [(f"m{n}", 0) for n in range(1000)]
    assert not group.members


async def test_offsets_of_many_partitions_are_deleted(broker: InsideBroker) -> None:
    await led_offsets(broker)
    group = Group("with-offsets", state_since_ms=0)
    group.offsets.load(("t", 0), Written(0, OffsetCommit("t", 0, 5)))
    broker.components.coordinators.groups.roster.add(group)
    parts = [{"partition_index": number} for number in [0, *range(4 * NAMES)]]
    answer, longest_s = await timed_answer(
        broker, OFFSET_DELETE, 0, {"group_id": group.group_id, "topics": [topic("t", parts)]}
    )
    assert answer.error_code == 0
    (told,) = answer.topics
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [p.error_code for p in told.partitions] == [0, 0] + [unknown] * (4 * NAMES - 1)
    assert not group.offsets.committed
    assert longest_s < TURN_S


async def test_a_leader_assigns_to_many(broker: InsideBroker) -> None:
    await led_offsets(broker)
    group = Group("assigned", GroupState.COMPLETING, generation=1, protocol="range")
    group.add(Member("m0", None, "c", "/h", 60_000, 60_000, "consumer", (("range", b""),)))
    broker.components.coordinators.groups.roster.add(group)
    assignments = [{"member_id": f"m{number}", "assignment": b"a"} for number in range(10 * NAMES)]
    asked = {"group_id": "assigned", "generation_id": 1, "member_id": "m0", "assignments": assignments}
    answer, longest_s = await timed_answer(broker, SYNC_GROUP, 3, asked)
    assert (answer.error_code, answer.assignment) == (0, b"a")
    assert longest_s < TURN_S


async def test_a_member_has_no_more_protocols_than_a_group_can_look_through(broker: InsideBroker) -> None:
    """A join with hundreds of thousands was one turn of the loop, and so was each of its group after it."""
    await led_offsets(broker)
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(10 * NAMES)]
    asked = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "protocol_type": "consumer"}
    answer, longest_s = await timed_answer(broker, JOIN_GROUP, 3, asked | {"protocols": protocols})
    assert answer.error_code == int(ErrorCode.INVALID_REQUEST)
    assert longest_s < TURN_S
    at_most = protocols[: join_group.PROTOCOLS_MAX]
    answer, _ = await timed_answer(broker, JOIN_GROUP, 4, asked | {"protocols": at_most})
    assert answer.error_code == int(ErrorCode.MEMBER_ID_REQUIRED)


async def test_many_groups_are_listed(broker: InsideBroker) -> None:
    await led_offsets(broker)
    roster = broker.components.coordinators.groups.roster
    names = [f"listed-{number}" for number in range(NAMES)]
    for name in names:
        roster.add(Group(name, state_since_ms=0))
    answer, longest_s = await timed_answer(broker, LIST_GROUPS, 4, {"states_filter": []})
    assert {group.group_id for group in answer.groups} >= set(names)
    assert longest_s < TURN_S


SHORT_NAMES = ["x"] * 1_500_000
NUMBERS = [*map(str, range(1_000_000)), "cleanup.policy"]


@pytest.mark.parametrize(
    ("key", "version", "asked"),
    [
        (LIST_GROUPS, 5, {"states_filter": SHORT_NAMES, "types_filter": SHORT_NAMES}),
        (LIST_TRANSACTIONS, 0, {"state_filters": SHORT_NAMES, "producer_id_filters": range(1_000_000)}),
        (
            DESCRIBE_CONFIGS,
            4,
            {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": NUMBERS}]},
        ),
    ],
)
async def test_filters_of_very_many_names(broker: InsideBroker, key: int, version: int, asked: dict[str, Any]) -> None:
    answer, longest_s = await timed_answer(broker, key, version, asked)
    if key == DESCRIBE_CONFIGS:
        assert [entry.name for entry in answer.results[0].configs] == ["cleanup.policy"]
    assert longest_s < TURN_S


async def test_a_large_request_is_refused_as_a_whole(broker: InsideBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*asked: object) -> None:
        raise ApiError(ErrorCode.INVALID_REQUEST)

    monkeypatch.setattr(authorization, "topics_of_many", refuse)
    parts = [{"partition_index": n, "timestamp": 0} for n in range(8 * NAMES)]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [topic("t", parts)]}
    answer, longest_s = await timed_answer(broker, LIST_OFFSETS, 6, asked)
    (told,) = answer.topics
    assert len(told.partitions) == 8 * NAMES
    assert {p.error_code for p in told.partitions} == {int(ErrorCode.INVALID_REQUEST)}
    assert longest_s < TURN_S
