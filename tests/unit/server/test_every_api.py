"""Every API by real requests: frames to the dispatcher of one whole broker, answers read back by the codec."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.protocol.schema import Field
from logyard.broker.protocol.structs import Struct
from logyard.broker.records.batch import Record, build
from logyard.broker.server.api import Api
from logyard.broker.server.api_table import APIS
from logyard.broker.server.request import Session
from tests.support.inside_broker import InsideBroker
from tests.support.messages import filled

TOPIC, GROUP, CLIENT = "t", "g", "c"
KEYS = {api.name: key for key, api in APIS.items()}
NAMED: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
NONE, PRODUCER_ID = ErrorCode.NONE, 4711

# Versions whose answer has no place for an error of the whole request, in Kafka neither.
UNTOLD = {("DescribeLogDirs", version) for version in range(3)}

# Names that handlers give though the message has none of them: one dict serves several APIs or versions.
SPARE = {"error_message", "group_id"}


class Asking:
    """Asks one broker by the names of Kafka's APIs, in the latest version or the one given."""

    def __init__(self, broker: InsideBroker) -> None:
        self.broker = broker
        self.session = Session(1, "PLAINTEXT", "127.0.0.1")

    async def __call__(self, api: str, /, version: int | None = None, **fields: Any) -> Any:
        key = KEYS[api]
        version = APIS[key].versions[1] if version is None else version
        frame = memoryview(bytearray(codec.encode_request(key, version, 7, CLIENT, fields)))[4:]
        answer: Any = self.broker.components.dispatcher(self.session, frame)
        if isinstance(answer, asyncio.Future):
            answer = await asyncio.wait_for(answer, 30)
        assert unknown_fields(codec.schema(key, "Request").fields, fields) == set()
        whole = b"".join(answer) if isinstance(answer, list) else answer
        correlation_id, body = codec.decode_response(key, version, memoryview(whole)[4:])
        assert correlation_id == 7
        return body

    async def produce(self, made: bytearray | bytes) -> None:
        part = {"index": 0, "records": bytes(made)}
        answer = await self("Produce", 9, acks=1, timeout_ms=1000, topic_data=[topic("name", partition_data=[part])])
        assert answer.responses[0].partition_responses[0].error_code == NONE


def topic(called: str, /, **fields: Any) -> dict[str, Any]:
    return {called: TOPIC, **fields}


