"""ACLs: what covers a name, what a filter accepts, what a producer needs, and which words are understood."""

import pytest

from logyard.admin.acls import acls
from logyard.admin.acls.acls import Acl, AclFilter, BadAcl, Grant, Resource

FLIGHTS = Resource(acls.TOPIC, "flights")
ALL = Resource(acls.TOPIC, "*")
FL = Resource(acls.TOPIC, "fl", acls.PREFIXED)
ALICE = Grant(allow=("User:alice",))


def acl(resource: Resource, operation: str, who: str = "User:alice", permission: str = acls.ALLOW) -> Acl:
    return Acl(resource, who, operation, "*", permission)


def test_which_count_for_a_topic() -> None:
    entries = [
        acl(FLIGHTS, "READ"),
        acl(FL, "WRITE"),
        acl(ALL, "READ", "User:bob", acls.DENY),
        acl(Resource(acls.TOPIC, "flight"), "READ"),
        acl(Resource(acls.GROUP, "flights"), "READ"),
        acl(Resource(acls.TOPIC, "*", acls.PREFIXED), "READ"),
    ]
    assert acls.on_topic(entries, "flights") == [entries[2], entries[0], entries[1]]
    match = AclFilter(acls.TOPIC, "flights", acls.MATCH)
    assert sorted(one for one in entries if match.accepts(one)) == sorted(entries[:3])


def test_what_a_filter_accepts() -> None:
    one = acl(FL, "WRITE")
    assert AclFilter().accepts(one)
    for other in (
        AclFilter(acls.GROUP),
        AclFilter(acls.TOPIC, "flights"),
        AclFilter(acls.TOPIC, "fl", acls.LITERAL),
        AclFilter(principal="User:bob"),
        AclFilter(host="10.0.0.1"),
        AclFilter(operation="READ"),
        AclFilter(permission=acls.DENY),
    ):
        assert not other.accepts(one), other


def test_producers_and_consumers() -> None:
    told = acls.producer(ALICE, [FLIGHTS, Resource(acls.TRANSACTIONAL_ID, "tx")], idempotent=True)
    assert [(one.resource.type, one.operation) for one in told] == [
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    ]
    assert all(acls.check(one) is one for one in told)
    read = acls.consumer(ALICE, [FLIGHTS, Resource(acls.GROUP, "g")])
    assert [one.operation for one in read] == ["READ", "DESCRIBE", "READ"]
    with pytest.raises(BadAcl, match="--consumer you must specify a --topic and a --group"):
        acls.consumer(ALICE, [FLIGHTS])
    with pytest.raises(BadAcl, match="--producer only"):
        acls.producer(ALICE, [FLIGHTS, Resource(acls.GROUP, "g")])


def test_hosts_and_denials() -> None:
    grant = Grant(("User:a",), ("User:b",), ("10.0.0.1", "10.0.0.2"))
    assert [(one.permission, one.principal, one.host) for one in grant.on(FLIGHTS, ["READ"])] == [
        ("ALLOW", "User:a", "10.0.0.1"),
        ("ALLOW", "User:a", "10.0.0.2"),
        ("DENY", "User:b", "*"),
    ]


@pytest.mark.parametrize("text", ["DescribeConfigs", "describeConfigs", "DESCRIBE_CONFIGS", " Describe_Configs "])
def test_operations_are_understood(text: str) -> None:
    assert acls.operation(text) == "DESCRIBE_CONFIGS"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (acl(FLIGHTS, "CLUSTER_ACTION"), "ResourceType TOPIC only supports operations Read"),
        (acl(Resource("SHELF", "x"), "READ"), "resource type 'SHELF'"),
        (acl(Resource(acls.TOPIC, "x", acls.MATCH), "READ"), "value of 'MATCH' is not valid"),
        (acl(Resource(acls.CLUSTER, "other"), "ALTER"), "kafka-cluster"),
        (acl(FLIGHTS, "READ", "alice"), "principalType:principalName but got alice"),
        (acl(FLIGHTS, "READ", permission="MAYBE"), "permission 'MAYBE'"),
    ],
)
def test_what_cannot_be_is_named(entry: Acl, said: str) -> None:
    with pytest.raises(BadAcl, match=said):
        acls.check(entry)
