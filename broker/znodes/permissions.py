"""ZooKeeper's ACL of each path: who may read and change a znode (facts §18.6). The only place that knows it.

These are ZooKeeper's own ACLs, not those of Kafka's topics and groups, which are the content of znodes.
"""

from typing import Final, NamedTuple

READ, ALL = 1, 31
"""ZooKeeper's bits: read 1, write 2, create 4, delete 8, admin 16."""

CONSUMERS = "/consumers"

SECURED: Final[tuple[str, ...]] = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/feature",
    "/migration",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
"""The roots whose trees Kafka's zookeeper-security-migration changes, in its order."""

# Below these the world reads nothing: credentials, passwords, tokens. As in Kafka a text that a path begins with.
SENSITIVE: Final[tuple[str, ...]] = ("/config/users", "/config/brokers", "/delegation_token/tokens")


class Acl(NamedTuple):
    """One entry: permissions (ZooKeeper's bits), and for whom: scheme and id."""

    permissions: int
    scheme: str
    id: str


Acls = tuple[Acl, ...]

WORLD_ALL: Final[Acls] = (Acl(ALL, "world", "anyone"),)
# `auth` stands for the identities of the session that creates the znode: SASL's user, the certificate's subject.
CREATOR_ALL: Final = Acl(ALL, "auth", "")
WORLD_READ: Final = Acl(READ, "world", "anyone")


def open_acls(path: str) -> Acls:
    """Return the ACL while zookeeper.set.acl is off: everybody may do everything."""
    return WORLD_ALL


def secure_acls(path: str) -> Acls:
    """Return the ACL of a path (without the chroot) with zookeeper.set.acl."""
    if path == CONSUMERS:
        return WORLD_ALL  # the first consumers write below it themselves
    if path.startswith(SENSITIVE):
        return (CREATOR_ALL,)
    return (CREATOR_ALL, WORLD_READ)
