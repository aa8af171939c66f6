"""Who may do what, by ACLs: the rules of Kafka's AclAuthorizer, over an index (facts §18.4).

Rule 1: if nothing at all is written about a resource (its name, `*`, matching prefixes), a setting decides.
Rule 2: an entry that denies counts before those that allow.
Rule 3: Describe is also allowed by Read, Write, Delete and Alter, DescribeConfigs by AlterConfigs; a deny implies no
        other operation.
Rule 4: an entry matches by principal (or `User:*`), host (or `*`) and operation (or All).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logyard.broker.znodes.acls import (
    ANYBODY,
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_ALLOWED_BY = {
    Operation.DESCRIBE: (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}


class Subject(NamedTuple):
    """Who asks: the principal as `Type:name`, and its host as Java writes addresses."""

    principal: str
    host: str


class _Entries:
    """The entries of one resource pattern, by principal: a pattern may have ten thousand of them."""

    __slots__ = ("all", "by_principal")

    def __init__(self, entries: frozenset[AclEntry]) -> None:
        self.all = entries
        self.by_principal: dict[str, list[AclEntry]] = {}
        for entry in entries:
            self.by_principal.setdefault(entry.principal, []).append(entry)

    def of(self, subject: Subject) -> Iterator[AclEntry]:
        for principal in dict.fromkeys((subject.principal, ANYBODY)):
            for entry in self.by_principal.get(principal, ()):
                if entry.host in (subject.host, WILDCARD):
                    yield entry


# What the names of a type are found by, to decide about any resource of the type.
_TypeKey = tuple[str, str, Operation, Permission, ResourceType, PatternType]


class Acls:
    """All ACLs that this broker knows. `version` grows with each change."""

    def __init__(self, *, everyone_if_none: bool = False) -> None:
        self.version = 0
        self._everyone_if_none = everyone_if_none
        self._patterns: dict[ResourcePattern, _Entries] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}  # length → number of prefixes
        self._names: dict[_TypeKey, set[str]] = {}

    def __len__(self) -> int:
        return sum(len(entries.all) for entries in self._patterns.values())

    def patterns(self) -> list[ResourcePattern]:
        """Return the patterns that have entries."""
        return list(self._patterns)

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """Return the entries of exactly this pattern."""
        found = self._patterns.get(pattern)
        return frozenset() if found is None else found.all

    def put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Set the entries of a pattern; none removes it."""
        after = frozenset(entries)
        before = self.entries(pattern)
        if after == before:
            return
        self.version += 1
        for entry in before - after:
            self._unname(pattern, entry)
        for entry in after - before:
            key = _type_key(pattern, entry)
            self._names.setdefault(key, set()).add(pattern.name)
        if pattern.kind is PatternType.PREFIXED and bool(before) is not bool(after):
            self._count_length(pattern, 1 if after else -1)
        if after:
            self._patterns[pattern] = _Entries(after)
        else:
            del self._patterns[pattern]

    def _unname(self, pattern: ResourcePattern, entry: AclEntry) -> None:
        key = _type_key(pattern, entry)
        names = self._names[key]
        names.discard(pattern.name)
        if not names:
            del self._names[key]

    def _count_length(self, pattern: ResourcePattern, more: int) -> None:
        lengths = self._prefix_lengths.setdefault(pattern.type, {})
        count = lengths.get(len(pattern.name), 0) + more
        if count:
            lengths[len(pattern.name)] = count
        else:
            del lengths[len(pattern.name)]

    def decide(self, subject: Subject, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether the subject may do the operation on the resource of that name."""
        matching = self._matching(resource, name)
        if not matching:
            return self._everyone_if_none
        allowing = _ALLOWED_BY.get(operation, (operation,))
        allowed = False
        for entries in matching:
            for entry in entries.of(subject):
                if entry.permission is Permission.DENY:
                    if entry.operation in (operation, Operation.ALL):
                        return False
                elif entry.permission is Permission.ALLOW:
                    allowed = allowed or entry.operation in allowing or entry.operation is Operation.ALL
        return allowed

    def _matching(self, resource: ResourceType, name: str) -> list[_Entries]:
        """Return the entries of the patterns that the name matches."""
        wanted = [ResourcePattern(resource, name)]
        if name != WILDCARD:
            wanted.append(ResourcePattern(resource, WILDCARD))
        wanted += [
            ResourcePattern(resource, name[:length], PatternType.PREFIXED)
            for length in self._prefix_lengths.get(resource, ())
            if length <= len(name)
        ]
        return [found for pattern in wanted if (found := self._patterns.get(pattern)) is not None]

    def decide_by_type(self, subject: Subject, operation: Operation, resource: ResourceType) -> bool:
        """Whether the subject may do the operation on at least one resource of the type."""
        denied = self._named(subject, operation, Permission.DENY, resource, PatternType.LITERAL)
        if any(WILDCARD in names for names in denied):
            return False
        if self._everyone_if_none:
            return True
        denied_prefixes = self._named(subject, operation, Permission.DENY, resource, PatternType.PREFIXED)

        def is_below_denied(name: str) -> bool:
            beginnings = (name[:length] for length in range(len(name) + 1))
            return any(beginning in names for beginning in beginnings for names in denied_prefixes)

        for names in self._named(subject, operation, Permission.ALLOW, resource, PatternType.PREFIXED):
            if not all(map(is_below_denied, names)):
                return True
        for names in self._named(subject, operation, Permission.ALLOW, resource, PatternType.LITERAL):
            for name in names:
                if name == WILDCARD or not (any(name in some for some in denied) or is_below_denied(name)):
                    return True
        return False

    def _named(
        self, subject: Subject, operation: Operation, permission: Permission, resource: ResourceType, kind: PatternType
    ) -> list[set[str]]:
        return [
            names
            for principal in dict.fromkeys((subject.principal, ANYBODY))
            for host in dict.fromkeys((subject.host, WILDCARD))
            for op in dict.fromkeys((operation, Operation.ALL))
            if (names := self._names.get((principal, host, op, permission, resource, kind)))
        ]


def _type_key(pattern: ResourcePattern, entry: AclEntry) -> _TypeKey:
    return (entry.principal, entry.host, entry.operation, entry.permission, pattern.type, pattern.kind)
