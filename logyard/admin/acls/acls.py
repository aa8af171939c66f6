"""ACLs: what one allows or denies, filters of them, those of a producer or a consumer, and kafka-acls' words. Pure.

Types, patterns, operations and permissions have Kafka's names (`TOPIC`, `PREFIXED`, `DESCRIBE_CONFIGS`, `ALLOW`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from logyard.broker.errors import LogyardError

TOPIC, GROUP, CLUSTER = "TOPIC", "GROUP", "CLUSTER"
TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"
LITERAL, PREFIXED, MATCH, ANY = "LITERAL", "PREFIXED", "MATCH", "ANY"
ALLOW, DENY = "ALLOW", "DENY"
WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"

# What kafka-acls lets one grant on each type (facts §18).
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    TOPIC: ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"),
    GROUP: ("READ", "DELETE", "DESCRIBE", "ALL"),
    CLUSTER: (
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "ALL",
    ),
    TRANSACTIONAL_ID: ("WRITE", "DESCRIBE", "ALL"),
    DELEGATION_TOKEN: ("DESCRIBE", "ALL"),
    USER: ("CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"),
}

_RESOURCES = {
    "topic": TOPIC,
    "group": GROUP,
    "cluster": CLUSTER,
    "transactional_id": TRANSACTIONAL_ID,
    "delegation_token": DELEGATION_TOKEN,
    "user": USER,
}
# What a producer and a consumer need, as kafka-acls' options of these names.
PRODUCER = {TOPIC: ("WRITE", "DESCRIBE", "CREATE"), TRANSACTIONAL_ID: ("WRITE", "DESCRIBE")}
CONSUMER = {TOPIC: ("READ", "DESCRIBE"), GROUP: ("READ",)}
_KEYS = (*_RESOURCES, "pattern", "principal", "operation", "host", "permission")


class BadAcl(LogyardError):
    """An ACL that cannot be; the text says what is expected."""


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """`pattern`: LITERAL (the name `*` stands for all) or PREFIXED."""

    type: str
    name: str
    pattern: str = LITERAL

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.type}, name={self.name}, patternType={self.pattern})"

    def covers(self, name: str) -> bool:
        """Whether ACLs on this resource count for that name (of the same type)."""
        return name.startswith(self.name) if self.pattern == PREFIXED else self.name in (name, WILDCARD)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One entry: `principal` (`User:alice`, `User:*`) from `host` (`*`: any) may, or may not, do `operation`."""

    resource: Resource
    principal: str
    operation: str
    host: str = WILDCARD
    permission: str = ALLOW

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation}, "
            f"permissionType={self.permission})"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs: None and ANY leave a part open. `pattern` MATCH: all that count for the name."""

    type: str = ANY
    name: str | None = None
    pattern: str = ANY
    principal: str | None = None
    host: str | None = None
    operation: str = ANY
    permission: str = ANY

    def __str__(self) -> str:
        name = "<any>" if self.name is None else self.name
        return f"ResourcePattern(resourceType={self.type}, name={name}, patternType={self.pattern})"

    def accepts(self, acl: Acl) -> bool:
        """Whether a broker would count that ACL as one of these."""
        return (
            self.type in (ANY, acl.resource.type)
            and self._accepts_name(acl.resource)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _accepts_name(self, resource: Resource) -> bool:
        if self.pattern == MATCH:
            return self.name is None or resource.covers(self.name)
        return self.pattern in (ANY, resource.pattern) and self.name in (None, resource.name)

    @classmethod
    def exactly(cls, acl: Acl) -> "AclFilter":
        of = acl.resource
        return cls(of.type, of.name, of.pattern, acl.principal, acl.host, acl.operation, acl.permission)


@dataclass(frozen=True, slots=True)
class Grant:
    """Who is meant: principals with their hosts, allowed and denied. As kafka-acls: no host means every host."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()

    def on(self, resource: Resource, operations: Iterable[str]) -> list[Acl]:
        sides = ((ALLOW, self.allow, self.allow_hosts), (DENY, self.deny, self.deny_hosts))
        return [
            Acl(resource, principal, operation, host, permission)
            for permission, principals, hosts in sides
            for operation in operations
            for principal in principals
            for host in hosts or (WILDCARD,)
        ]


