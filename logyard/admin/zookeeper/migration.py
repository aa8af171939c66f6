"""Migrates the ACLs of a cluster's znodes, as Kafka's zookeeper-security-migration does (facts §18.6).

The root is changed alone; of each root of Kafka's all that is below it. Roots that do not exist are left to the
brokers, which create them. Every run does all of it, so one that was interrupted is repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.znodes.permissions import (
    ALL,
    READ,
    SECURED,
    SENSITIVE,
    WORLD_ALL,
    Acls,
    open_acls,
    secure_acls,
)

# How many znodes of one level are asked for and changed at a time.
PIECE = 1000


class AclClient(Protocol):
    """A ZooKeeper session; all methods raise NotAllowed and EnsembleUnreachable. None: there is no such znode."""

    def acls(self, paths: Sequence[str]) -> list[Acls | None]:
        """The ACLs, None for each that does not exist."""
        ...

    def set_acls(self, paths: Sequence[str], acls_of: Callable[[str], Acls]) -> list[bool | None]:
        """Set the ACL of each; None for each that does not exist."""
        ...

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The children's names of each, sorted; None for each that does not exist."""
        ...


@dataclass(slots=True)
class Migration:
    """How many znodes were looked at, and how many of them were (to be) changed."""

    seen: int = 0
    changed: int = 0


def migrate(znodes: AclClient, secure: bool, say: Callable[[str], None], *, dry_run: bool = False) -> Migration:
    """Set the ACL of all znodes of the cluster; `say` gets one line for each root.

    With `dry_run` ACLs are only read. Raises NotAllowed with the znode that belongs to another identity,
    EnsembleUnreachable.
    """
    done = Migration()
    _level(znodes, ["/"], secure, dry_run, done)
    for root in SECURED:
        before = done.seen
        level = [root]
        while level:
            level = _level(znodes, level, secure, dry_run, done)
        if done.seen > before:
            say(f"{root}: {done.seen - before} znodes")
    return done


def _level(znodes: AclClient, paths: list[str], secure: bool, dry_run: bool, done: Migration) -> list[str]:
    """Migrate these znodes, and return the paths below them."""
    below: list[str] = []
    for first in range(0, len(paths), PIECE):
        some = paths[first : first + PIECE]
        children = znodes.children_of(some)
        if dry_run:
            found = znodes.acls(some)
            done.seen += sum(acls is not None for acls in found)
            done.changed += sum(
                acls is not None and not is_done(path, acls, secure) for path, acls in zip(some, found, strict=True)
            )
        else:
            count = sum(there is not None for there in znodes.set_acls(some, secure_acls if secure else open_acls))
            done.seen += count
            done.changed += count
        for path, names in zip(some, children, strict=True):
            below += [f"{path.rstrip('/')}/{name}" for name in names or ()]
    return below


def is_done(path: str, acls: Acls, secure: bool) -> bool:
    """Whether a znode has the ACL already; with `secure` whoever it belongs to."""
    if not secure:
        return acls == WORLD_ALL
    world = [acl.permissions for acl in acls if acl.scheme == "world"]
    is_owned = any(acl.scheme != "world" and acl.permissions == ALL for acl in acls)
    return is_owned and world == ([] if path.startswith(SENSITIVE) else [READ])
