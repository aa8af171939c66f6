"""ACLs as ZooKeeper has them: one znode a resource pattern, and the notifications of changes (facts §18.4).

A resource pattern has a type, a name and a kind of pattern; an entry says what a principal may or may not do from a
host. Codes are those of Kafka's requests, names those of its znodes.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import fields

LITERAL_ROOT = "/kafka-acl"
PREFIXED_ROOT = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
# For a sequential create, below one of the two paths of changes.
SEQUENCE_NAME = "acl_changes_"
# A notification that is so much older than another one is deleted by the brokers.
EXPIRATION_MS = 15 * 60 * 1000

VERSION = 1
WILDCARD = "*"
ANYBODY = "User:*"


class Named(IntEnum):
    """Codes whose names are written in two ways: CONSTANT_CASE in notifications, PascalCase in the znodes of ACLs."""

    @property
    def label(self) -> str:
        """The name in PascalCase, as znodes and Kafka's tools have it."""
        return self.name.title().replace("_", "")

    def __str__(self) -> str:
        return self.label


class ResourceType(Named):
    """What a right is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Named):
    """How a resource pattern's name is compared; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Named):
    """What is done with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(Named):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
"""The types that have ACLs, and so a znode below each root."""


class ResourcePattern(NamedTuple):
    """One or more resources of a type: by a literal name, all (the literal name `*`), or by the beginning of a name."""

    type: ResourceType
    name: str
    kind: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """`principal` is `Type:name`; the principal `User:*` and the host `*` mean all."""

    principal: str
    permission: Permission
    operation: Operation
    host: str = WILDCARD


_OPERATIONS = {each.label.lower(): each for each in Operation}
_PERMISSIONS = {each.label.lower(): each for each in Permission}
_TYPES = {each.name: each for each in RESOURCE_TYPES}


def type_path(kind: PatternType, resource_type: ResourceType) -> str:
    """Return the path whose children are the patterns of that type."""
    root = LITERAL_ROOT if kind is PatternType.LITERAL else PREFIXED_ROOT
    return f"{root}/{resource_type.label}"


def path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.kind, pattern.type)}/{pattern.name}"


PERSISTENT = (
    *(type_path(kind, each) for kind in (PatternType.LITERAL, PatternType.PREFIXED) for each in RESOURCE_TYPES),
    LITERAL_CHANGES,
    EXTENDED_CHANGES,
)
"""The paths that an authorizer creates at start if they are missing, without those above them."""


def encode(entries: Iterable[AclEntry]) -> bytes:
    """Return a znode's content; the order of entries does not count."""
    return fields.dump(
        {
            "version": VERSION,
            "acls": [
                {
                    "principal": entry.principal,
                    "permissionType": entry.permission.label,
                    "operation": entry.operation.label,
                    "host": entry.host,
                }
                for entry in sorted(entries)
            ],
        }
    )


def decode(data: bytes, path: str = f"{LITERAL_ROOT}/?") -> frozenset[AclEntry]:
    """Return a znode's entries; an empty znode has none. Raises CorruptData.

    Operations and permissions that this version does not know become UNKNOWN, which matches nothing, as in Kafka.
    """
    if not data:
        return frozenset()
    content = fields.Fields.parse(path, data)
    if content.integer("version") != VERSION:
        raise content.wrong("version", f"version {VERSION}")
    return frozenset(_entry(each) for each in content.objects("acls"))


def _entry(content: fields.Fields) -> AclEntry:
    principal = content.text("principal")
    if not is_principal(principal):
        raise content.wrong("principal", "a type, a colon and a name")
    return AclEntry(
        principal,
        _PERMISSIONS.get(content.text("permissionType").lower(), Permission.UNKNOWN),
        _OPERATIONS.get(content.text("operation").lower(), Operation.UNKNOWN),
        content.text("host"),
    )


def is_principal(text: str) -> bool:
    """Whether the text is a principal: a type, a colon and a name (Kafka asks for the colon only)."""
    return ":" in text


def notification(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Return the path, for a sequential create, and the content of the notification that a pattern's ACLs changed."""
    if pattern.kind is PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{SEQUENCE_NAME}", f"{pattern.type.name}:{pattern.name}".encode()
    content = {
        "version": VERSION,
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.kind.name,
    }
    return f"{EXTENDED_CHANGES}/{SEQUENCE_NAME}", fields.dump(content)


def decode_notification(data: bytes, path: str) -> ResourcePattern:
    """Return the pattern whose ACLs changed. Raises CorruptData."""
    if path.startswith(f"{EXTENDED_CHANGES}/"):
        content = fields.Fields.parse(path, data)
        if content.integer("version") != VERSION:
            raise content.wrong("version", f"version {VERSION}")
        kind, resource_type, name = content.text("patternType"), content.text("resourceType"), content.text("name")
        if kind != PatternType.PREFIXED.name:
            raise content.wrong("patternType", "PREFIXED")
        pattern_kind = PatternType.PREFIXED
    else:
        try:
            resource_type, _, name = data.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            raise CorruptData(f"znode {path}: TYPE:name is expected, found bytes that are not UTF-8") from None
        pattern_kind = PatternType.LITERAL
    found = _TYPES.get(resource_type)
    if found is None or not name:
        raise CorruptData(f"znode {path}: a type of resource and a name are expected, found {data[:60]!r}")
    return ResourcePattern(found, name, pattern_kind)
