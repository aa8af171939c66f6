"""Every API with the right, without it, and denied it, over sockets; the table of facts §18.5 is data here."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.protocol.structs import Struct
from logyard.broker.records.batch import Record, build
from logyard.broker.server.api_table import APIS
from logyard.broker.znodes.acls import Operation, ResourceType
from tests.support.principals import Acl, Secured, acl

WHO = "User:somebody"
Op, T, G, C, X = (
    Operation,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
CLUSTER = "kafka-cluster"
Right = tuple[Operation, ResourceType, str]


@dataclass
class Case:
    """A request; any of `rights` suffices beside `given`; without it the answer has exactly the codes `refused`."""

    api: str
    fields: dict[str, Any]
    rights: list[Right]
    refused: set[int]
    version: int | None = None
    given: list[Right] = field(default_factory=list)
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.api} v{'last' if self.version is None else self.version} {self.note}".strip()


def records(**kwargs: Any) -> bytes:
    return bytes(build([Record(0, 1, b"k", b"v")], **kwargs))


def on_cluster(operation: Operation) -> list[Right]:
    return [(operation, C, CLUSTER)]


def produce(topic: str, transactional_id: str | None = None) -> dict[str, Any]:
    data = records(producer_id=5, producer_epoch=0, base_sequence=0, transactional=transactional_id is not None)
    part = {"index": 0, "records": data}
    return {
        "transactional_id": transactional_id, "acks": 1, "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }  # fmt: skip


def fetch(topic: str, replica: int = -1) -> dict[str, Any]:
    part = {
        "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1,
        "last_fetched_epoch": -1, "log_start_offset": -1,
    }  # fmt: skip
    head = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
    return {"replica_id": replica, **head, "topics": [{"topic": topic, "partitions": [part]}]}


def committed(topic: str) -> dict[str, Any]:
    commit = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [{"name": topic, "partitions": [commit]}],
    }  # fmt: skip


def of_one_topic(topic: str) -> Iterator[Case]:
    note = f"on {topic}"
    offsets = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}]
    epochs = [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
    commit = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    commits = [{"name": topic, "partitions": [commit]}]
    member = {"generation_id_or_member_epoch": -1, "member_id": ""}
    named = [{"name": topic, "partition_indexes": [0]}]
    describe = [(o, T, topic) for o in (Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL)]
    read_group: list[Right] = [(Op.READ, G, "g")]
    yield Case("Produce", produce(topic), [(Op.WRITE, T, topic)], {29}, 9, note=note)
    yield Case("Produce", produce(topic), [(Op.WRITE, T, topic)], {29}, 11, note=note)
    yield Case("Fetch", fetch(topic), [(Op.READ, T, topic)], {29}, 12, note=note)
    yield Case("Fetch", fetch(topic, 1), on_cluster(Op.CLUSTER_ACTION), {29}, 12, note=f"follower, {note}")
    yield Case("ListOffsets", {"replica_id": -1, "topics": offsets}, describe, {29}, note=note)
    yield Case("ListOffsets", {"replica_id": -1, "topics": offsets}, describe, {29}, 0, note=note)
    yield Case("ListOffsets", {"replica_id": 1, "topics": offsets}, describe, {29}, note=f"follower, {note}")
    asked: dict[str, Any] = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    yield Case("Metadata", asked, describe, {29}, note=note)
    yield Case(
        "OffsetCommit", {"group_id": "g", **member, "topics": commits}, [(Op.READ, T, topic)], {29},
        8, given=read_group, note=note,
    )  # fmt: skip
    yield Case(
        "OffsetCommit", {"group_id": "g", "topics": commits}, [(Op.READ, T, topic)], {29},
        0, given=read_group, note=note,
    )  # fmt: skip
    groups: list[Any] = [{"group_id": "g", "topics": named}]
    for version, asked in (
        (0, {"group_id": "g", "topics": named}),
        (8, {"groups": groups, "require_stable": False}),
    ):
        yield Case(
            "OffsetFetch", asked, describe, {29}, version,
            given=[(Op.DESCRIBE, G, "g")], note=note,
        )  # fmt: skip
    yield Case(
        "OffsetForLeaderEpoch", {"replica_id": -1, "topics": epochs}, [*describe, *on_cluster(Op.CLUSTER_ACTION)],
        {29}, note=note,
    )  # fmt: skip


def of_one_topic_too(topic: str) -> Iterator[Case]:
    note = f"on {topic}"
    named = [{"name": topic, "partition_indexes": [0]}]
    commits = committed(topic)["topics"]
    delete = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 1000}
    yield Case("DeleteRecords", delete, [(Op.DELETE, T, topic)], {29}, note=note)
    configs: dict[str, Any] = {"resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": []}]}
    yield Case("DescribeConfigs", configs, [(Op.DESCRIBE_CONFIGS, T, topic), (Op.ALTER_CONFIGS, T, topic)], {29},
               note=note)  # fmt: skip
    alter = {"resources": [{"resource_type": 2, "resource_name": topic, "configs": []}], "validate_only": True}
    yield Case("AlterConfigs", alter, [(Op.ALTER_CONFIGS, T, topic)], {29}, note=note)
    yield Case("IncrementalAlterConfigs", alter, [(Op.ALTER_CONFIGS, T, topic)], {29}, note=note)
    more = {"topics": [{"name": topic, "count": 1, "assignments": None}], "timeout_ms": 1000, "validate_only": True}
    yield Case("CreatePartitions", more, [(Op.ALTER, T, topic)], {29}, note=note)
    gone = {"group_id": "g", "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    yield Case("OffsetDelete", gone, [(Op.READ, T, topic)], {29}, given=[(Op.DELETE, G, "g")], note=note)
    yield Case("DescribeProducers", {"topics": named}, [(Op.READ, T, topic)], {29}, note=note)
    in_transaction = {
        "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }  # fmt: skip
    yield Case("AddPartitionsToTxn", in_transaction, [(Op.WRITE, T, topic)], {29}, 3, given=[(Op.WRITE, X, "x")],
               note=note)  # fmt: skip
    offsets_of = {
        "transactional_id": "x", "group_id": "g", "producer_id": 1, "producer_epoch": 0, "topics": commits,
    }  # fmt: skip
    ids: list[Right] = [(Op.WRITE, X, "x"), (Op.READ, G, "g")]
    yield Case("TxnOffsetCommit", offsets_of, [(Op.READ, T, topic)], {29}, given=ids, note=note)


def of_topics() -> Iterator[Case]:
    """Each with a topic that is there and one that is not: the refusal is the same."""
    for topic in ("t", "missing"):
        yield from of_one_topic(topic)
        yield from of_one_topic_too(topic)
    delete = {"topics": [{"name": "missing"}], "timeout_ms": 0}
    yield Case("DeleteTopics", delete, [(Op.DELETE, T, "missing")], {29})
    yield Case("DeleteTopics", {"topic_names": ["missing"], "timeout_ms": 0}, [(Op.DELETE, T, "missing")], {29}, 1)
    create = {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 0,
              "validate_only": True}  # fmt: skip
    creates = [(Op.CREATE, C, CLUSTER), (Op.CREATE, T, "new")]
    yield Case("CreateTopics", create, creates, {29}, 4)
    described: list[Right] = [(Op.DESCRIBE_CONFIGS, T, "new")]
    yield Case("CreateTopics", create, creates, {29}, given=described)
    asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
    yield Case("Metadata", asked, creates, {29}, given=[(Op.DESCRIBE, T, "new")], note="creates")


def of_groups_and_ids() -> Iterator[Case]:
    read: list[Right] = [(Op.READ, G, "g")]
    write: list[Right] = [(Op.WRITE, X, "x")]
    describe = [(o, G, "g") for o in (Op.DESCRIBE, Op.READ, Op.DELETE, Op.ALL)]
    member = {"group_id": "g", "member_id": "m", "generation_id": 0}
    join = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 1, "protocol_type": "consumer"}
    join |= {"protocols": [{"name": "range", "metadata": b""}]}
    topics = [{"name": "t", "partition_indexes": [0]}]
    commit = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    commits = [{"name": "t", "partitions": [commit]}]
    commit_fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": commits}
    pair = {"producer_id": 1, "producer_epoch": 0}
    yield Case("OffsetCommit", commit_fields, read, {30}, given=[(Op.READ, T, "t")])
    yield Case("JoinGroup", {"group_id": "g", "member_id": "m", **join}, read, {30})
    yield Case("Heartbeat", member, read, {30})
    yield Case("LeaveGroup", {"group_id": "g", "members": [{"member_id": "m", "group_instance_id": None}]}, read, {30})
    sync = {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    yield Case("SyncGroup", sync, read, {30})
    yield Case("DescribeGroups", {"groups": ["g"]}, describe, {30})
    yield Case("DeleteGroups", {"groups_names": ["g"]}, [(Op.DELETE, G, "g")], {30})
    gone = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    yield Case("OffsetDelete", gone, [(Op.DELETE, G, "g")], {30}, given=[(Op.READ, T, "t")])
    yield Case("OffsetFetch", {"group_id": "g", "topics": topics}, describe, {30}, 1, given=[(Op.READ, T, "t")])
    yield Case("OffsetFetch", {"group_id": "g", "topics": topics}, describe, {30}, 0, given=[(Op.READ, T, "t")])
    grouped = {"groups": [{"group_id": "g", "topics": topics}], "require_stable": False}
    yield Case("OffsetFetch", grouped, describe, {30}, given=[(Op.READ, T, "t")])
    yield Case("FindCoordinator", {"key": "g"}, describe, {30}, 0)
    yield Case("FindCoordinator", {"key_type": 0, "coordinator_keys": ["g"]}, describe, {30})
    describe_id = [(o, X, "x") for o in (Op.DESCRIBE, Op.WRITE, Op.ALL)]
    yield Case("FindCoordinator", {"key_type": 1, "coordinator_keys": ["x"]}, describe_id, {53})
    yield Case("Produce", produce("t", "x"), write, {53}, 9, given=[(Op.WRITE, T, "t")])
    asked = {"transactional_id": "x", "transaction_timeout_ms": 1000}
    yield Case("InitProducerId", asked, write, {53}, 4)
    idempotent = {"transactional_id": None, "transaction_timeout_ms": 1000}
    anything: list[Right] = [(Op.IDEMPOTENT_WRITE, C, CLUSTER), (Op.WRITE, T, "any"), (Op.WRITE, T, "*")]
    yield Case("InitProducerId", idempotent, anything, {31}, 4, note="without an id")
    in_transaction = {f"v3_and_below_{key}": value for key, value in {"transactional_id": "x", **pair}.items()}
    in_transaction["v3_and_below_topics"] = [{"name": "t", "partitions": [0]}]
    yield Case("AddPartitionsToTxn", in_transaction, write, {53}, 3, given=[(Op.WRITE, T, "t")])
    add = {"transactional_id": "x", "group_id": "g", **pair}
    yield Case("AddOffsetsToTxn", add, write, {53}, given=read)
    yield Case("AddOffsetsToTxn", add, read, {30}, given=write)
    yield Case("EndTxn", {"transactional_id": "x", **pair, "committed": True}, write, {53})
    yield Case("TxnOffsetCommit", {**add, "topics": commits}, write, {53}, given=[*read, (Op.READ, T, "t")])
    yield Case("TxnOffsetCommit", {**add, "topics": commits}, read, {30}, given=[*write, (Op.READ, T, "t")])
    yield Case("DescribeTransactions", {"transactional_ids": ["x"]}, describe_id, {53})


def of_the_cluster() -> Iterator[Case]:
    action, alter = on_cluster(Op.CLUSTER_ACTION), on_cluster(Op.ALTER)
    describe = [(o, C, CLUSTER) for o in (Op.DESCRIBE, Op.ALTER, Op.ALL)]
    past = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": 0}
    for api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata"):
        yield Case(api, past, action, {31})
    yield Case("ControlledShutdown", {"broker_id": 9, "broker_epoch": 0}, action, {31})
    yield Case("AlterPartition", {"broker_id": 9, "broker_epoch": 0, "topics": []}, action, {31})
    yield Case("AllocateProducerIds", {"broker_id": 9, "broker_epoch": 0}, action, {31})
    yield Case("AddPartitionsToTxn", {"transactions": []}, action, {31})
    marker = {
        "producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": [{"name": "missing", "partition_indexes": [0]}],
    }  # fmt: skip
    yield Case("WriteTxnMarkers", {"markers": [marker]}, [*action, *alter], {31})
    nothing = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "principal_filter": "User:nobody",
        "host_filter": None,
    }
    yield Case("DescribeAcls", nothing, describe, {31})
    made = {"resource_type": 4, "resource_name": "other", "resource_pattern_type": 3, "principal": "User:a",
            "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    yield Case("CreateAcls", {"creations": [made]}, alter, {31})
    yield Case("DeleteAcls", {"filters": [nothing]}, alter, {31})
    configs = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": []}]}
    yield Case("DescribeConfigs", configs, [*on_cluster(Op.DESCRIBE_CONFIGS), *on_cluster(Op.ALTER_CONFIGS)], {31})
    change = {"resources": [{"resource_type": 4, "resource_name": "1", "configs": []}], "validate_only": True}
    yield Case("AlterConfigs", change, on_cluster(Op.ALTER_CONFIGS), {31})
    yield Case("IncrementalAlterConfigs", change, on_cluster(Op.ALTER_CONFIGS), {31})
    logger: dict[str, Any] = {"resource_type": 8, "resource_name": "1"}
    levels = {"resources": [{**logger, "configuration_keys": []}]}
    seen = [*on_cluster(Op.DESCRIBE_CONFIGS), *on_cluster(Op.ALTER_CONFIGS)]
    yield Case("DescribeConfigs", levels, seen, {31}, note="of a logger")
    level = {"resources": [{**logger, "configs": [{"name": "kafka.controller", "config_operation": 1, "value": None}]}]}
    yield Case("IncrementalAlterConfigs", level | {"validate_only": True}, on_cluster(Op.ALTER_CONFIGS), {31},
               note="of a logger")  # fmt: skip
    moved = {"dirs": [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]}
    yield Case("AlterReplicaLogDirs", moved, alter, {31})
    yield Case("DescribeLogDirs", {"topics": None}, describe, {31})
    election = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 0}
    yield Case("ElectLeaders", election, alter, {31})
    move = {"timeout_ms": 0, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]}
    yield Case("AlterPartitionReassignments", move, alter, {31})
    yield Case("ListPartitionReassignments", {"timeout_ms": 0, "topics": None}, describe, {31})
    configs_of = [*on_cluster(Op.DESCRIBE_CONFIGS), *on_cluster(Op.ALTER_CONFIGS)]
    yield Case("DescribeClientQuotas", {"components": [], "strict": False}, configs_of, {31})
    quota = {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}
    yield Case("AlterClientQuotas", {"entries": [quota], "validate_only": True}, on_cluster(Op.ALTER_CONFIGS), {31})
    yield Case("DescribeUserScramCredentials", {"users": None}, describe, {31})
    gone = {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []}
    yield Case("AlterUserScramCredentials", gone, alter, {31})
    update = {"feature": "x", "max_version_level": 1, "upgrade_type": 1}
    yield Case("UpdateFeatures", {"timeout_ms": 0, "feature_updates": [update], "validate_only": True}, alter, {31})


CASES = [*of_topics(), *of_groups_and_ids(), *of_the_cluster()]
IMPLY_DESCRIBE = (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
NEED_NOTHING = {"ApiVersions", "DescribeCluster", "SaslHandshake", "SaslAuthenticate"}
LEAVE_OUT = {"ListGroups", "ListTransactions"}
BY_SASL = {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"}


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with Secured(tmp_path, monkeypatch, **settings) as made:
        await made.create_topic("t", 1)
        root = await made.client("User:root")
        async with asyncio.timeout(30):
            while codes(await root.ask("FindCoordinator", key_type=0, coordinator_keys=["g"])):
                await asyncio.sleep(0.02)
            while codes(await root.ask("OffsetCommit", **committed("t"))):
                await asyncio.sleep(0.02)
        yield made


def codes(answer: Any) -> set[int]:
    """Every error code in a decoded answer, without 0: fields that its version does not have are 0 too."""
    if isinstance(answer, list):
        return {code for each in answer for code in codes(each)}
    if not isinstance(answer, Struct):
        return set()
    found: set[int] = set()
    for name in type(answer).__slots__:
        value: Any = getattr(answer, name, None)
        found |= {value} if name.endswith("error_code") else codes(value)
    return found - {0}


def given(case: Case) -> list[Acl]:
    return [acl(WHO, *right) for right in case.given]


def test_every_api_has_a_case() -> None:
    told = {case.api for case in CASES} | NEED_NOTHING | LEAVE_OUT | BY_SASL
    assert {api.name for api in APIS.values()} - told == set()


async def test_without_the_right_each_request_is_refused(broker: Secured) -> None:
    client = await broker.client(WHO)
    wrong = {}
    for case in CASES:
        # An ACL of another principal on everything: with none at all, a setting would decide.
        broker.put(*given(case), *(acl("User:other", *right) for right in case.rights))
        found = codes(await client.ask(case.api, case.version, **case.fields))
        if found != case.refused:
            wrong[case.name] = found
    assert wrong == {}


async def test_with_each_sufficient_right_each_request_gets_further(broker: Secured) -> None:
    client = await broker.client(WHO)
    wrong = {}
    for case in CASES:
        for right in case.rights:
            broker.put(*given(case), acl(WHO, *right))
            found = codes(await client.ask(case.api, case.version, **case.fields))
            if case.refused & found:
                wrong[case.name, right] = found
    assert wrong == {}


async def test_the_right_to_do_everything_is_each_right(broker: Secured) -> None:
    client = await broker.client(WHO)
    wrong = {}
    for case in CASES:
        for _, kind, name in case.rights[:1]:
            broker.put(*given(case), acl(WHO, Op.ALL, kind, name))
            found = codes(await client.ask(case.api, case.version, **case.fields))
            if case.refused & found:
                wrong[case.name] = found
    assert wrong == {}


async def test_a_denied_right_is_none(broker: Secured) -> None:
    client = await broker.client(WHO)
    wrong = {}
    for case in CASES:
        allowed = [acl("User:*", *right) for right in case.rights]
        denied = [acl(WHO, Op.ALL, kind, name, allows=False) for _, kind, name in case.rights]
        broker.put(*given(case), *allowed, *denied)
        found = codes(await client.ask(case.api, case.version, **case.fields))
        if found != case.refused:
            wrong[case.name] = found
    assert wrong == {}


async def test_an_unused_right_does_not_help(broker: Secured) -> None:
    """Every other operation on the same resource, from another host, and by another name."""
    client = await broker.client(WHO)
    wrong = {}
    for case in CASES:
        useful = {
            (kind, name): {o for o, k, n in case.rights if (k, n) == (kind, name)} for _, kind, name in case.rights
        }
        useless = [
            acl(WHO, operation, kind, name)
            for (kind, name), operations in useful.items()
            for operation in list(Op)[3:]
            if operation not in operations and (operation, kind, name) not in case.given
            if Op.DESCRIBE not in operations or operation not in IMPLY_DESCRIBE
        ]
        elsewhere = [acl(WHO, Op.ALL, kind, name, host="10.0.0.1") for _, kind, name in case.rights]
        broker.put(*given(case), *useless, *elsewhere)
        found = codes(await client.ask(case.api, case.version, **case.fields))
        if found != case.refused:
            wrong[case.name] = found
    assert wrong == {}
