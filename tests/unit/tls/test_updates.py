"""Stores are read again: Kafka's checks, later connections with the new ones, open ones as they were."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.listeners import TlsListeners
from logyard.broker.tls.problems import TlsProblem
from logyard.broker.tls.updates import TlsUpdates
from tests.support.certificates import Authority, Issued

CA = Authority()
P = "listener.name.ssl."
ONE = CA.issue("broker", ("127.0.0.1", "localhost"))


class World:
    """A broker's TLS over files in a directory."""

    def __init__(self, directory: Path, own: Issued = ONE, between: str = "SSL", **more: str) -> None:
        self.keys = own.write_pem(directory / "own.pem")
        self.trust = CA.write_pem(directory / "ca.pem")
        self.config = BrokerConfig.parse(
            "",
            {
                "zookeeper.connect": "z:1",
                "listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
                "security.inter.broker.protocol": between,
                "password.encoder.secret": "enc",
                f"{P}ssl.keystore.type": "PEM",
                f"{P}ssl.keystore.location": str(self.keys),
                f"{P}ssl.truststore.type": "PEM",
                f"{P}ssl.truststore.location": str(self.trust),
                **{key.replace("_", "."): value for key, value in more.items()},
            },
        )
        self.listeners = TlsListeners(Handshakes())
        self.updates = TlsUpdates(self.config, self.listeners, run_here)
        self.updates.open(self.config)

    @property
    def subject(self) -> bytes:
        server = self.listeners.server("SSL")
        assert server is not None
        assert server.material.keys is not None
        return server.material.keys.names[0]

    @property
    def context(self) -> ssl.SSLContext:
        server = self.listeners.server("SSL")
        assert server is not None
        return server.material.server

    def refused(self, overrides: Mapping[str, str]) -> str:
        with pytest.raises(ApiError) as caught:
            asyncio.run(self.updates.check(self.config.with_dynamic(overrides)))
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        return str(caught.value.message)

    def take(self, overrides: Mapping[str, str]) -> None:
        asyncio.run(self.updates.take(self.config.with_dynamic(overrides)))


async def run_here(work: Callable[[], Any]) -> Any:
    return work()


def test_a_new_certificate_takes_its_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.context
    other = CA.issue("broker", ("127.0.0.1", "localhost", "more.example")).write_pem(tmp_path / "two.pem")
    overrides = {f"{P}ssl.keystore.location": str(other)}
    asyncio.run(world.updates.check(world.config.with_dynamic(overrides)))
    assert world.context is before
    world.take(overrides)
    assert world.context is not before


def test_a_file_changed_in_place_is_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.context
    world.take({})
    assert world.context is before
    CA.issue("broker").write_pem(world.keys)
    world.take({})
    assert world.context is not before


@pytest.mark.parametrize(
    ("own", "allowed", "why"),
    [
        (CA.issue("other"), "ssl_allow_dn_changes", "has another distinguished name"),
        (CA.issue("broker", ("127.0.0.1",)), "ssl_allow_san_changes", "lacks the alternative names localhost"),
        (Authority().issue("broker"), "", "brokers could not connect to each other on this listener"),
    ],
)
def test_what_kafka_refuses(tmp_path: Path, own: Issued, allowed: str, why: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    other = own.write_pem(tmp_path / "two.pem")
    overrides = {f"{P}ssl.keystore.location": str(other)}
    world = World(tmp_path / "1")
    assert why in world.refused(overrides)
    before = world.context
    with capture_logs() as lines:
        world.take(overrides)
    assert world.context is before
    assert [why in line["error"] for line in lines if line["event"] == "the listeners keep their stores"] == [True]
    if allowed:
        generous = World(tmp_path / "2", ONE, "SSL", **{allowed: "true"})
        asyncio.run(generous.updates.check(generous.config.with_dynamic(overrides)))


def test_between_clients_and_brokers_only_names_count(tmp_path: Path) -> None:
    """On a listener that brokers do not use among themselves another authority is allowed."""
    world = World(tmp_path, between="PLAINTEXT")
    other = Authority().issue("broker").write_pem(tmp_path / "two.pem")
    asyncio.run(world.updates.check(world.config.with_dynamic({f"{P}ssl.keystore.location": str(other)})))


def test_other_settings_need_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.refused({f"{P}ssl.client.auth": "required"}) == (
        f"{P}ssl.client.auth: cannot change while the listener runs"
    )
    assert "cannot be read" in world.refused({f"{P}ssl.keystore.location": "/none"})


def test_a_trust_store_is_not_added(tmp_path: Path) -> None:
    world = World(tmp_path, ONE, "PLAINTEXT", **{f"{P}ssl.truststore.location": ""})
    assert "a trust store cannot be added" in world.refused({f"{P}ssl.truststore.location": str(world.trust)})


def test_passwords_are_stored_encrypted(tmp_path: Path) -> None:
    world = World(tmp_path)
    name = f"{P}ssl.keystore.password"
    stored = world.updates.encoded({}, {name: "swordfish", "max.connections": "5"})
    assert "swordfish" not in stored[name]
    assert stored["max.connections"] == "5"
    assert world.updates.encoded(stored, stored) == stored
    assert world.updates.decoded(stored, stored) == {name: "swordfish", "max.connections": "5"}
    assert world.updates.decoded({name: "fresh"}, stored) == {name: "fresh"}


def test_a_broker_that_could_not_reach_itself_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(TlsProblem, match=r"listener\.name\.ssl\.ssl\.truststore\.location: brokers could not connect"):
        World(tmp_path, Authority().issue("broker"))
