"""What answers hide from whom, caches and fetch sessions included; the audit log (facts §18.4, §18.5)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.records.batch import Record, build
from logyard.broker.znodes.acls import Operation, PatternType, ResourceType
from tests.support.principals import Client, Secured, acl

A, B = "User:a", "User:b"
Op, T, G, C, X = (
    Operation,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
CLUSTER, NOT_ASKED = "kafka-cluster", -(2**31)


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with Secured(tmp_path, monkeypatch, **settings) as made:
        await made.create_topic("mine", 1)
        await made.create_topic("other", 1)
        yield made


async def topics(client: Client, *names: str, **fields: Any) -> dict[str | None, int]:
    asked = [{"name": name} for name in names] if names else None
    answer = await client.ask("Metadata", topics=asked, allow_auto_topic_creation=False, **fields)
    assert len(answer.brokers) == 1
    return {topic.name: topic.error_code for topic in answer.topics}


async def test_metadata_shows_each_principal_its_own(broker: Secured) -> None:
    a, b = await broker.client(A), await broker.client(B)
    broker.put(acl(A, Op.READ, T, "mi", kind=PatternType.PREFIXED), acl(B, Op.DESCRIBE, T, "other"))
    for _ in range(2):  # the second time from the cache
        assert await topics(a) == {"mine": 0}
        assert await topics(b) == {"other": 0}
        assert await topics(a, "mine", "other", "none") == {"mine": 0, "other": 29, "none": 29}
        assert await topics(await broker.client("User:root")) == {"mine": 0, "other": 0}
    broker.put(acl(B, Op.DESCRIBE, T, "*"))
    assert await topics(a) == {}
    assert await topics(b) == {"mine": 0, "other": 0}
    broker.put(acl(A, Op.ALL, T, "mine", host="10.1.1.1"))
    assert await topics(a, "mine") == {"mine": 29}


async def test_metadata_by_id_does_not_tell_the_name_nor_by_name_the_id(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    (topic,) = (await root.ask("Metadata", topics=[{"name": "mine"}], allow_auto_topic_creation=False)).topics
    broker.put(acl(B, Op.ALL, T, "*"))
    asked: dict[str, Any] = {"topics": [{"name": None, "topic_id": topic.topic_id}], "allow_auto_topic_creation": False}
    (hidden,) = (await a.ask("Metadata", **asked)).topics
    assert (hidden.error_code, hidden.name, hidden.topic_id, hidden.partitions) == (29, None, topic.topic_id, [])
    (named,) = (await a.ask("Metadata", topics=[{"name": "mine"}], allow_auto_topic_creation=False)).topics
    assert (named.error_code, named.topic_id.int, named.partitions) == (29, 0, [])


async def test_authorized_operations(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    broker.put(acl(A, Op.READ, T, "mine"), acl(A, Op.READ, G, "g"))
    asked: dict[str, Any] = {
        "topics": [{"name": "mine"}, {"name": "other"}, {"name": "none"}],
        "allow_auto_topic_creation": False,
    }
    asked["include_topic_authorized_operations"] = True
    for client, expected in (
        (a, {"mine": 1 << 3 | 1 << 8, "other": NOT_ASKED, "none": NOT_ASKED}),
        (root, {"mine": 3576, "other": 3576, "none": 3576}),
    ):
        answer = await client.ask("Metadata", **asked)
        assert {t.name: t.topic_authorized_operations for t in answer.topics} == expected
    for version, expected_a in ((8, 0), (10, 0)):
        for client, expected_bits in ((a, expected_a), (root, 8096)):
            fields = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": True}
            answer = await client.ask("Metadata", version, **fields)
            assert answer.cluster_authorized_operations == expected_bits
    described = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    assert (await a.ask("DescribeCluster", **described)).cluster_authorized_operations == 0
    broker.put(acl(A, Op.ALTER, C, CLUSTER), acl(A, Op.READ, G, "g"))
    assert (await a.ask("DescribeCluster", **described)).cluster_authorized_operations == 1 << 7 | 1 << 8
    assert (await root.ask("DescribeCluster", **described)).cluster_authorized_operations == 8096
    (group,) = (await a.ask("DescribeGroups", groups=["g"], include_authorized_operations=True)).groups
    assert group.authorized_operations == (NOT_ASKED if group.error_code else 1 << 3 | 1 << 8)


async def test_produce_refuses_topic_by_topic_and_acks_0_closes(broker: Secured) -> None:
    a = await broker.client(A)
    broker.put(acl(A, Op.WRITE, T, "mine"))
    part = [{"index": 0, "records": bytes(build([Record(0, 1, b"k", b"v")]))}]
    data = [{"name": name, "partition_data": part} for name in ("mine", "other", "none")]
    answer = await a.ask("Produce", 9, acks=1, timeout_ms=1000, topic_data=data)
    found = {t.name: t.partition_responses[0].error_code for t in answer.responses}
    assert found == {"mine": 0, "other": 29, "none": 29}
    many = [{"index": n, "records": part[0]["records"]} for n in range(60)]
    large = [{"name": "mine", "partition_data": part}, {"name": "other", "partition_data": many}]
    answer = await a.ask("Produce", 9, acks=1, timeout_ms=1000, topic_data=large)
    found = {t.name: {p.error_code for p in t.partition_responses} for t in answer.responses}
    assert found == {"mine": {0}, "other": {29}}
    with pytest.raises(ConnectionError):
        await a.ask("Produce", 9, acks=0, timeout_ms=1000, topic_data=data[1:2])


def fetch(**changes: Any) -> dict[str, Any]:
    part = {
        "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1,
        "last_fetched_epoch": -1, "log_start_offset": -1,
    }  # fmt: skip
    both = [{"topic": topic, "partitions": [part]} for topic in ("mine", "other")]
    head = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "session_epoch": 0}
    return {**head, "topics": both, **changes}


def fetched(answer: Any) -> dict[str, tuple[int, bool]]:
    return {t.topic: (t.partitions[0].error_code, bool(t.partitions[0].records)) for t in answer.responses}


async def produce(broker: Secured, topic: str) -> None:
    root = await broker.client("User:root")
    part = [{"index": 0, "records": bytes(build([Record(0, 1, b"k", b"v")]))}]
    data = [{"name": topic, "partition_data": part}]
    answer = await root.ask("Produce", 9, acks=1, timeout_ms=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_a_right_taken_away_acts_on_a_quiet_fetch_session(broker: Secured) -> None:
    a = await broker.client(A)
    broker.put(acl(A, Op.READ, T, "*"))
    opened = await a.ask("Fetch", 12, **fetch())
    assert fetched(opened) == {"mine": (0, False), "other": (0, False)}
    session = {"session_id": opened.session_id, "topics": []}
    assert fetched(await a.ask("Fetch", 12, **fetch(**session, session_epoch=1))) == {}
    broker.put(acl(A, Op.READ, T, "mine"))
    assert fetched(await a.ask("Fetch", 12, **fetch(**session, session_epoch=2))) == {"other": (29, False)}
    await produce(broker, "other")
    assert fetched(await a.ask("Fetch", 12, **fetch(**session, session_epoch=3))) == {"other": (29, False)}
    broker.put(acl(A, Op.READ, T, "*"))
    assert fetched(await a.ask("Fetch", 12, **fetch(**session, session_epoch=4))) == {"other": (0, True)}
    b = await broker.client(B)  # another principal goes on with the session
    found = fetched(await b.ask("Fetch", 12, **fetch(**session, session_epoch=5)))
    assert found == {"mine": (29, False), "other": (29, False)}


@pytest.mark.parametrize("in_session", [False, True])
async def test_a_right_taken_away_acts_on_a_fetch_that_waits(broker: Secured, in_session: bool) -> None:
    a = await broker.client(A)
    broker.put(acl(A, Op.READ, T, "*"))
    waits: dict[str, Any] = {"max_wait_ms": 20_000, "min_bytes": 1}
    if in_session:
        opened = await a.ask("Fetch", 12, **fetch())
        waits |= {"session_id": opened.session_id, "session_epoch": 1, "topics": []}
    else:
        waits["session_epoch"] = -1
    waiting = asyncio.ensure_future(a.ask("Fetch", 12, **fetch(**waits)))
    await asyncio.sleep(0.1)
    broker.put(acl(A, Op.READ, T, "mine"))
    await produce(broker, "other")
    found = fetched(await asyncio.wait_for(waiting, 10))
    assert found["other"] == (29, False)


async def test_who_only_says_that_it_is_a_follower_is_no_broker(broker: Secured) -> None:
    a = await broker.client(A)
    broker.put(acl(A, Op.READ, T, "*"))
    await produce(broker, "mine")
    found = fetched(await a.ask("Fetch", 12, **fetch(replica_id=1)))
    assert found == {"mine": (29, False), "other": (29, False)}
    assert not any(c.session.is_broker for c in broker.connections)


async def test_lists_leave_out_what_may_not_be_described(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    async with asyncio.timeout(30):
        for group in ("g", "h"):
            commit = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
            both = [{"name": n, "partitions": [{**commit, "committed_metadata": ""}]} for n in ("mine", "other")]
            asked: dict[str, Any] = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": both,
            }
            while True:
                await root.ask("FindCoordinator", key_type=0, coordinator_keys=[group])
                answer = await root.ask("OffsetCommit", **asked)
                if not answer.topics[0].partitions[0].error_code:
                    break
                await asyncio.sleep(0.02)
    broker.put(acl(A, Op.READ, G, "g"), acl(A, Op.DESCRIBE, T, "mine"))
    listed: dict[str, Any] = {"states_filter": [], "types_filter": []}
    assert [g.group_id for g in (await a.ask("ListGroups", **listed)).groups] == ["g"]
    assert len((await root.ask("ListGroups", **listed)).groups) == 2
    wanted = [{"group_id": group, "topics": None} for group in ("g", "h")]
    one, two = (await a.ask("OffsetFetch", groups=wanted, require_stable=False)).groups
    assert ([t.name for t in one.topics], one.error_code, two.error_code, two.topics) == (["mine"], 0, 30, [])
    broker.put(acl(A, Op.DESCRIBE, C, CLUSTER))
    assert len((await a.ask("ListGroups", **listed)).groups) == 2


async def test_of_topics_that_could_not_be_created_nothing_is_hidden(broker: Secured) -> None:
    """Kafka clears the second error with the settings where the first one comes of the creation itself."""
    a = await broker.client(A)
    broker.put(acl(A, Op.CREATE, C, CLUSTER))
    names = ("bad/name", "twice", "twice", "__cluster_metadata")
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    answer = await a.ask("CreateTopics", topics=wanted, timeout_ms=5000, validate_only=False)
    told = {t.name: (t.error_code, t.topic_config_error_code, t.configs) for t in answer.topics}
    assert told == {"bad/name": (17, 0, []), "twice": (42, 29, []), "__cluster_metadata": (42, 0, [])}


@pytest.mark.parametrize("is_tried_only", [True, False])
async def test_created_topics_show_their_settings_to_who_may_see_them(broker: Secured, is_tried_only: bool) -> None:
    a = await broker.client(A)
    broker.put(acl(A, Op.CREATE, C, CLUSTER), acl(A, Op.DESCRIBE_CONFIGS, T, "seen"))
    names = ("seen", "hidden")
    given = [{"name": "segment.bytes", "value": "100000"}]
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1, "configs": given} for name in names]
    answer = await a.ask("CreateTopics", topics=wanted, timeout_ms=5000, validate_only=is_tried_only)
    seen, hidden = sorted(answer.topics, key=lambda t: str(t.name), reverse=True)
    assert (seen.error_code, seen.topic_config_error_code, seen.num_partitions) == (0, 0, 1)
    assert bool(seen.topic_id.int) is not is_tried_only
    told = {one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in seen.configs}
    assert (told["segment.bytes"][:2], told["compression.type"][:2]) == (("100000", 1), ("producer", 5))
    assert (hidden.error_code, hidden.topic_config_error_code, hidden.num_partitions) == (0, 29, -1)
    assert (hidden.topic_id.int, hidden.replication_factor, hidden.configs) == (0, -1, [])
    if not is_tried_only:
        asked = [{"resource_type": 2, "resource_name": "seen", "configuration_keys": None}]
        (described,) = (await a.ask("DescribeConfigs", resources=asked)).results
        assert told == {
            one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in described.configs
        }


async def test_deleting_by_id_tells_the_name_only_to_who_may_describe_it(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    (topic,) = (await root.ask("Metadata", topics=[{"name": "mine"}], allow_auto_topic_creation=False)).topics
    asked: dict[str, Any] = {"topics": [{"name": None, "topic_id": topic.topic_id}], "timeout_ms": 5000}
    for given, expected in (
        ([acl(B, Op.ALL, T, "*")], (29, None)),
        ([acl(A, Op.DESCRIBE, T, "mine")], (29, "mine")),
        ([acl(A, Op.DELETE, T, "mine")], (0, "mine")),
    ):
        broker.put(*given)
        (found,) = (await a.ask("DeleteTopics", **asked)).responses
        assert (found.error_code, found.name) == expected
        assert found.topic_id == topic.topic_id
    broker.put(acl(B, Op.ALL, T, "*"))
    (found,) = (await a.ask("DeleteTopics", topics=[{"name": "other"}], timeout_ms=0)).responses
    assert (found.error_code, found.topic_id.int) == (29, 0)


# -- the audit log


async def test_the_audit_log_says_who_was_denied_what(broker: Secured) -> None:
    a = await broker.client("User:a b\nis Allowed")
    broker.put(acl(B, Op.ALL, T, "*"))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with structlog.testing.capture_logs() as lines:
        await topics(a, "mine")
        await topics(a)  # filters are not logged
        await topics(await broker.client("User:root"), "mine")  # nor what is allowed
        await a.ask("AllocateProducerIds", broker_id=1, broker_epoch=1)
        await a.ask("AllocateProducerIds", broker_id=1, broker_epoch=1)
    told = [line["event"] for line in lines if line["event"].startswith("Principal")]
    who = "Principal = 'User:a b\\nis Allowed' is Denied Operation = "
    where = " from host = 127.0.0.1 on resource = "
    broker_line = f"{who}ClusterAction{where}Cluster:LITERAL:kafka-cluster for request = AllocateProducerIds"
    assert told == [
        f"{who}Describe{where}Topic:LITERAL:mine for request = Metadata with resourceRefCount = 1",
        *[f"{broker_line} with resourceRefCount = 1"] * 2,
    ]
    assert len([line for line in lines if "super.users" in line["event"]]) == 1  # once for a principal


async def test_brokers_without_rights_are_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with Kafka's brokers the controller's requests are refused; one line for a principal says why."""
    async with Secured(tmp_path, monkeypatch, super_users="User:nobody") as broker:
        await asyncio.sleep(0.3)
        client = await broker.client(A)
        assert (await client.ask("DescribeCluster", endpoint_type=1)).brokers == []
    lines = [line for line in capsys.readouterr().out.splitlines() if "super.users of all brokers" in line]
    assert len(lines) == 1
    assert "User:ANONYMOUS" in lines[0]


