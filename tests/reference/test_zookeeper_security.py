"""ZooKeeper with log-ins and ACLs beside Apache Kafka: brokers of both kinds with one identity, and Kafka's tools.

Each tool undoes what the other has done: `logyard zk secure` and `kafka.admin.ZkSecurityMigrator` on one tree.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.broker.zk.access import Access
from logyard.broker.zk.kazoo_access import started_client
from logyard.broker.znodes.permissions import SECURED, SENSITIVE
from logyard.local.layout import Settings
from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually
from tests.support.secured_zookeeper import SecuredZooKeeper, client_jaas, running_secured_zookeeper

pytestmark = pytest.mark.timeout(900)

OWNED, OPEN = ((31, "sasl", "broker"), (1, "world", "anyone")), ((31, "world", "anyone"),)
MIGRATOR = "kafka.admin.ZkSecurityMigrator"

Acls = tuple[tuple[int, str, str], ...]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    kafka.jars_or_skip()
    with running_secured_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def jaas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The brokers' identity, for Kafka's tools and ours."""
    path = client_jaas(tmp_path / "client-jaas.conf", "broker")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={path}")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={path}")
    return path


def tree(server: SecuredZooKeeper, chroot: str, access: Access) -> dict[str, Acls]:
    """The ACL of every znode of a cluster, by path; that of ephemeral ones too."""
    client = started_client(server.connect + chroot, access, 10)
    found: dict[str, Acls] = {}
    try:
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            acls, _ = client.get_acls(path)
            found[path] = tuple(sorted(((a.perms, a.id.scheme, a.id.id) for a in acls), reverse=True))
            waiting += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    finally:
        client.stop()
        client.close()
    return found


def expected(path: str, secure: bool) -> Acls:
    if not secure or not (path == "/" or path.startswith(SECURED)):
        return OPEN
    return OWNED[:1] if path.startswith(SENSITIVE) else OWNED


def logyard(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "logyard.cli.main", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start(directory: Path, server: SecuredZooKeeper, chroot: str, kinds: str, jaas: Path, **keys: str) -> RealCluster:
    directory.mkdir()
    kafka.kinds_file(directory).write_text(kinds)
    cluster = kafka.cluster_at(directory)
    config = {**kafka.CONFIG, "offsets.topic.replication.factor": "2", "transaction.state.log.min.isr": "1"}
    config |= {"transaction.state.log.replication.factor": "2", **keys}
    cluster.start(Settings(len(kinds), server.connect + chroot, None, config))
    return RealCluster(cluster)


def test_both_kinds_own_the_znodes_together(server: SecuredZooKeeper, jaas: Path, tmp_path: Path) -> None:
    keys = {"zookeeper.set.acl": "true", "logyard.jaas.config.file": str(jaas)}
    running = start(tmp_path / "cluster", server, "/both", "OK", jaas, **keys)
    try:
        to = f"--bootstrap-server {running.bootstrap}"
        for number in range(2):
            for leader in ("0:1", "1:0"):
                name = f"t{number}{leader[0]}"
                kafka.tool("topics", *f"{to} --create --topic {name} --replica-assignment {leader}".split())
                kafka.tool("console-producer", *f"{to} --topic {name}".split(), given="a\nb\n")
            running.cluster.stop_broker(number)
            running.cluster.start_broker(number)
        user = "--alter --entity-type users --entity-name alice --add-config SCRAM-SHA-256=[password=pw]"
        kafka.tool("configs", *to.split(), *user.split())
        found = tree(server, "/both", server.access(user="broker"))
        wrong = {path: acls for path, acls in found.items() if acls != expected(path, True)}
        assert {path for path in wrong if not path.startswith("/consumers")} == set()
        assert found["/consumers"] == OPEN
        assert {"/config/users/alice", "/brokers/topics/t11/partitions/0/state", "/controller"} <= found.keys()
    finally:
        running.cluster.stop()


def test_each_tool_undoes_the_other_s_work(server: SecuredZooKeeper, jaas: Path, tmp_path: Path) -> None:
    access = server.access(user="broker")
    running = start(tmp_path / "cluster", server, "/moved", "O", jaas, **{"logyard.jaas.config.file": str(jaas)})
    try:
        to = f"--bootstrap-server {running.bootstrap}"
        kafka.tool("topics", *f"{to} --create --topic t --replica-assignment 0".split())
        connect = server.connect + "/moved"

        def all_are(secure: bool) -> bool:
            found = tree(server, "/moved", access)
            return {path for path, acls in found.items() if acls != expected(path, secure)} == set()

        def ours(doing: str, *options: str) -> str:
            return logyard("zk", doing, "--zookeeper", connect, *options)

        def theirs(doing: str) -> None:
            kafka.tool(MIGRATOR, f"--zookeeper.acl={doing}", f"--zookeeper.connect={connect}")

        assert all_are(False)
        assert " 0 of" not in ours("secure", "--dry-run")
        assert all_are(False)
        ours("secure")
        assert all_are(True)
        assert ours("secure", "--dry-run").startswith("0 of ")
        theirs("unsecure")
        assert all_are(False)
        theirs("secure")
        assert all_are(True)
        ours("secure")
        ours("unsecure")
        assert all_are(False)
        ours("unsecure")
        # The broker goes on on a tree whose ACLs were changed under it, with the roots that Kafka's tool has made.
        running.cluster.stop_broker(0)
        running.cluster.start_broker(0)
        kafka.tool("topics", *f"{to} --create --topic u --replica-assignment 0".split())
        assert "u" in kafka.tool("topics", *f"{to} --list".split()).split()
    finally:
        running.cluster.stop()


def test_users_made_by_kafka_s_tool_before_the_first_broker_are_ours_too(
    server: SecuredZooKeeper, jaas: Path, tmp_path: Path
) -> None:
    connect = server.connect + "/early"
    client = started_client(server.connect, server.access(user="broker"), 10)
    client.ensure_path("/early")
    client.stop()
    client.close()
    where = f"--zookeeper {connect} --entity-type users --entity-name"
    secret = "SCRAM-SHA-512=[iterations=8192,password=pw]"
    kafka.tool("configs", *f"{where} theirs --alter --add-config {secret}".split())
    logyard("configs", "alter", *f"{where} ours --add-config {secret}".split())
    said = [
        sorted(line for line in text.splitlines() if "iterations" in line)
        for user in ("theirs", "ours")
        for text in (kafka.tool("configs", *f"{where} {user} --describe".split()),)
    ]
    assert all(len(lines) == 1 for lines in said)
    running = start(tmp_path / "cluster", server, "/early", "O", jaas, **{"logyard.jaas.config.file": str(jaas)})
    try:
        shown = eventually(
            lambda: kafka.tool(
                "configs", *f"--bootstrap-server {running.bootstrap} --describe --entity-type users".split()
            ),
            "users are described",
        )
        for user in ("theirs", "ours"):
            assert f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-512=iterations=8192" in shown
    finally:
        running.cluster.stop()
