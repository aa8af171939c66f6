"""A session and a tool log in to a real ZooKeeper by Kerberos, with a real KDC."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logyard.broker.errors import LogyardError
from logyard.broker.security import zookeeper_access
from logyard.broker.zk.access import Access
from logyard.broker.zk.kazoo_access import NoConnection, started_client
from logyard.broker.zk.session import ZooKeeperSession
from logyard.broker.znodes.ops import Create
from tests.support.kerberos import REALM, Realm, running_realm
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

CONFIG = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with ExitStack() as stack:
        running = stack.enter_context(running_realm(tmp_path_factory.mktemp("realm")))
        stack.enter_context(running.inside())
        yield running


@pytest.fixture(scope="module")
def server(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    directory = tmp_path_factory.mktemp("zookeeper")
    jaas = directory / "server-jaas.conf"
    jaas.write_text(f"Server {{\n  {realm.jaas('zookeeper/localhost')}\n}};\n")
    options = [*realm.java_options, f"-Djava.security.auth.login.config={jaas}"]
    made = ZooKeeperServer(directory, config=CONFIG, options=options)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def access(realm: Realm, directory: Path, principal: str = "kafka/localhost", more: str = "") -> Access:
    path = directory / "client-jaas.conf"
    path.write_text(f"Client {{\n  {realm.jaas(principal)}\n}};\n")
    return zookeeper_access.of_tool(None, {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path} {more}"})


def connect(server: ZooKeeperServer) -> str:
    return f"localhost:{server.port}"


async def test_what_is_created_belongs_to_the_principal(realm: Realm, server: ZooKeeperServer, tmp_path: Path) -> None:
    told = access(realm, tmp_path)
    assert told.has_identity
    session = ZooKeeperSession(connect(server), access=told, set_acl=True)
    try:
        await session.wait_connected(20)
        assert all(result.ok for result in await session.multi([Create("/config")]))
    finally:
        await session.close()
    client = started_client(connect(server), told, 10)
    owners = {(acl.perms, acl.id.scheme, acl.id.id) for acl in client.get_acls("/config")[0]}
    client.stop()
    client.close()
    assert owners == {(31, "sasl", f"kafka/localhost@{REALM}"), (1, "world", "anyone")}


def test_a_kdc_that_is_gone_and_another_service_are_one_line(
    realm: Realm, server: ZooKeeperServer, tmp_path: Path
) -> None:
    with pytest.raises(NoConnection, match=r"by Kerberos: .*not found in Kerberos database"):
        started_client(connect(server), access(realm, tmp_path, more="-Dzookeeper.sasl.client.username=zk"), 4)
    other = access(realm, tmp_path, "other/localhost")
    realm.stop()
    try:
        with pytest.raises(NoConnection, match="Cannot contact any KDC"):
            started_client(connect(server), other, 4)
    finally:
        realm.start()
    started_client(connect(server), other, 10).stop()


def test_a_missing_keytab_is_told_at_the_start(realm: Realm, tmp_path: Path) -> None:
    path = tmp_path / "client-jaas.conf"
    path.write_text(
        "Client { x.Krb5LoginModule required useKeyTab=true "
        f'keyTab="{tmp_path}/none" principal="gone/localhost@{REALM}"; }};'
    )
    with pytest.raises(LogyardError, match=r"section Client of .*: .*none"):
        zookeeper_access.of_tool(None, {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"})