async def test_what_is_allowed_is_logged_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Secured(tmp_path, monkeypatch, logyard_audit_allowed="true") as broker:
        await broker.create_topic("t", 1)
        root = await broker.client("User:root")
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
        with structlog.testing.capture_logs() as lines:
            for _ in range(2):
                await root.ask("DescribeLogDirs", topics=[])
                await root.ask("Metadata", topics=[{"name": "t"}], allow_auto_topic_creation=False)
    told = [line["event"] for line in lines if "User:root is Allowed" in line["event"]]
    for api in ("DescribeLogDirs", "Metadata"):
        assert len([line for line in told if f"= {api} with" in line]) == 2, api


# -- settings


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "AclAuthorizer"),
        ("super.users=admin", "super.users"),
    ],
)
def test_settings_that_are_refused(line: str, told: str) -> None:
    with pytest.raises(Exception, match=told):
        BrokerConfig.parse(f"broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181\n{line}")


async def test_who_only_tries_to_act_as_a_broker_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Secured(tmp_path, monkeypatch) as broker:
        a, root = await broker.client(A), await broker.client("User:root")
        broker.components.configs.set_quota("a", None, {"request_percentage": "0.0001"})
        broker.components.configs.set_quota("root", None, {"request_percentage": "0.0001"})
        asked = {"broker_id": 9, "broker_epoch": 0}
        refused = [await a.ask("ControlledShutdown", 3, **asked) for _ in range(2)]
        assert {answer.error_code for answer in refused} == {31}
        assert (await root.ask("ControlledShutdown", 3, **asked)).error_code != 31
        assert {c.session.principal for c in broker.connections if c.is_kept_waiting} == {A}
