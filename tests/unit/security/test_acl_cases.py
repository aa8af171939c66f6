"""Decisions told out: who, from where, on which names, and on some name of a type."""

import pytest

from logyard.broker.security.acls.rules import Acls, Subject
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType

Op, T = Operation, ResourceType.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY
PREFIXED = PatternType.PREFIXED
HERE, THERE = "192.168.1.1", "192.168.1.2"
OPERATIONS = [op for op in Op if op not in (Op.UNKNOWN, Op.ANY)]


def allow(operation: Operation, who: str = "User:a", host: str = "*") -> AclEntry:
    return AclEntry(who, ALLOW, operation, host)


def deny(operation: Operation, who: str = "User:a", host: str = "*") -> AclEntry:
    return AclEntry(who, DENY, operation, host)


def on(name: str, kind: PatternType = PatternType.LITERAL, resource: ResourceType = T) -> ResourcePattern:
    return ResourcePattern(resource, name, kind)


def may(acls: Acls, operation: Operation, name: str = "foo-1", who: str = "User:a", host: str = HERE) -> bool:
    return acls.decide(Subject(who, host), operation, T, name)


def test_users_and_hosts_on_one_topic() -> None:
    acls = Acls()
    acls.put(
        on("foo-1"),
        [
            allow(Op.READ, host=HERE), allow(Op.READ, host=THERE), deny(Op.READ, host=HERE),
            allow(Op.WRITE, host=HERE), allow(Op.DESCRIBE), allow(Op.READ, "User:b"), allow(Op.WRITE, "User:c"),
        ],
    )  # fmt: skip
    asked = (Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALTER)
    found = {op: (may(acls, op, host=HERE), may(acls, op, host=THERE)) for op in asked}
    assert found == {
        Op.READ: (False, True), Op.WRITE: (True, False), Op.DESCRIBE: (True, True), Op.ALTER: (False, False),
    }  # fmt: skip
    assert all(may(acls, op, who=who) for op, who in ((Op.READ, "User:b"), (Op.WRITE, "User:c")))
    assert all(may(acls, Op.DESCRIBE, who=who) for who in ("User:b", "User:c"))


def test_a_deny_of_one_is_before_an_allow_of_all() -> None:
    acls = Acls()
    assert not may(acls, Op.READ)
    acls.put(on("foo-1"), [allow(Op.ALL, "User:*")])
    assert all(may(acls, op, who="User:random") for op in OPERATIONS)
    acls.put(on("foo-1"), [allow(Op.ALL, "User:*"), deny(Op.ALL, host=HERE)])
    assert not may(acls, Op.READ)
    assert may(acls, Op.READ, who="User:random")


def test_a_principals_type_counts() -> None:
    acls = Acls()
    acls.put(on("foo-1"), [allow(Op.READ, "Group:a"), allow(Op.WRITE)])
    assert [may(acls, op) for op in (Op.READ, Op.WRITE)] == [False, True]


def test_the_wildcard_allows_and_denies_every_name() -> None:
    acls = Acls()
    acls.put(on("*"), [allow(Op.READ, host=HERE)])
    assert may(acls, Op.READ)
    acls.put(on("foo-1"), [allow(Op.WRITE, host=HERE)])
    assert may(acls, Op.WRITE)
    acls.put(on("*"), [allow(Op.READ, host=HERE), deny(Op.WRITE, host=HERE)])
    assert not may(acls, Op.WRITE)


def test_denies_on_names_beside_it_do_not_count() -> None:
    acls = Acls()
    for name in ("a_other", "foo-1-x", "foo-2", "foo-1zzz", "fooo-", "fo-", "fop-", "fon-", "z_other"):
        acls.put(on(name, PREFIXED), [deny(Op.READ)])
    for name in ("a_other", "z_other", "foo"):
        acls.put(on(name), [deny(Op.READ)])
    acls.put(on("foo-", PREFIXED), [allow(Op.READ)])
    assert may(acls, Op.READ)
    acls.put(on("fooa", PREFIXED), [deny(Op.CREATE, "User:b")])
    acls.put(on("foob", PREFIXED), [allow(Op.CREATE, "User:b")])
    acls.put(on("f", PREFIXED), [allow(Op.CREATE)])
    assert may(acls, Op.CREATE, "foobar")