def producer(grant: Grant, resources: Iterable[Resource], *, idempotent: bool = False) -> list[Acl]:
    """What a producer needs on topics and transactional ids. Raises BadAcl without a topic."""
    named = list(resources)
    _refuse_others(named, "producer", (TOPIC,), (TOPIC, TRANSACTIONAL_ID))
    found = [acl for one in named for acl in grant.on(one, PRODUCER[one.type])]
    return found + (grant.on(Resource(CLUSTER, CLUSTER_NAME), ("IDEMPOTENT_WRITE",)) if idempotent else [])


def consumer(grant: Grant, resources: Iterable[Resource]) -> list[Acl]:
    """What a consumer needs on topics and groups. Raises BadAcl without both."""
    named = list(resources)
    _refuse_others(named, "consumer", (TOPIC, GROUP), (TOPIC, GROUP))
    return [acl for one in named for acl in grant.on(one, CONSUMER[one.type])]


def operation(text: str) -> str:
    """`Read`, `DescribeConfigs` or `DESCRIBE_CONFIGS` as Kafka's name. Raises BadAcl."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text.strip()).upper()
    known = {one for allowed in OPERATIONS.values() for one in allowed}
    if name not in known:
        raise BadAcl(f"operation {text!r}: one of {', '.join(map(spoken, sorted(known)))} is expected")
    return name


def spoken(name: str) -> str:
    """`DESCRIBE_CONFIGS` as people write it, `DescribeConfigs`."""
    return "".join(part.capitalize() for part in name.split("_"))


def principal(text: str) -> str:
    """Raises BadAcl unless it is `type:name`."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise BadAcl(f"expected a string in format principalType:principalName but got {text}")
    return text


def check(acl: Acl, *, any_operation: bool = False) -> Acl:
    """Raise BadAcl for an ACL that Kafka's tool would not add; `any_operation`: for one that no broker would have."""
    of = acl.resource
    if of.type not in OPERATIONS:
        raise BadAcl(f"resource type {of.type!r}: one of {', '.join(OPERATIONS)} is expected")
    if of.pattern not in (LITERAL, PREFIXED):
        raise BadAcl(f"A '--resource-pattern-type' value of '{of.pattern}' is not valid when adding acls.")
    if not of.name or (of.type == CLUSTER and of.name != CLUSTER_NAME):
        raise BadAcl(f"resource name {of.name!r}: a name is expected, for the cluster {CLUSTER_NAME}")
    if not any_operation and acl.operation not in OPERATIONS[of.type]:
        allowed = ", ".join(map(spoken, OPERATIONS[of.type]))
        raise BadAcl(f"ResourceType {of.type} only supports operations {allowed}")
    if acl.permission not in (ALLOW, DENY):
        raise BadAcl(f"permission {acl.permission!r}: {ALLOW} or {DENY} is expected")
    principal(acl.principal)
    return acl


def on_topic(acls: Iterable[Acl], topic: str) -> list[Acl]:
    """Those that count for a topic: literal, prefixed, and of all topics; denials first."""
    found = [acl for acl in acls if acl.resource.type == TOPIC and acl.resource.covers(topic)]
    return sorted(found, key=lambda acl: (acl.permission != DENY, acl.principal, acl.operation, acl.resource, acl.host))


