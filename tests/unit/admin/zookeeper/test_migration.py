"""Migrating the ACLs of a tree: which znodes, which ACLs, again, and what is counted."""

from collections.abc import Callable, Sequence

import pytest

from logyard.admin.zookeeper import migration
from logyard.broker.znodes.permissions import CREATOR_ALL, WORLD_ALL, WORLD_READ, Acl, Acls, secure_acls

OWNER = Acl(31, "sasl", "broker")


class Tree:
    """ZooKeeper's ACLs of some znodes; `auth` becomes the identity of the session."""

    def __init__(self, *paths: str) -> None:
        self.known: dict[str, Acls] = {"/": WORLD_ALL}
        for path in paths:
            parts = path.split("/")[1:]
            for depth in range(1, len(parts) + 1):
                self.known["/" + "/".join(parts[:depth])] = WORLD_ALL
        self.largest = 0

    def acls(self, paths: Sequence[str]) -> list[Acls | None]:
        return [self.known.get(path) for path in paths]

    def set_acls(self, paths: Sequence[str], acls_of: Callable[[str], Acls]) -> list[bool | None]:
        self.largest = max(self.largest, len(paths))
        for path in paths:
            if path in self.known:
                self.known[path] = tuple(OWNER if acl == CREATOR_ALL else acl for acl in acls_of(path))
        return [True if path in self.known else None for path in paths]

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        def below(path: str) -> list[str]:
            start = path.rstrip("/") + "/"
            return sorted(
                one.removeprefix(start) for one in self.known if one.startswith(start) and "/" not in one[len(start) :]
            )

        return [below(path) if path in self.known else None for path in paths]


def tree() -> Tree:
    return Tree("/brokers/topics/t/partitions/0/state", "/config/users/u", "/controller", "/consumers/g", "/others/x")


def run(znodes: Tree, secure: bool, dry_run: bool = False) -> tuple[int, int, list[str]]:
    said: list[str] = []
    done = migration.migrate(znodes, secure, said.append, dry_run=dry_run)
    return done.seen, done.changed, said


def test_the_root_alone_and_kafka_s_trees_are_secured() -> None:
    znodes = tree()
    assert run(znodes, True) == (11, 11, ["/brokers: 6 znodes", "/config: 3 znodes", "/controller: 1 znodes"])
    untouched = {"/consumers", "/consumers/g", "/others", "/others/x"}
    assert {path for path, acls in znodes.known.items() if acls == WORLD_ALL} == untouched
    assert znodes.known["/"] == (OWNER, WORLD_READ)
    assert znodes.known["/brokers/topics/t/partitions/0/state"] == (OWNER, WORLD_READ)
    assert znodes.known["/config/users/u"] == (OWNER,)
    assert set(znodes.known) == set(tree().known), "no root is created"


def test_it_can_be_repeated_and_taken_back() -> None:
    znodes = tree()
    run(znodes, True)
    before = dict(znodes.known)
    assert run(znodes, True)[:2] == (11, 11)
    assert znodes.known == before
    assert run(znodes, False)[:2] == (11, 11)
    assert set(znodes.known.values()) == {WORLD_ALL}


def test_a_dry_run_counts_and_changes_nothing() -> None:
    znodes = tree()
    assert run(znodes, True, dry_run=True)[:2] == (11, 11)
    assert set(znodes.known.values()) == {WORLD_ALL}
    assert run(znodes, False, dry_run=True)[:2] == (11, 0)
    run(znodes, True)
    znodes.known["/controller"] = WORLD_ALL
    assert run(znodes, True, dry_run=True)[:2] == (11, 1)


def test_a_large_level_is_done_in_pieces() -> None:
    znodes = Tree(*(f"/brokers/topics/t{number}" for number in range(2_500)))
    assert run(znodes, True)[0] == 2_503
    assert znodes.largest == migration.PIECE


@pytest.mark.parametrize(
    ("path", "acls", "secure", "opened"),
    [
        ("/brokers", WORLD_ALL, False, True),
        ("/brokers", (OWNER, WORLD_READ), True, False),
        ("/brokers", (OWNER,), False, False),
        ("/brokers", (Acl(31, "x509", "CN=a"), OWNER, WORLD_READ), True, False),
        ("/config/users/u", (OWNER,), True, False),
        ("/config/users/u", (OWNER, WORLD_READ), False, False),
        ("/brokers", (OWNER, *WORLD_ALL), False, False),
        ("/brokers", (Acl(1, "sasl", "broker"), WORLD_READ), False, False),
    ],
)
def test_what_counts_as_done(path: str, acls: Acls, secure: bool, opened: bool) -> None:
    assert migration.is_done(path, acls, True) is secure
    assert migration.is_done(path, acls, False) is opened


def test_every_root_gets_its_own_acl() -> None:
    znodes = Tree("/delegation_token/tokens/t")
    run(znodes, True)
    assert znodes.known["/delegation_token"] == (OWNER, WORLD_READ)
    assert znodes.known["/delegation_token/tokens/t"] == (OWNER,)
    assert secure_acls("/delegation_token/tokens/t") == (CREATOR_ALL,)
