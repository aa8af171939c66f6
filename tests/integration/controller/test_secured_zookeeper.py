"""The session against a real ZooKeeper with TLS and SASL: log-ins, refusals, ACLs, and connections that break."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logyard.admin.connector import RealConnector
from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import LogyardError
from logyard.broker.zk.access import ANYBODY, Access, Login
from logyard.broker.zk.kazoo_access import NoConnection, started_client
from logyard.broker.zk.session import ZooKeeperSession, ZooKeeperUnavailable
from logyard.broker.znodes.ops import Create, SetData, WatchEvent, ZkCode
from tests.support.real_cluster import eventually
from tests.support.secured_zookeeper import SecuredZooKeeper, client_jaas, running_secured_zookeeper

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with running_secured_zookeeper(tmp_path_factory.mktemp("secured")) as running:
        yield running


@asynccontextmanager
async def opened(connect: str, access: Access, wait_s: float = 20, **options: Any) -> AsyncIterator[ZooKeeperSession]:
    session = ZooKeeperSession(connect, access=access, **options)
    try:
        await session.wait_connected(wait_s)
        yield session
    finally:
        await session.close()


async def why_not(connect: str, access: Access) -> str:
    """Why there is no session. A server's first handshake takes a second of CPU: on a busy machine it is given longer
    than that, since nothing but silence has been met before."""
    told = ""
    for wait_s in (3, 10, 30):
        with pytest.raises(ZooKeeperUnavailable) as raised:
            async with opened(connect, access, wait_s):
                pass
        told = str(raised.value)
        if not told.endswith("check its address"):
            break
    return told


def acls(server: SecuredZooKeeper, access: Access, path: str) -> set[tuple[int, str, str]]:
    client = started_client(server.secure_connect if access.tls else server.connect, access, 10)
    try:
        return {(acl.perms, acl.id.scheme, acl.id.id) for acl in client.get_acls(path)[0]}
    finally:
        client.stop()
        client.close()


SASL, X509, WORLD_READ = (31, "sasl", "broker"), (31, "x509", "CN=broker"), (1, "world", "anyone")


@pytest.mark.parametrize(
    ("tls", "user", "certificate", "owners"),
    [
        (False, "broker", None, {SASL}),
        (True, "broker", None, {SASL}),
        (True, None, "broker", {X509}),
        (True, "broker", "broker", {SASL, X509}),
    ],
)
async def test_what_is_created_belongs_to_the_identity(
    server: SecuredZooKeeper, tls: bool, user: str | None, certificate: str | None, owners: set[Any]
) -> None:
    root = f"/{'tls' if tls else 'plain'}-{user}-{certificate}"
    connect = (server.secure_connect if tls else server.connect) + root
    access = server.access(tls=tls, user=user, certificate=certificate)
    assert access.has_identity
    async with opened(connect, access, set_acl=True) as zk:
        created = [await zk.multi([Create(path)]) for path in ("/config", "/config/users", "/config/users/u")]
        assert all(result.ok for (result,) in created)
        await zk.multi([Create("/consumers")])
        assert (await zk.read(["/config/users/u"]))[0] is not None
    assert acls(server, access, root) == {*owners, WORLD_READ}
    assert acls(server, access, f"{root}/config") == {*owners, WORLD_READ}
    assert acls(server, access, f"{root}/config/users/u") == owners
    assert acls(server, access, f"{root}/consumers") == {(31, "world", "anyone")}
    async with opened(server.connect + root, ANYBODY) as stranger:
        (refused,) = await stranger.multi([SetData("/config", b"x")])
        assert refused.code is ZkCode.NO_AUTH
        with pytest.raises(LogyardError, match="does not let this identity read /config/users/u"):
            await stranger.read(["/config/users/u"])
        assert await stranger.read(["/config"]) != [None]


async def test_a_session_without_an_identity_cannot_create_what_is_to_be_its_own(server: SecuredZooKeeper) -> None:
    async with opened(server.connect, ANYBODY, set_acl=True) as zk:
        (refused,) = await zk.multi([Create("/nobody-s")])
        assert refused.code is ZkCode.INVALID_ACL


def one_line(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = [record for record in caplog.records if record.name == "logyard.zookeeper.kazoo"]
    return record.getMessage()


@pytest.mark.parametrize(
    "login", [Login("broker", "wrong-secret", "the section Client"), Login("nobody", "wrong-secret")]
)
async def test_a_wrong_password_is_one_line_and_tried_again_each_second(
    server: SecuredZooKeeper, caplog: pytest.LogCaptureFixture, login: Login
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ZooKeeperUnavailable) as refused:
        async with opened(server.connect, Access(login=login), 3.5):
            pass
    assert f"refuses the log-in of '{login.username}': check its password" in str(refused.value)
    assert one_line(caplog) in str(refused.value)
    assert "wrong-secret" not in caplog.text + str(refused.value)


def test_a_client_that_waits_is_told_the_same_at_once(server: SecuredZooKeeper) -> None:
    begun = time.monotonic()
    with pytest.raises(NoConnection, match="refuses the log-in of 'broker'"):
        started_client(server.connect, Access(login=Login("broker", "wrong-secret")), 60)
    assert time.monotonic() - begun < 30
    with pytest.raises(NoConnection, match="is this its TLS port"):
        started_client(server.connect, server.access(tls=True), 2)
    with pytest.raises(NoConnection, match=r"set zookeeper\.ssl\.client\.enable"):
        started_client(server.secure_connect, ANYBODY, 2)


async def test_the_plain_port_by_tls_and_the_tls_port_in_plain_are_one_line_each(
    server: SecuredZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    for connect, tls, hint in (
        (server.connect, True, "is this its TLS port"),
        (server.secure_connect, False, "if this is its TLS port, set zookeeper.ssl.client.enable"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert hint in await why_not(connect, server.access(tls=tls))
        one_line(caplog)


async def test_a_server_of_another_authority_is_refused(server: SecuredZooKeeper, tmp_path: Path) -> None:
    from logyard.local.authority import Authority

    other = Authority(tmp_path)

    def context() -> Any:
        made = server.context()
        found = type(made)(made.protocol)
        found.load_verify_locations(other.certificate)
        return found

    assert "by an authority in the trust store" in await why_not(server.secure_connect, Access(context))


async def test_the_host_s_name_is_checked(tmp_path: Path) -> None:
    with running_secured_zookeeper(tmp_path, hosts=("elsewhere.example",)) as server:
        assert "must be for the name" in await why_not(server.secure_connect, server.access(tls=True))
        unchecked = Access(lambda: server.context(check_hostname=False))
        async with opened(server.secure_connect, unchecked) as zk:
            assert (await zk.multi([Create("/a")]))[0].ok


async def test_a_session_survives_its_server_with_tls_and_log_in(tmp_path: Path) -> None:
    with running_secured_zookeeper(tmp_path) as server:
        access = server.access(tls=True, user="broker")
        async with opened(server.secure_connect, access, set_acl=True, session_timeout_ms=30_000) as zk:
            lost: list[bool] = []
            zk.on_session_lost = lambda: lost.append(True)
            session, seen = zk.session_id, asyncio.Event()
            await zk.multi([Create("/a"), Create("/a/e", ephemeral=True)])
            await zk.read_and_watch("/a/e", lambda event, path: seen.set())
            await asyncio.to_thread(server.stop)
            waiting = asyncio.create_task(zk.multi([SetData("/a/e", b"after")]))
            await asyncio.to_thread(server.start)
            assert (await asyncio.wait_for(waiting, 20))[0].ok
            await asyncio.wait_for(seen.wait(), 5)
            assert (zk.session_id, lost) == (session, [])


async def until(reached: Callable[[], bool]) -> None:
    for _ in range(300):
        if reached():
            return
        await asyncio.sleep(0.1)


def gone(server: SecuredZooKeeper, path: str) -> None:
    """Wait until an ephemeral znode is gone."""
    client = started_client(server.connect, ANYBODY, 10)
    try:
        eventually(lambda: client.exists(path) is None, "a broker that is locked out still holds its znode", 30)
    finally:
        client.stop()
        client.close()


async def test_a_password_that_is_changed_ends_the_session_and_the_right_one_gives_a_new_one(tmp_path: Path) -> None:
    with running_secured_zookeeper(tmp_path) as server:
        users = {"broker": "broker-secret"}
        async with opened(server.connect, server.access(user="broker"), session_timeout_ms=4_000) as zk:
            events: list[str] = []
            zk.on_session_lost = lambda: events.append("lost")
            zk.on_session_established = lambda _: events.append("established")
            await zk.multi([Create("/mine", ephemeral=True)])
            server.set_users({"broker": "another"})
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await until(lambda: bool(events))
            assert events == ["lost"]
            await asyncio.to_thread(gone, server, "/mine")
            server.set_users(users)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await until(lambda: len(events) > 1)
            assert events == ["lost", "established"]
            assert (await zk.multi([Create("/again")]))[0].ok


async def test_many_answers_in_one_record_of_tls_are_not_waited_for(server: SecuredZooKeeper) -> None:
    async with opened(server.secure_connect, server.access(tls=True), session_timeout_ms=60_000) as zk:
        started = asyncio.get_running_loop().time()
        for turn in range(20):
            answers = await zk.pipeline([[Create(f"/many-{turn}-{number}")] for number in range(200)])
            assert all(result.ok for (result,) in answers)
        assert asyncio.get_running_loop().time() - started < 15


async def test_watches_fire_over_tls(server: SecuredZooKeeper) -> None:
    async with (
        opened(server.secure_connect, server.access(tls=True)) as one,
        opened(server.connect, ANYBODY) as other,
    ):
        fired: asyncio.Queue[tuple[WatchEvent, str]] = asyncio.Queue()
        for number in range(50):
            path = f"/watched-{number}"
            assert await one.read_and_watch(path, lambda event, path: fired.put_nowait((event, path))) is None
            await other.multi([Create(path)])
            assert await asyncio.wait_for(fired.get(), 5) == (WatchEvent.CREATED, path)


def test_a_connection_names_the_file_with_its_identity(server: SecuredZooKeeper, tmp_path: Path) -> None:
    jaas = client_jaas(tmp_path / "jaas.conf", "broker")
    file = tmp_path / "zookeeper.properties"
    file.write_text(f"logyard.jaas.config.file={jaas}\n")

    def settings(path: Path) -> ClusterSettings:
        return ClusterSettings.read("b:1", {"zookeeper": server.connect, "zookeeper_config_file": str(path)})

    znodes = RealConnector().znodes(settings(file))
    try:
        znodes.commit([Create("/named-by-a-connection", b"")])
    finally:
        znodes.close()
    assert acls(server, ANYBODY, "/named-by-a-connection") == {SASL, WORLD_READ}
    with pytest.raises(EnsembleUnreachable, match=r"ZooKeeper's settings of this connection: .*absent"):
        RealConnector().ensemble(settings(tmp_path / "absent"))
