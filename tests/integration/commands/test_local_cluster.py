"""The launcher with a real ZooKeeper and stand-ins for brokers: ports, registrations, restarts, endings."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.local import identity, ports, zookeeper
from logyard.local.cluster import LocalCluster
from logyard.local.errors import LocalError
from logyard.local.layout import Settings
from logyard.local.ports import Ports
from tests.support.secured_zookeeper import client_jaas, running_secured_zookeeper

pytestmark = pytest.mark.integration

STANDIN = (sys.executable, str(Path(__file__).parents[2] / "support" / "standin_broker.py"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path / "yard", broker_command=STANDIN)
    yield found
    found.stop(grace_s=5)
    assert found.processes.entries() == {}


def described(cluster: LocalCluster) -> dict[str, object]:
    found: dict[str, object] = json.loads((cluster.layout.directory / "cluster.json").read_text())
    return found


def test_a_cluster_comes_up_restarts_a_broker_and_ends(cluster: LocalCluster) -> None:
    cluster.start(Settings(2))
    first = described(cluster)
    brokers = first["brokers"]
    assert isinstance(brokers, list)
    assert [broker["id"] for broker in brokers] == [0, 1]
    assert first["bootstrap"] == ",".join(f"127.0.0.1:{broker['port']}" for broker in brokers)
    assert all(broker["http_port"] == broker["port"] + 1 for broker in brokers)
    assert all(found.answers and found.registered for found in cluster.status())
    assert sum(found.is_controller for found in cluster.status()) == 1

    assert cluster.stop_broker(1, signal.SIGKILL)
    assert described(cluster)["brokers"][1]["pid"] is None  # type: ignore[index]
    assert not ports.answers(brokers[1]["port"])
    cluster.start_broker(1)  # waits until the dead one's session is over
    again = described(cluster)["brokers"][1]  # type: ignore[index]
    assert again["port"] == brokers[1]["port"]
    assert again["pid"] not in (None, brokers[1]["pid"])

    kept = [entry.identity for entry in cluster.processes.entries().values()]
    assert cluster.stop()
    assert not any(found and identity.is_alive(found) for found in kept)
    assert not (cluster.layout.directory / "cluster.json").exists()
    assert not cluster.stop()


def test_starting_what_runs_changes_nothing(cluster: LocalCluster) -> None:
    cluster.start(Settings(1))
    before = described(cluster)
    cluster.start(Settings(1))
    assert described(cluster) == before


def test_a_port_that_another_took_is_replaced(cluster: LocalCluster) -> None:
    book = Ports(cluster.layout.directory)
    with (
        socket.create_server((ports.HOST, book.choose("broker-0"))),
        socket.create_server((ports.HOST, book.choose(zookeeper.NAME))),
    ):
        lost = dict(book.known())
        cluster.start(Settings(1))
        assert all(book.known()[name] != lost[name] for name in lost)
        assert all(found.answers for found in cluster.status())


def test_a_taken_port_base_is_an_error(cluster: LocalCluster) -> None:
    # ZooKeeper would get the next port: that one is free.
    base = next(port for port in iter(ports.free_port, None) if ports.is_free(port + 1))
    refused = pytest.raises(LocalError, match=f"port {base} for broker 0 is taken")
    with socket.create_server((ports.HOST, base)), refused:
        cluster.start(Settings(1, port_base=base))
    assert cluster.processes.entries() == {}


def test_a_broker_that_fails_takes_the_start_with_it(cluster: LocalCluster) -> None:
    # Both fail; the first to be seen ended is named.
    with pytest.raises(LocalError, match=r"broker-[01] ended with status 3: bad value for log\.dirs"):
        cluster.start(Settings(2, config={"standin.fail": "bad value for log.dirs"}))
    assert cluster.processes.entries() == {}
    assert not (cluster.layout.directory / "cluster.json").exists()


def test_an_external_zookeeper_is_used_and_left_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.start(Settings(1))
    other = LocalCluster(tmp_path / "other", broker_command=STANDIN)
    chroot = f"{cluster.address}/c-{os.getpid()}"
    try:
        other.start(Settings(1, zookeeper=chroot))
        assert other.address == chroot
        assert set(other.processes.entries()) == {"broker-0"}
    finally:
        other.stop(grace_s=5)
    assert all(found.answers for found in cluster.status())


def test_nobody_at_the_external_zookeeper(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.local.registrations.CONNECT_S", 1.0)
    with pytest.raises(LocalError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1"):
        cluster.start(Settings(1, zookeeper="127.0.0.1:1"))


def test_a_secured_zookeeper_of_others(tmp_path: Path) -> None:
    """The launcher shows the identity that the brokers are given; real brokers, TLS, log-ins and ACLs."""
    with running_secured_zookeeper(tmp_path / "zookeeper") as server:
        keys = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.protocol": "TLSv1.3",
            "zookeeper.ssl.truststore.location": str(server.authority.certificate),
            "logyard.jaas.config.file": str(client_jaas(tmp_path / "jaas.conf", "broker")),
            "zookeeper.set.acl": "true",
        }
        cluster = LocalCluster(tmp_path / "yard")
        settings = Settings(1, zookeeper=f"{server.secure_connect}/yard", config=keys, secure=True)
        try:
            cluster.start(settings)
            assert [found.answers for found in cluster.status()] == [True]
            assert cluster.stop_broker(0)
            cluster.start_broker(0)
            assert cluster.broker_state(0) == "answers"
        finally:
            cluster.stop()
        wrong = {**keys, "zookeeper.ssl.truststore.location": str(tmp_path / "nothing.pem")}
        with pytest.raises(LocalError, match=r"--config: zookeeper\.ssl\.truststore\.location"):
            LocalCluster(tmp_path / "wrong").start(Settings(1, zookeeper=server.secure_connect, config=wrong))