@pytest.fixture
async def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asking]:
    encode = codec.encode_response

    def checked(api_key: int, version: int, correlation_id: int, fields: Any) -> bytes:
        assert unknown_fields(codec.schema(api_key, "Response").fields, fields) <= SPARE
        return encode(api_key, version, correlation_id, fields)

    monkeypatch.setattr(codec, "encode_response", checked)
    async with InsideBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        await broker.create_topic(TOPIC, 2)
        yield Asking(broker)


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code in a decoded answer."""
    if isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)
    elif isinstance(answer, Struct):
        for name in type(answer).__slots__:
            value: Any = getattr(answer, name, None)
            if name.endswith("error_code"):
                yield value
            else:
                yield from error_codes(value)


def unknown_fields(schema: tuple[Field, ...], fields: Any) -> set[str]:
    """The names that no version of the message has: the codec leaves them out without a word."""
    known = {f.name: f for f in schema}
    found = set(fields) - set(known)
    for name in set(fields) & set(known):
        values = fields[name] if known[name].is_array else [fields[name]]
        for value in values or ():
            if isinstance(value, Mapping):
                found |= unknown_fields(known[name].fields, value)
    return found


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.handler.message], ids=lambda api: api.name)
def test_what_a_handler_raises_is_told_in_every_version(api: Api) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
        told: set[int] = set()
        for seed in range(8):
            frame = codec.encode_request(api.key, version, 1, CLIENT, filled(api.key, "Request", version, seed))
            head = 12 if (api.key, version) == (7, 0) else 14 + len(CLIENT) + codec.is_flexible(api.key, version)
            asked = codec.decode_request(api.key, version, memoryview(bytearray(frame))[head:])
            fields = api.handler.error(asked, version, ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
            assert unknown_fields(codec.schema(api.key, "Response").fields, fields) <= SPARE
            answer = codec.encode_response(api.key, version, 1, fields)
            told.update(error_codes(codec.decode_response(api.key, version, memoryview(answer)[4:])[1]))
        if (api.name, version) not in UNTOLD:
            assert ErrorCode.KAFKA_STORAGE_ERROR in told, version


async def test_the_first_question_for_a_coordinator_makes_its_topic(ask: Asking) -> None:
    for _ in range(200):
        found = await ask("FindCoordinator", coordinator_keys=["x", "y"], key_type=1)
        codes = {c.error_code for c in found.coordinators}
        assert codes <= {NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        if codes == {NONE}:
            break
        await asyncio.sleep(0.02)
    assert [(c.key, c.node_id) for c in found.coordinators] == [("x", 1), ("y", 1)]
    assert (await ask("FindCoordinator", 3, key="x", key_type=1)).node_id == 1
    known = await ask("Metadata", topics=None, allow_auto_topic_creation=False)
    assert {(t.name, len(t.partitions)) for t in known.topics if t.is_internal} == {("__transaction_state", 50)}
    asked = {"resource_type": 2, "resource_name": "__transaction_state", "configuration_keys": None}
    (described,) = (await ask("DescribeConfigs", resources=[asked])).results
    held = {c.name: c.value for c in described.configs}
    chosen = ("cleanup.policy", "compression.type", "unclean.leader.election.enable", "min.insync.replicas")
    assert [held[name] for name in chosen] == ["compact", "uncompressed", "false", "1"]
    assert held["segment.bytes"] == "104857600"


async def joined_group(ask: Asking) -> dict[str, Any]:
    """Have a member join the group; returns group, member and generation, as requests name them."""
    for _ in range(100):
        found = await ask("FindCoordinator", coordinator_keys=[GROUP], key_type=0)
        if found.coordinators[0].error_code == NONE:
            break
        await asyncio.sleep(0.02)
    assert found.coordinators[0].node_id == 1
    joins: dict[str, Any] = {
        "group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
    }  # fmt: skip
    for _ in range(100):
        joined = await ask("JoinGroup", member_id="", **joins)
        if joined.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
        await asyncio.sleep(0.02)
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member = joined.member_id
    joined = await ask("JoinGroup", member_id=member, **joins)
    assert (joined.error_code, joined.leader, [m.member_id for m in joined.members]) == (NONE, member, [member])
    who = {"group_id": GROUP, "member_id": member, "generation_id": joined.generation_id}
    synced = await ask("SyncGroup", **who, **NAMED, assignments=[{"member_id": member, "assignment": b"mine"}])
    assert (synced.error_code, bytes(synced.assignment)) == (NONE, b"mine")
    return who


async def commit(ask: Asking, who: Mapping[str, Any]) -> list[int]:
    """Commit offset 2 of partition 0, 3 of 1, and one of a partition that is not there; returns the errors."""
    commits = [
        {"partition_index": p, "committed_offset": p + 2, "committed_leader_epoch": 0, "committed_metadata": "m"}
        for p in (0, 1, 9)
    ]
    answer = await ask(
        "OffsetCommit", group_id=GROUP, member_id=who["member_id"],
        generation_id_or_member_epoch=who["generation_id"], topics=[topic("name", partitions=commits)],
    )  # fmt: skip
    return [p.error_code for p in answer.topics[0].partitions]


async def test_a_member_joins_and_commits(ask: Asking) -> None:
    who = await joined_group(ask)
    assert (await ask("Heartbeat", **who)).error_code == NONE
    assert await commit(ask, who) == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    fetched = await ask("OffsetFetch", groups=[{"group_id": GROUP, "topics": None}], require_stable=True)
    partitions = fetched.groups[0].topics[0].partitions
    assert [(p.committed_offset, p.metadata, p.error_code) for p in partitions] == [(2, "m", NONE), (3, "m", NONE)]
    fetched = await ask("OffsetFetch", 1, group_id="nobody", topics=[topic("name", partition_indexes=[0])])
    assert fetched.topics[0].partitions[0].committed_offset == -1


async def test_offsets_of_version_0_are_kept_in_zookeeper_where_no_coordinator_looks(ask: Asking) -> None:
    await commit(ask, await joined_group(ask))
    old = [
        {"partition_index": p, "committed_offset": 7, "committed_metadata": "m" * length}
        for p, length in ((0, 4096), (1, 4097), (9, 1))
    ]
    answer = await ask("OffsetCommit", 0, group_id=GROUP, topics=[topic("name", partitions=old)])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [p.error_code for p in answer.topics[0].partitions] == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, unknown]
    fetched = await ask("OffsetFetch", 0, group_id=GROUP, topics=[topic("name", partition_indexes=[0, 1, 0, 9])])
    partitions = fetched.topics[0].partitions
    assert [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in partitions] == [
        (0, 7, "", NONE),
        (1, -1, "", unknown),
        (9, -1, "", unknown),
    ]
    fetched = await ask("OffsetFetch", 1, group_id=GROUP, topics=[topic("name", partition_indexes=[0])])
    assert fetched.topics[0].partitions[0].committed_offset == 2


async def test_a_group_is_shown(ask: Asking) -> None:
    await joined_group(ask)
    (listed,) = (await ask("ListGroups", states_filter=["stable"], types_filter=["Classic"])).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == (GROUP, "Stable", "classic")
    assert (await ask("ListGroups", states_filter=[], types_filter=["consumer"])).groups == []
    (described,) = (await ask("DescribeGroups", groups=[GROUP], include_authorized_operations=True)).groups
    assert (described.group_state, described.protocol_data, described.error_code) == ("Stable", "range", NONE)
    assert [(m.client_id, m.client_host) for m in described.members] == [(CLIENT, "/127.0.0.1")]
    assert described.authorized_operations > 0


async def test_a_group_is_left_and_deleted(ask: Asking) -> None:
    who = await joined_group(ask)
    await commit(ask, who)
    member = who["member_id"]
    delete: dict[str, Any] = {"group_id": GROUP, "topics": [topic("name", partitions=[{"partition_index": 0}])]}
    answer = await ask("OffsetDelete", **delete)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert (await ask("DeleteGroups", groups_names=[GROUP])).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    left = await ask("LeaveGroup", group_id=GROUP, members=[{"member_id": member, "group_instance_id": None}])
    assert (left.error_code, left.members[0].error_code) == (NONE, NONE)
    left = await ask("LeaveGroup", 0, group_id=GROUP, member_id=member)
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = await ask("OffsetDelete", **delete)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (NONE, NONE)
    results = (await ask("DeleteGroups", groups_names=[GROUP, "never"])).results
    assert [r.error_code for r in results] == [NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    answer = await ask("OffsetDelete", **delete)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_what_is_asked_of_a_partition_s_log(ask: Asking) -> None:
    await ask.produce(build([Record(0, 1_000, b"k", b"v")], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0))
    await ask.produce(build([Record(n, 1_000 + n, b"k", b"v") for n in range(3)]))
    (partition,) = (await ask("DescribeProducers", topics=[topic("name", partition_indexes=[0])])).topics[0].partitions
    (producer,) = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER_ID, 0, 0)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1_000, -1)
    (partition,) = (await ask("DescribeProducers", topics=[topic("name", partition_indexes=[1])])).topics[0].partitions
    assert (partition.error_code, partition.active_producers) == (NONE, [])
    (partition,) = (await ask("DescribeProducers", topics=[topic("name", partition_indexes=[9])])).topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asked = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20, "current_leader_epoch": 0}
    asked |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    head = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    fetched = await ask("Fetch", 12, **head, topics=[topic("topic", partitions=[asked])])
    (partition,) = fetched.responses[0].partitions
    assert (partition.error_code, partition.high_watermark, len(partition.records) > 0) == (NONE, 4, True)

    def at(timestamp: int, index: int = 0) -> list[dict[str, Any]]:
        query = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": -1}
        return [topic("name", partitions=[query])]

    for timestamp, offset in ((-1, 4), (-2, 0), (-3, 3), (1_001, 2)):
        (found,) = (await ask("ListOffsets", replica_id=-1, topics=at(timestamp))).topics[0].partitions
        assert (found.error_code, found.offset, found.leader_epoch) == (NONE, offset, 0)
    (found,) = (await ask("ListOffsets", 0, replica_id=-1, topics=at(-1))).topics[0].partitions
    assert found.old_style_offsets == [4]
    (found,) = (await ask("ListOffsets", replica_id=-1, topics=at(-1, 9))).topics[0].partitions
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    query = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    (end,) = (await ask("OffsetForLeaderEpoch", replica_id=-1, topics=[topic("topic", partitions=[query])])).topics
    assert (end.partitions[0].leader_epoch, end.partitions[0].end_offset) == (0, 4)
    query["current_leader_epoch"] = 5
    (end,) = (await ask("OffsetForLeaderEpoch", replica_id=-1, topics=[topic("topic", partitions=[query])])).topics
    assert end.partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    for offset, code, low in ((2, NONE, 2), (99, ErrorCode.OFFSET_OUT_OF_RANGE, -1)):
        delete = topic("name", partitions=[{"partition_index": 0, "offset": offset}])
        (deleted,) = (await ask("DeleteRecords", topics=[delete], timeout_ms=1000)).topics[0].partitions
        assert (deleted.error_code, deleted.low_watermark) == (code, low)

    (directory,) = (await ask("DescribeLogDirs", topics=[topic("topic", partitions=[0])])).results
    (held,) = directory.topics[0].partitions
    assert (directory.error_code, held.offset_lag, held.is_future_key) == (NONE, 0, False)
    assert held.partition_size > 0
    moved = {"path": directory.log_dir, "topics": [topic("name", partitions=[0])]}
    (answer,) = (await ask("AlterReplicaLogDirs", dirs=[moved])).results
    assert answer.partitions[0].error_code == NONE
    moved["path"] = "/elsewhere"
    (answer,) = (await ask("AlterReplicaLogDirs", dirs=[moved])).results
    assert answer.partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND


async def test_what_is_asked_of_the_cluster(ask: Asking) -> None:
    found = await ask("DescribeCluster", include_cluster_authorized_operations=True, endpoint_type=1)
    assert (found.controller_id, [b.broker_id for b in found.brokers]) == (1, [1])
    assert (len(found.cluster_id), found.cluster_authorized_operations > 0) == (22, True)
    refused = await ask("DescribeCluster", include_cluster_authorized_operations=False, endpoint_type=2)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE

    known = await ask("Metadata", topics=None, allow_auto_topic_creation=False)
    assert [(t.name, len(t.partitions), t.is_internal) for t in known.topics] == [(TOPIC, 2, False)]

    topics = [topic("topic", partitions=[0, 9])]
    elected = await ask("ElectLeaders", election_type=0, topic_partitions=topics, timeout_ms=1000)
    codes = {p.partition_id: p.error_code for p in elected.replica_election_results[0].partition_result}
    assert codes == {0: ErrorCode.ELECTION_NOT_NEEDED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    elected = await ask("ElectLeaders", election_type=0, topic_partitions=None, timeout_ms=1000)
    assert (elected.error_code, elected.replica_election_results) == (NONE, [])

    def move(*replicas: int) -> list[dict[str, Any]]:
        return [topic("name", partitions=[{"partition_index": 0, "replicas": list(replicas) or None}])]

    for replicas, code in (
        ((), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1,), NONE),
    ):
        answer = await ask("AlterPartitionReassignments", timeout_ms=1000, topics=move(*replicas))
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (NONE, code)
    answer = await ask("ListPartitionReassignments", timeout_ms=1000, topics=None)
    assert (answer.error_code, answer.topics) == (NONE, [])

    update = {"feature": "kraft.version", "max_version_level": 1, "upgrade_type": 1}
    answer = await ask("UpdateFeatures", timeout_ms=1000, feature_updates=[update], validate_only=True)
    assert [(r.feature, r.error_code) for r in answer.results] == [("kraft.version", ErrorCode.INVALID_REQUEST)]


async def test_what_brokers_ask_each_other(ask: Asking) -> None:
    broker = ask.broker.components
    me = {"broker_id": 1, "broker_epoch": broker.broker_epoch}
    block = await ask("AllocateProducerIds", **me)
    assert (block.error_code, block.producer_id_len) == (NONE, 1000)
    refused = await ask("AllocateProducerIds", broker_id=9, broker_epoch=1)
    assert refused.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    known = broker.metadata.partitions(TOPIC)[0]
    change = {
        "partition_index": 0, "leader_epoch": known.leader_epoch, "partition_epoch": known.partition_epoch,
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": broker.broker_epoch}], "leader_recovery_state": 0,
    }  # fmt: skip
    topics = [{"topic_id": broker.metadata.topic_id(TOPIC), "partitions": [change]}]
    (altered,) = (await ask("AlterPartition", **me, topics=topics)).topics[0].partitions
    assert (altered.error_code, altered.leader_id, altered.isr) == (NONE, 1, [1])
    change["leader_epoch"] = known.leader_epoch - 1
    (altered,) = (await ask("AlterPartition", **me, topics=topics)).topics[0].partitions
    assert altered.error_code == ErrorCode.FENCED_LEADER_EPOCH

    past = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": broker.broker_epoch}
    for api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata"):
        assert (await ask(api, **past)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    left = await ask("ControlledShutdown", **me)
    assert (left.error_code, left.remaining_partitions) == (NONE, [])
    refused = await ask("ControlledShutdown", broker_id=1, broker_epoch=0)
    assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_log_ins_are_refused_where_there_are_none(ask: Asking) -> None:
    assert (await ask("SaslHandshake", mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await ask("SaslAuthenticate", auth_bytes=b"\0u\0p")).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_every_handler_is_named_by_a_test() -> None:
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    unnamed = [
        api.name
        for api in APIS.values()
        if f'"{api.name}"' not in texts
        and not re.search(rf"\b{re.sub('(?<!^)(?=[A-Z])', '_', api.name).lower()}\.(handle|HANDLER)\b", texts)
    ]
    assert unnamed == []
