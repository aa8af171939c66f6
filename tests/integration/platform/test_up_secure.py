"""`logyard up --secure` (`make up SECURE=1`): all of the platform with TLS, log-ins and ACLs, operated by Airflow.

What a password was used for is looked for its traces: in what the command prints, in logs, in Airflow's database.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from logyard.local import files
from logyard.local.airflow.api import AirflowApi
from logyard.local.platform import Platform
from logyard.login import librdkafka, security
from tests.support.real_cluster import eventually

# The short path is test_the_short_job, on the same platform.
pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(900)]

NEW = "password-of-the-loader"


def logyard(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logyard.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


class Secure:
    """The platform that the command has started, and Airflow's API."""

    def __init__(self, state: Path, printed: str, api: AirflowApi) -> None:
        self.platform = Platform(state / "up")
        self.state, self.printed, self.api = state, printed, api

    @property
    def bootstrap(self) -> str:
        return str(self.platform.cluster.layout.read_description()["bootstrap"])

    def options(self, **other: str) -> dict[str, Any]:
        """Of stock clients: the super user's, or with `sasl.username` and `sasl.password` another's."""
        login = librdkafka.options(security.of(self.platform.cluster.login()))
        return {"bootstrap.servers": self.bootstrap, **login, "log_level": 0, **other}

    def run(self, dag: str, timeout_s: float = 240, **conf: Any) -> None:
        self.api.wait_dag(f"logyard_{dag}", 120)
        self.api.run_dag(f"logyard_{dag}", conf, timeout_s)

    def replicas(self, topic: str) -> dict[int, tuple[set[int], set[int]]]:
        """Partition → (replicas, those in sync)."""
        admin = AdminClient(self.options())
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return {number: (set(p.replicas), set(p.isrs)) for number, p in found.items()}

    def secrets(self) -> list[str]:
        passwords: dict[str, str] = files.read_json(self.platform.cluster.layout.directory / "security/passwords.json")
        return [*passwords.values(), NEW]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    state = tmp_path_factory.mktemp("secure") / ".logyard"
    try:
        up = logyard("up", "--dir", str(state), "--secure")
        said = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in up.stdout.splitlines() if "  " in line)
        password = said["log in as"].rpartition(" ")[2]
        with AirflowApi(said["Airflow"], "admin", password, timeout_s=90) as api:
            yield Secure(state, up.stdout + up.stderr, api)
    finally:
        logyard("down", "--dir", str(state))


def test_strangers_are_kept_out(secure: Secure) -> None:
    assert "--command-config" in secure.printed
    plain = {"bootstrap.servers": secure.bootstrap, "log_level": 0}
    for options in (plain, secure.options(**{"sasl.password": "guessed"})):
        with pytest.raises(KafkaException):
            AdminClient(options).list_topics(timeout=4)


def test_topics_are_created_and_moved(secure: Secure) -> None:
    secure.run("create_topic", topic="flights", partitions=3, replication_factor=2)
    before = secure.replicas("flights")
    assert [len(replicas) for replicas, _ in before.values()] == [2, 2, 2]
    secure.run("reassign_replicas", topics=["flights"], approve=False, drain=[2], replication_factor=2)
    assert {frozenset(replicas) for replicas, _ in secure.replicas("flights").values()} == {frozenset({0, 1})}
    secure.run("reassign_replicas", topics=["flights"], approve=False, replication_factor=3)
    eventually(
        lambda: all(isr == replicas == {0, 1, 2} for replicas, isr in secure.replicas("flights").values()), "in sync"
    )


def test_a_user_is_let_in_and_kept_out_again(secure: Secure) -> None:
    """By the DAGs of access; the password comes from a connection that a person has made."""
    connection = {"connection_id": "loader", "conn_type": "generic", "password": NEW}
    secure.api.send("POST", "/api/v2/connections", json=connection)
    options = secure.options(**{"sasl.username": "loader", "sasl.password": NEW, "message.timeout.ms": "8000"})

    def write() -> str | None:
        outcome: list[str | None] = []
        producer = Producer(options)
        producer.produce("flights", b"v", on_delivery=lambda error, _: outcome.append(error and error.name()))
        producer.flush(15)
        return outcome[0] if outcome else "nothing"

    form: dict[str, Any] = {"user": "loader", "writes": ["flights"]}
    secure.run("grant_access", **form, password_connection="loader", limits={"producer_byte_rate": 1 << 20})
    assert eventually(lambda: write() is None, "the loader writes")
    secure.run("revoke_access", **form, remove_limits=True)
    eventually(lambda: write() == "TOPIC_AUTHORIZATION_FAILED", "the loader may not any more")


def test_a_killed_controller_is_recovered(secure: Secure) -> None:
    cluster = secure.platform.cluster
    with cluster.registrations() as registered:
        epoch, controller = registered.controller_epoch(), registered.controller()
    assert controller is not None
    entry = cluster.processes.get(f"broker-{controller}")
    assert entry is not None
    assert entry.pid
    os.kill(entry.pid, signal.SIGKILL)
    secure.run("recover_controller", 300, epoch_before=epoch, controller_before=controller)
    with cluster.registrations() as registered:
        assert registered.controller_epoch() > epoch
    eventually(lambda: all(isr == replicas for replicas, isr in secure.replicas("flights").values()), "in sync again")
    assert all(one.answers and one.registered for one in cluster.status())


def test_the_page_shows_who_may_what(secure: Secure) -> None:
    secure.run("grant_access", user="reader", reads=["flights"], groups=["g"])
    found = secure.api.get("/logyard/api/topic", conn_id="logyard_default", name="flights")
    told = {(one["principal"], one["operation"]) for one in found["rights"]["acls"]}
    assert told == {("User:reader", "READ"), ("User:reader", "DESCRIBE")}


def test_no_password_is_left_for_others(secure: Secure) -> None:
    """In command lines, in files that others may read, in logs, and in Airflow's database."""
    tables = (secure.platform.cluster.processes, secure.platform.airflow.processes)
    lines = [Path(f"/proc/{one.pid}/cmdline").read_bytes() for table in tables for one in table.entries().values()]
    assert len(lines) == 8
    found = []
    for secret in secure.secrets():
        assert secret not in secure.printed
        assert not any(secret.encode() in line for line in lines)
        for path in [one for one in secure.state.rglob("*") if one.is_file()]:
            open_to_others = path.stat().st_mode & 0o077
            if (open_to_others or path.suffix in (".log", ".db")) and secret.encode() in path.read_bytes():
                found.append(str(path))
    assert found == []


def test_it_is_not_opened_by_mistake(secure: Secure) -> None:
    refused = logyard("up", "--dir", str(secure.state), check=False)
    assert refused.returncode != 0
    assert "is secured: start it with --secure" in refused.stderr
    assert all(one.answers for one in secure.platform.cluster.status()), "and what runs goes on"
