"""The ACL of each path with zookeeper.set.acl, as facts §18.6 has it."""

import pytest

from logyard.broker.znodes import paths, permissions
from logyard.broker.znodes.permissions import CREATOR_ALL, WORLD_ALL, WORLD_READ, open_acls, secure_acls


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/kafka",
        "/brokers/ids/1",
        "/config",
        "/config/topics/t",
        "/config/clients/c",
        "/delegation_token",
        "/consumers/g",
        "/kafka-acl/Topic/t",
    ],
)
def test_the_creator_writes_and_the_world_reads(path: str) -> None:
    assert secure_acls(path) == (CREATOR_ALL, WORLD_READ)
    assert open_acls(path) == WORLD_ALL


@pytest.mark.parametrize(
    "path",
    [
        "/config/users",
        "/config/users/a/clients/c",
        "/config/brokers/1",
        "/delegation_token/tokens/x",
        "/config/users2",  # Kafka compares the text, not the parts of the path
    ],
)
def test_nobody_else_reads_what_is_secret(path: str) -> None:
    assert secure_acls(path) == (CREATOR_ALL,)


def test_the_first_consumers_write_below_their_own() -> None:
    assert secure_acls("/consumers") == WORLD_ALL


def test_every_path_that_brokers_create_is_in_a_tree_that_is_migrated() -> None:
    outside = [
        path for path in paths.PERSISTENT if path != permissions.CONSUMERS and not path.startswith(permissions.SECURED)
    ]
    assert outside == []
