"""The index of ACLs decides as a naive reading of Kafka's rules does (facts §18.4)."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.security.acls.filters import AclFilter
from logyard.broker.security.acls.rules import Acls, Subject
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType

Op, T = Operation, ResourceType.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY

NAMES = ("a", "ab", "abc", "b", "*")
principals = st.sampled_from(["User:a", "User:b", "User:*"])
hosts = st.sampled_from(["1.1.1.1", "2.2.2.2", "*"])
operations = st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.ALTER, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS])
types = st.sampled_from([T, ResourceType.GROUP])
patterns = st.builds(
    ResourcePattern, types, st.sampled_from(NAMES), st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
)
entries = st.builds(AclEntry, principals, st.sampled_from([ALLOW, DENY]), operations, hosts)
steps = st.lists(st.tuples(patterns, st.frozensets(entries, max_size=3)), max_size=8)

IMPLIED = {
    Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
    Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS},
}
State = dict[ResourcePattern, frozenset[AclEntry]]


def built(done: Iterable[tuple[ResourcePattern, frozenset[AclEntry]]], **settings: Any) -> tuple[Acls, State]:
    acls, state = Acls(**settings), {}
    for pattern, wanted in done:
        acls.put(pattern, wanted)
        state[pattern] = wanted
    return acls, state


def is_meant(pattern: ResourcePattern, resource: ResourceType, name: str) -> bool:
    if pattern.type is not resource:
        return False
    if pattern.kind is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def matches(entry: AclEntry, subject: Subject) -> bool:
    return entry.principal in (subject.principal, "User:*") and entry.host in (subject.host, "*")


def naive(state: State, everyone: bool, subject: Subject, op: Operation, resource: ResourceType, name: str) -> bool:
    found = [entry for pattern, some in state.items() if is_meant(pattern, resource, name) for entry in some]
    if not found:
        return everyone
    mine = [entry for entry in found if matches(entry, subject)]
    if any(e.permission is DENY and e.operation in (op, Op.ALL) for e in mine):
        return False
    enough = {op, Op.ALL} | IMPLIED.get(op, set())
    return any(e.permission is ALLOW and e.operation in enough for e in mine)


@settings(max_examples=150)
@given(steps, st.booleans(), principals, hosts, operations, types, st.sampled_from(NAMES))
def test_decisions(
    done: Any, everyone: bool, principal: str, host: str, op: Operation, resource: ResourceType, name: str
) -> None:
    acls, state = built(done, everyone_if_none=everyone)
    subject = Subject(principal, host)
    assert acls.decide(subject, op, resource, name) is naive(state, everyone, subject, op, resource, name)


@settings(max_examples=150)
@given(steps, st.booleans(), principals, hosts, operations, types)
def test_decisions_by_type(
    done: Any, everyone: bool, principal: str, host: str, op: Operation, resource: ResourceType
) -> None:
    """An allow counts unless a deny covers all of it: the same name, or a prefix of it; `*` is covered by `*` alone."""
    acls, state = built(done, everyone_if_none=everyone)
    subject = Subject(principal, host)

    def some(permission: Permission, kind: PatternType) -> set[str]:
        return {
            pattern.name
            for pattern, found in state.items()
            for e in found
            if pattern.type is resource and pattern.kind is kind and e.permission is permission
            if matches(e, subject) and e.operation in (op, Op.ALL)
        }

    denied, under = some(DENY, PatternType.LITERAL), some(DENY, PatternType.PREFIXED)
    if "*" in denied:
        expected = False
    elif everyone:
        expected = True
    else:
        prefixes = {p for p in some(ALLOW, PatternType.PREFIXED) if not any(p.startswith(u) for u in under)}
        literals = {
            name
            for name in some(ALLOW, PatternType.LITERAL)
            if name == "*" or (name not in denied and not any(name.startswith(u) for u in under))
        }
        expected = bool(prefixes or literals)
    assert acls.decide_by_type(subject, op, resource) is expected


@settings(max_examples=60)
@given(steps, patterns)
def test_removed_acls_leave_nothing(done: Any, pattern: ResourcePattern) -> None:
    acls, state = built(done)
    for each in state:
        acls.put(each, ())
    version = acls.version
    assert (len(acls), acls.patterns()) == (0, [])
    assert not acls.decide(Subject("User:a", "1.1.1.1"), Op.READ, pattern.type, pattern.name)
    acls.put(pattern, ())
    assert acls.version == version  # nothing has changed


def test_a_deny_implies_no_other_operation() -> None:
    acls = Acls()
    pattern = ResourcePattern(T, "t")
    acls.put(pattern, [AclEntry("User:a", DENY, Op.READ), AclEntry("User:a", ALLOW, Op.DESCRIBE)])
    subject = Subject("User:a", "1.1.1.1")
    assert acls.decide(subject, Op.DESCRIBE, T, "t")
    assert not acls.decide(subject, Op.READ, T, "t")
    unknown = AclEntry("User:a", Permission.UNKNOWN, Op.UNKNOWN)
    acls.put(pattern, [unknown])
    assert not acls.decide(subject, Op.DESCRIBE, T, "t")


@settings(max_examples=150)
@given(steps, types, st.one_of(st.none(), st.sampled_from(NAMES)), st.sampled_from(list(PatternType)[1:]), patterns)
def test_filters_of_patterns(
    done: Any, resource: ResourceType, name: str | None, kind: PatternType, pattern: ResourcePattern
) -> None:
    wanted = AclFilter(resource, name, kind, None, None, Op.ANY, Permission.ANY)
    expected = pattern.type is resource
    if kind in (PatternType.LITERAL, PatternType.PREFIXED):
        expected = expected and pattern.kind is kind
    if name is not None:
        is_same = pattern.name == name
        expected = expected and (is_meant(pattern, resource, name) if kind is PatternType.MATCH else is_same)
    assert wanted.takes_pattern(pattern) is expected
    named = wanted.named()
    assert not named or (pattern in named) is expected


def test_filters_of_entries() -> None:
    entry = AclEntry("User:a", ALLOW, Op.READ, "1.1.1.1")
    everything = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Op.ANY, Permission.ANY)
    assert everything.takes_entry(entry)
    for change in ({"principal": "User:b"}, {"host": "*"}, {"operation": Op.ALL}, {"permission": DENY}):
        assert not everything._replace(**change).takes_entry(entry)


def test_a_group_without_a_name_is_a_name_too() -> None:
    """As in Kafka, where old consumers may have one."""
    acls, _ = built([(ResourcePattern(ResourceType.GROUP, "*"), frozenset([AclEntry("User:a", ALLOW, Op.READ)]))])
    found = [acls.decide(Subject(user, "1.1.1.1"), Op.READ, ResourceType.GROUP, "") for user in ("User:a", "User:b")]
    assert found == [True, False]
