"""Filters of DescribeAcls and DeleteAcls: which ACLs they match (facts §18.4)."""

from itertools import product
from typing import NamedTuple

from logyard.broker.znodes.acls import (
    WILDCARD,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


class AclFilter(NamedTuple):
    """None, or ANY, is anything. A kind MATCH asks for all patterns that a resource of that name matches."""

    type: ResourceType
    name: str | None
    kind: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def named(self) -> list[ResourcePattern]:
        """Return the patterns that can match, if the filter names them: it has a type and a name."""
        if self.name is None or self.type <= ResourceType.ANY:
            return []
        kinds = (PatternType.LITERAL, PatternType.PREFIXED)
        return [ResourcePattern(self.type, self.name, kind) for kind in kinds if self.kind in (kind, PatternType.ANY)]

    def takes_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the pattern matches."""
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.kind not in (PatternType.ANY, PatternType.MATCH, pattern.kind):
            return False
        if self.name is None:
            return True
        if self.kind is not PatternType.MATCH:
            return pattern.name == self.name
        if pattern.kind is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def takes_entry(self, entry: AclEntry) -> bool:
        """Whether an entry of a pattern that matches does so too."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


# What a filter says of entries; None, or ANY, is anything.
_Wanted = tuple[str | None, str | None, Operation, Permission]


class Takers:
    """Filters that match one pattern, by number. The first that takes an entry is found without a look at each."""

    def __init__(self) -> None:
        self._first: dict[_Wanted, int] = {}

    def __len__(self) -> int:
        return len(self._first)

    def add(self, number: int, each: AclFilter) -> None:
        """Take a filter in."""
        wanted = (each.principal, each.host, each.operation, each.permission)
        self._first[wanted] = min(number, self._first.get(wanted, number))

    def first(self, entry: AclEntry) -> int | None:
        """Return the number of the first filter that takes the entry."""
        wanted = product(
            (entry.principal, None),
            (entry.host, None),
            (entry.operation, Operation.ANY),
            (entry.permission, Permission.ANY),
        )
        return min((number for each in wanted if (number := self._first.get(each)) is not None), default=None)
