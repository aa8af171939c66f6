"""`logyard cluster start --secure`: the one line, and what a user does with what it leaves."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoAuthError

from logyard.broker.zk.access import ANYBODY
from logyard.broker.zk.kazoo_access import started_client
from logyard.cli import command_config
from logyard.local import files
from logyard.local.cluster import LocalCluster
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.integration


class Cluster:
    """The cluster that the command has started, and its client's file."""

    def __init__(self, directory: Path, printed: str) -> None:
        self.directory = directory
        self.printed = printed
        self.local = LocalCluster(directory)
        description = files.read_json(directory / "cluster.json")
        self.bootstrap, self.zookeeper = str(description["bootstrap"]), str(description["zookeeper"])
        self.client_file = Path(description["command_config"])

    @property
    def secrets(self) -> list[str]:
        found: dict[str, str] = files.read_json(self.directory / "security" / "passwords.json")
        return list(found.values())

    def options(self, **other: Any) -> dict[str, Any]:
        settings = command_config.settings(self.bootstrap, command_config.read(self.client_file))
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": settings.security_protocol,
            "sasl.mechanisms": settings.sasl_mechanism,
            "sasl.username": settings.username,
            "sasl.password": settings.password,
            "ssl.ca.location": settings.ssl_cafile,
            **other,
        }


def logyard(*words: str, check: bool = True) -> str:
    command = [sys.executable, "-m", "logyard.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure") / "yard"
    try:
        printed = logyard("cluster", "start", "--dir", str(directory), "--brokers", "2", "--secure")
        yield Cluster(directory, printed)
    finally:
        logyard("cluster", "stop", "--dir", str(directory), check=False)


def test_what_it_prints_is_enough_to_use_it(cluster: Cluster) -> None:
    assert f"--command-config {cluster.client_file}" in cluster.printed
    status = logyard("cluster", "status", "--dir", str(cluster.directory))
    assert status.count("serves") == 2
    where = ["--bootstrap-server", cluster.bootstrap, "--command-config", str(cluster.client_file)]
    logyard("topics", "create", *where, "--topic", "events", "--partitions", "2", "--replication-factor", "2")
    assert "events" in logyard("topics", "list", *where)
    producer = Producer(cluster.options(acks="all"))
    for number in range(100):
        producer.produce("events", str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer(cluster.options(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["events"])
    read = {message.value() for _ in range(100) if (message := consumer.poll(20)) is not None and not message.error()}
    consumer.close()
    assert read == {str(number).encode() for number in range(100)}


def test_nobody_gets_in_without_the_password_or_the_authority(cluster: Cluster) -> None:
    def is_refused(wrong: dict[str, str]) -> bool:
        admin = AdminClient(cluster.options(**{**wrong, "log_level": 0}))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=4)
        return True

    wrong = (
        {"sasl.password": "guessed"},
        {"security.protocol": "PLAINTEXT"},
        {"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"},
    )
    with ThreadPoolExecutor(len(wrong)) as side_by_side:
        assert all(side_by_side.map(is_refused, wrong))


def test_a_user_gets_a_file_of_her_own(cluster: Cluster, tmp_path: Path) -> None:
    """As docs/security.md has it: with that file she sees what ACLs let her see."""
    where = ["--bootstrap-server", cluster.bootstrap, "--command-config"]
    for topic in ("hers", "others"):
        logyard("topics", "create", *where, str(cluster.client_file), "--topic", topic, "--partitions", "1")
    password, own = tmp_path / "alice.password", tmp_path / "alice.properties"
    password.write_text('a"b\\c d\n')
    user = ("--user", "alice", "--password-file", str(password), "--client-config", str(own))
    logyard("users", "add", *where, str(cluster.client_file), *user)
    assert own.stat().st_mode & 0o077 == 0
    acl = ("--allow-principal", "User:alice", "--producer", "--topic", "hers")
    logyard("acls", "add", *where, str(cluster.client_file), *acl)
    eventually(lambda: logyard("topics", "list", *where, str(own)) == "hers\n", "she sees her topic")


def test_a_broker_that_is_killed_comes_back(cluster: Cluster) -> None:
    cluster.local.stop_broker(0)
    cluster.local.start_broker(0)
    assert cluster.local.broker_state(0) == "answers"
    eventually(lambda: all(one.answers and one.registered for one in cluster.local.status()), "both serve")


def test_znodes_are_the_brokers_own_and_their_tool_s(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = started_client(cluster.zookeeper, ANYBODY, 10)
    try:
        acls, _ = stranger.get_acls("/brokers/topics")
        assert {(acl.perms, acl.id.scheme) for acl in acls} == {(31, "sasl"), (1, "world")}
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/admin")
    finally:
        stranger.stop()
        stranger.close()
    place = ["--zookeeper", cluster.zookeeper]
    assert "needs the brokers' identity" in logyard("zk", "secure", *place, check=False)
    identity = ["--zk-tls-config-file", str(cluster.directory / "zookeeper-client.properties")]
    assert "\n1 of " in "\n" + logyard("zk", "secure", *place, *identity, "--dry-run"), "all but the root are secure"
    assert "nothing is wrong" in logyard("zk", "check", *place, *identity)
    monkeypatch.setenv("LOGYARD_ZK_TLS_CONFIG_FILE", identity[1])
    assert "nothing is wrong" in logyard("zk", "check", *place)
    shown = logyard("configs", "describe", *place, "--entity-type", "users")
    assert "admin" in shown


def test_no_password_is_in_what_it_leaves_for_others(cluster: Cluster) -> None:
    """Neither in what was printed, nor in a log, nor in a command line, nor in a file that others can read."""
    pids = [entry.pid for entry in cluster.local.processes.entries().values()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes() for pid in pids]
    assert len(lines) == 3
    for secret in cluster.secrets:
        assert secret not in cluster.printed
        assert not any(secret.encode() in line for line in lines)
        for path in [one for one in cluster.directory.rglob("*") if one.is_file()]:
            mode = path.stat().st_mode & 0o077
            assert not (mode and secret.encode() in path.read_bytes()), path