def test_names_and_prefixes_of_one_character() -> None:
    acls = Acls()
    acls.put(on("f"), [allow(Op.READ)])
    acls.put(on("_", PREFIXED), [allow(Op.READ)])
    found = {name: may(acls, Op.READ, name) for name in ("f", "foo", "_foo", "_", "foo_")}
    assert found == {"f": True, "foo": False, "_foo": True, "_": True, "foo_": False}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_one_operation_allows_and_denies(operation: Operation) -> None:
    acls = Acls()
    acls.put(on("foo-1"), [allow(operation)])
    more: dict[Operation, set[Operation]] = {
        Op.ALL: set(OPERATIONS), Op.READ: {Op.DESCRIBE}, Op.WRITE: {Op.DESCRIBE}, Op.DELETE: {Op.DESCRIBE},
        Op.ALTER: {Op.DESCRIBE}, Op.ALTER_CONFIGS: {Op.DESCRIBE_CONFIGS},
    }  # fmt: skip
    assert {op for op in OPERATIONS if may(acls, op)} == more.get(operation, set()) | {operation}
    acls.put(on("foo-1"), [allow(Op.ALL), deny(operation)])
    denied = set(OPERATIONS) if operation is Op.ALL else {operation}
    assert {op for op in OPERATIONS if not may(acls, op)} == denied


# -- some topic, whichever


def test_some_resource_by_steps() -> None:
    """Denies of prefixes count for what begins with them; a deny of everything for all; nothing else does."""
    acls, group = Acls(), ResourceType.GROUP
    found = []
    for name, entries in (
        ("abcde", [allow(Op.READ)]), ("abcd", [deny(Op.READ)]), ("abc", [allow(Op.READ)]), ("a", [deny(Op.READ)]),
        ("ab", [allow(Op.READ)]),
    ):  # fmt: skip
        acls.put(on(name, PREFIXED, group), entries)
        found.append(acls.decide_by_type(Subject("User:a", HERE), Op.READ, group))
    assert found == [True, False, True, False, False]
    other, found = Acls(), []
    for pattern, entries in (
        (on("hello", PREFIXED, group), [allow(Op.WRITE)]), (on("*", resource=group), [deny(Op.WRITE)]),
        (on("*", resource=group), [deny(Op.WRITE), allow(Op.WRITE)]), (on("aloha", resource=group), [allow(Op.WRITE)]),
    ):  # fmt: skip
        other.put(pattern, entries)
        found.append(other.decide_by_type(Subject("User:a", HERE), Op.WRITE, group))
    assert found == [True, False, False, False]


def test_some_topic_for_users_hosts_and_operations() -> None:
    acls = Acls()

    def some(operation: Operation = Op.READ, who: str = "User:a", host: str = HERE) -> bool:
        return acls.decide_by_type(Subject(who, host), operation, T)

    assert not some()
    acls.put(on("one"), [allow(Op.READ, host=HERE)])
    assert some()
    for everybody in (deny(Op.READ), deny(Op.READ, "User:*", HERE), deny(Op.ALL)):
        acls.put(on("one"), [allow(Op.READ, host=HERE), everybody])
        assert not some()
    acls.put(on("two"), [allow(Op.READ, "User:*")])
    assert [some(), some(who="User:b"), some(host=THERE), some(Op.WRITE)] == [True, True, True, False]
    acls.put(on("two"), [allow(Op.READ, "User:*"), deny(Op.READ, host=THERE)])
    assert [some(), some(who="User:b"), some(host=THERE)] == [True, True, False]
    acls.put(on("one"), [allow(Op.ALL), deny(Op.WRITE)])
    acls.put(on("two"), [])
    assert [some(), some(Op.WRITE), some(Op.ALTER)] == [True, False, True]
    assert not acls.decide_by_type(Subject("User:a", HERE), Op.READ, ResourceType.TRANSACTIONAL_ID)
    open_to_all = Acls(everyone_if_none=True)
    assert open_to_all.decide_by_type(Subject("User:a", HERE), Op.WRITE, T)
