"""Users that are made before the first broker starts, below a chroot that nobody has created yet."""

from pathlib import Path

import pytest

from logyard.admin.configs import znodes as user_znodes
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.zookeeper.znodes import KazooZnodes, make_chroot
from logyard.local import scram_users
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.integration


def test_the_chroot_is_made_first(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:
        connect = f"{server.connect}/yards/west"
        client = KazooZnodes(connect)
        try:
            with pytest.raises(EnsembleUnreachable, match="check the chroot"):
                scram_users.write_credentials(client, {"ann": "secret"})
            make_chroot(connect)
            make_chroot(connect)
            scram_users.write_credentials(client, {"ann": "secret"})
            (_, known) = user_znodes.describe(client, Entity((USERS,), ("ann",)))[0]
            assert list(known) == [scram_users.MECHANISM]
            path = "/config/users/ann"
            first = client.read([path])[0]
            scram_users.write_credentials(client, {"ann": "another"})
            assert client.read([path])[0] == first
            scram_users.write_credentials(client, {"ann": "another"}, ["ann"])
            assert client.read([path])[0] != first
        finally:
            client.close()
