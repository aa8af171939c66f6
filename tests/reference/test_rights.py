"""ACLs in one cluster of both kinds: what either kind's broker or tool writes, the other obeys within a second."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.records.batch import Record, build
from tests.reference.both_kinds import BothKinds
from tests.support import kafka, wire_client
from tests.support.real_cluster import eventually
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.timeout(900)

KINDS = "KO"
# Everybody is ANONYMOUS here, brokers too: what has no ACL is allowed, so that they can act as brokers.
CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
PROMISED_S = 1.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("rights")
    with kafka.running(home, KINDS, CONFIG) as cluster, closing(BothKinds(cluster, KINDS)) as both:
        for name in ("secret", "pre-secret"):
            both.admin.create_topic(NewTopic(name, assignment={0: (0,), 1: (1,)}, configs={}))
        eventually(lambda: all(both.cluster.isrs_full(name) for name in ("secret", "pre-secret")), "led")
        yield both


def produced(both: BothKinds, topic: str) -> list[int]:
    """The answers of the brokers of both kinds, each for the partition that it leads."""
    data = bytes(build([Record(0, 1, b"k", b"v")]))
    codes = []
    for broker in (0, 1):
        parts = [{"index": broker, "records": data}]
        asked: dict[str, Any] = {"transactional_id": None, "acks": 1, "timeout_ms": 1000}
        asked["topic_data"] = [{"name": topic, "partition_data": parts}]
        answer = wire_client.ask(both.cluster.address(broker), 0, 9, asked)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    return codes


def obeyed(both: BothKinds, topic: str, codes: list[int]) -> float:
    """How many seconds it takes until both kinds answer so."""
    begun = time.monotonic()
    eventually(lambda: produced(both, topic) == codes, f"{topic} answered {codes}", 10)
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("name", "kind", "topic"),
    [
        ("secret", ResourcePatternType.LITERAL, "secret"),
        ("pre-", ResourcePatternType.PREFIXED, "pre-secret"),
    ],
)
@pytest.mark.parametrize("writer", [0, 1], ids=["Kafka writes", "ours writes"])
def test_what_either_kind_writes_both_obey(both: BothKinds, writer: int, name: str, kind: Any, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": both.cluster.address(writer)})
    deny = (AclOperation.WRITE, AclPermissionType.DENY)
    acl = AclBinding(ResourceType.TOPIC, name, kind, "User:ANONYMOUS", "*", *deny)
    obeyed(both, topic, [0, 0])
    for future in admin.create_acls([acl]).values():
        future.result(30)
    assert obeyed(both, topic, [29, 29]) < PROMISED_S
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for broker in (0, 1):
        client = AdminClient({"bootstrap.servers": both.cluster.address(broker)})
        assert client.describe_acls(everything).result(30) == [acl]
    other = AdminClient({"bootstrap.servers": both.cluster.address(1 - writer)})
    for future in other.delete_acls([everything]).values():
        assert future.result(30) == [acl]
    assert obeyed(both, topic, [0, 0]) < PROMISED_S
    with both.cluster.zookeeper() as zk:
        assert zk.get_children("/kafka-acl/Topic") == zk.get_children("/kafka-acl-extended/prefixed/Topic") == []


def test_kafka_s_tool_says_the_same_of_either(both: BothKinds) -> None:
    def acls(broker: int, *words: str) -> str:
        return kafka.tool("acls", "--bootstrap-server", both.cluster.address(broker), *words)

    user = ("--allow-principal", "User:CN=a b,O=x")
    for broker, words in (
        (1, ("--add", *user, "--producer", "--topic", "orders", "--transactional-id", "x")),
        (0, ("--add", *user, "--consumer", "--topic", "or", "--resource-pattern-type", "prefixed", "--group", "g")),
        (
            1,
            (
                "--add",
                "--deny-principal",
                "User:b",
                "--deny-host",
                "10.1.2.3",
                "--operation",
                "All",
                "--topic",
                "other",
            ),
        ),
    ):
        acls(broker, *words)
    eventually(lambda: listed(acls(0, "--list")) == listed(acls(1, "--list")), "the same list", 30)
    told = listed(acls(1, "--list"))
    assert len([line for line in told if "principal=" in line]) == 3 + 3 + 2 + 1
    found = [
        listed(acls(broker, "--list", "--topic", "orders", "--resource-pattern-type", "match")) for broker in (0, 1)
    ]
    assert found[0] == found[1] != []
    for broker in (0, 1):
        acls(broker, "--remove", "--force", *user, "--producer", "--topic", "orders", "--transactional-id", "x")
    kafka.tool(
        "acls", "--authorizer-properties", f"zookeeper.connect={both.cluster.description['zookeeper']}",
        "--authorizer", CONFIG["authorizer.class.name"], "--remove", "--force", "--topic", "other",
    )  # fmt: skip
    eventually(lambda: not any("name=other" in line for line in listed(acls(1, "--list"))), "removed by znodes", 30)


def listed(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def test_acls_in_another_zookeeper_are_the_same_to_both(tmp_path: Path) -> None:
    """authorizer.zookeeper.url and its kind: neither of the two looks for ACLs in the cluster's own ZooKeeper."""
    kafka.jars_or_skip()
    with running_zookeeper(tmp_path / "acls") as elsewhere:
        keys = {
            **CONFIG,
            "authorizer.zookeeper.url": f"{elsewhere.connect}/of-acls",
            "authorizer.zookeeper.session.timeout.ms": "7000",
        }
        with kafka.running(tmp_path / "cluster", KINDS, keys) as cluster, closing(BothKinds(cluster, KINDS)) as both:
            both.admin.create_topic(NewTopic("secret", assignment={0: (0,), 1: (1,)}, configs={}))
            eventually(lambda: both.cluster.isrs_full("secret"), "led")
            deny = (AclOperation.WRITE, AclPermissionType.DENY)
            for writer, operation in ((0, "User:ANONYMOUS"), (1, "User:*")):
                acl = AclBinding(ResourceType.TOPIC, "secret", ResourcePatternType.LITERAL, operation, "*", *deny)
                admin = AdminClient({"bootstrap.servers": both.cluster.address(writer)})
                for made in admin.create_acls([acl]).values():
                    made.result(30)
                assert obeyed(both, "secret", [29, 29]) < PROMISED_S
            with both.cluster.zookeeper() as zk:
                assert zk.exists("/kafka-acl/Topic/secret") is None
            there = KazooClient(elsewhere.connect)
            there.start(10)
            try:
                assert b"ANONYMOUS" in there.get("/of-acls/kafka-acl/Topic/secret")[0]
            finally:
                there.stop()
                there.close()
            elsewhere.stop()
            elsewhere.start()
            admin = AdminClient({"bootstrap.servers": both.cluster.address(0)})
            everything = AclBindingFilter(
                ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
            )
            eventually(lambda: admin.describe_acls(everything).result(30), "its ZooKeeper is back")

            def deleted() -> bool:
                try:
                    return all(future.result(30) is not None for future in admin.delete_acls([everything]).values())
                except KafkaException:
                    return False

            eventually(deleted, "the ACLs are deleted", 60)
            obeyed(both, "secret", [0, 0])