def parse(given: Mapping[str, object], where: str = "an ACL", *, to_remove: bool = False) -> list[Acl]:
    """ACLs of a mapping as people write it in YAML or JSON, one for each principal, operation and host.

    :param to_remove: their operations may be such as Kafka's tool would not add: brokers take any on any resource, and
        other clients of theirs add them.

    Keys: one of topic, group, transactional_id, delegation_token, user or cluster (true); `pattern` literal (prefixed);
    `principal`, `operation` and `host` (`*`), each a text or a list; `permission` allow (deny). Raises BadAcl.
    """
    strange = [str(key) for key in given if key not in _KEYS]
    if strange:
        raise BadAcl(f"{where}: {strange[0]!r} is not one of {', '.join(_KEYS)}")
    named = [key for key in _RESOURCES if given.get(key)]
    if len(named) != 1:
        raise BadAcl(f"{where}: one of {', '.join(_RESOURCES)} is expected")
    (key,) = named
    name = CLUSTER_NAME if key == "cluster" else str(given[key])
    resource = Resource(_RESOURCES[key], name, str(given.get("pattern") or LITERAL).upper())
    who, doing = _texts(given.get("principal")), _texts(given.get("operation"))
    if not who or not doing:
        raise BadAcl(f"{where}: principal and operation are expected")
    permission = str(given.get("permission") or ALLOW).upper()
    return [
        check(Acl(resource, principal(one), operation(each), host, permission), any_operation=to_remove)
        for one in who
        for each in doing
        for host in _texts(given.get("host")) or [WILDCARD]
    ]


def as_json(acl: Acl) -> dict[str, str]:
    """An ACL as `parse` reads it, with Kafka's names."""
    key = next(key for key, kind in _RESOURCES.items() if kind == acl.resource.type)
    return {
        key: acl.resource.name,
        "pattern": acl.resource.pattern,
        "principal": acl.principal,
        "operation": acl.operation,
        "host": acl.host,
        "permission": acl.permission,
    }


def _texts(value: object) -> list[str]:
    if value is None or value == "":
        return []
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]


def by_resource(acls: Iterable[Acl]) -> dict[Resource, list[Acl]]:
    found: dict[Resource, list[Acl]] = {}
    for acl in acls:
        found.setdefault(acl.resource, []).append(acl)
    return found


# -- kafka-acls' words -------------------------------------------------------------------------------


def adding(resource: Resource, acls: Sequence[Acl]) -> str:
    return f"Adding ACLs for resource `{resource}`: \n {_lines(acls)} \n"


def current(resource: Resource, acls: Sequence[Acl]) -> str:
    return f"Current ACLs for resource `{resource}`: \n {_lines(acls)} \n"


def question(chosen: AclFilter, acls: Sequence[Acl]) -> str:
    """What is asked before ACLs are removed; no ACLs: all of the filter."""
    if not acls:
        return f"Are you sure you want to delete all ACLs for resource filter `{chosen}`? (y/n)"
    return f"Are you sure you want to remove ACLs: \n {_lines(acls)} \n from resource filter `{chosen}`? (y/n)"


def removals(chosen: AclFilter, acls: Sequence[Acl]) -> list[AclFilter]:
    """The filters that remove these entries from the filter's resources; no ACLs: all of them."""
    if not acls:
        return [replace(chosen, principal=None, host=None, operation=ANY, permission=ANY)]
    return [
        replace(chosen, principal=acl.principal, host=acl.host, operation=acl.operation, permission=acl.permission)
        for acl in acls
    ]


def _lines(acls: Sequence[Acl]) -> str:
    return "\n".join(f"\t{acl}" for acl in acls)


def _refuse_others(named: Sequence[Resource], who: str, needed: Sequence[str], allowed: Sequence[str]) -> None:
    types = {one.type for one in named}
    missing = [kind for kind in needed if kind not in types]
    if missing:
        raise BadAcl(f"With --{who} you must specify a {' and a '.join(f'--{kind.lower()}' for kind in needed)}")
    others = [kind for kind in types if kind not in allowed]
    if others:
        raise BadAcl(f"With --{who} only {' and '.join(kind.lower() for kind in allowed)} can be named")
