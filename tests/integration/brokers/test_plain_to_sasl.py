"""A cluster goes from plain text to SASL over TLS with ACLs while it serves, in the steps of docs/sasl.md.

The brokers are processes over a real ZooKeeper; each is stopped by SIGTERM, as a service manager does it.
"""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from logyard.local.ports import HOST, Ports
from logyard.local.processes import Processes
from tests.support.authority import Authority
from tests.support.lengths import IS_PROOF
from tests.support.real_cluster import eventually
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.timeout(300)

BROKERS = range(3)
PLAIN, SECURE = "PLAINTEXT", "SASL_SSL"
BROKER_PASSWORD, CLIENT_PASSWORD, ADMIN_PASSWORD = "brokers-own-word", "clients-own-word", "admins-own-word"
REFUSED = "log-in refused"  # in a broker's log
PASSWORDS = {"client": CLIENT_PASSWORD, "admin": ADMIN_PASSWORD, "stranger": CLIENT_PASSWORD}
RIGHTS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:admin",
}
OPEN = {**RIGHTS, "allow.everyone.if.no.acl.found": "true"}
COMMON = {
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "log.cleaner.enable": "false",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}


class Rolling:
    """Three brokers whose settings change from start to start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes = Processes(directory)
        self._zookeeper = ZooKeeperServer(directory)
        self._zookeeper.start()
        self._authority = Authority(directory / "tls")
        self._certificate = self._authority.issue("broker", ("localhost", HOST))
        chosen = Ports(directory)
        self._ports = {b: {p: chosen.choose(f"broker-{b}-{p.lower()}") for p in (PLAIN, SECURE)} for b in BROKERS}

    def start(
        self, broker: int, listeners: tuple[str, ...], between: str, rights: Mapping[str, str] | None = None
    ) -> None:
        """Start a broker with these listeners; brokers use the one named `between`."""
        known = "".join(f' user_{name}="{password}"' for name, password in PASSWORDS.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        keys = {
            **COMMON,
            "zookeeper.connect": self._zookeeper.connect,
            "broker.id": str(broker),
            "log.dirs": str(self._directory / f"data-{broker}"),
            "listeners": ",".join(f"{name}://{HOST}:{self._ports[broker][name]}" for name in listeners),
            "inter.broker.listener.name": between,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{module} required username="broker" password="{BROKER_PASSWORD}" '
                f'user_broker="{BROKER_PASSWORD}"{known};'
            ),
            "ssl.keystore.location": str(self._certificate.pem),
            "ssl.truststore.location": str(self._authority.certificate),
            **(rights or {}),
        }
        path = self._directory / f"broker-{broker}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = [sys.executable, "-P", "-m", "logyard.broker", "--config", str(path)]
        self._processes.start(f"broker-{broker}", command)

    def stop(self, broker: int) -> None:
        self._processes.stop(f"broker-{broker}")

    def close(self) -> None:
        for broker in BROKERS:
            self.stop(broker)
        self._processes.close()
        self._zookeeper.stop()

    def logged(self) -> str:
        """Return all that the brokers have logged."""
        return "".join(path.read_text() for path in sorted(self._directory.rglob("broker-*.log")))

    def options(self, protocol: str, user: str = "client") -> dict[str, Any]:
        options = {"bootstrap.servers": ",".join(f"{HOST}:{self._ports[b][protocol]}" for b in BROKERS)}
        if protocol == SECURE:
            options |= {
                "security.protocol": SECURE,
                "ssl.ca.location": str(self._authority.certificate),
                "sasl.mechanisms": "PLAIN",
                "sasl.username": user,
                "sasl.password": PASSWORDS[user],
            }
        return options

    def await_full_isr(self, protocol: str) -> None:
        admin = AdminClient(self.options(protocol))

        def full() -> bool:
            found = admin.list_topics("events", timeout=5).topics["events"].partitions.values()
            return bool(found) and all(len(p.isrs) == len(BROKERS) and p.leader >= 0 for p in found)

        eventually(full, "every replica is in sync", 90)

    def turn(
        self, listeners: tuple[str, ...], between: str, protocol: str, rights: Mapping[str, str] | None = None
    ) -> None:
        """Restart broker after broker with these listeners."""
        for broker in BROKERS:
            self.stop(broker)
            self.start(broker, listeners, between, rights)
            self.await_full_isr(protocol)


class Load:
    """Produces with acks=all all the time; `use` changes how."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options, self._stopping = options, threading.Event()
        self.acknowledged: set[bytes] = set()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def use(self, options: dict[str, Any]) -> None:
        self._options = options

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(60)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())
        else:
            self.failed.append(str(error))

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            options = self._options
            producer = Producer({**options, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
            while options is self._options and not self._stopping.is_set():
                producer.produce("events", b"%d" % number, on_delivery=self._delivered)
                number += 1
                producer.poll(0.01)
            producer.flush(60)


def consumed(options: dict[str, Any], wanted: set[bytes]) -> set[bytes]:
    consumer = Consumer({**options, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    found: set[bytes] = set()
    deadline = time.monotonic() + 90
    while not wanted <= found and time.monotonic() < deadline:
        found.update(m.value() for m in consumer.consume(1000, 0.1) if m.error() is None)
    consumer.close()
    return found


def allow_the_client(admin: AdminClient) -> None:
    """Make all ACLs in one request: as soon as a topic has one, whoever has none is refused."""
    wanted = [
        (ResourceType.TOPIC, "events", AclOperation.WRITE),
        (ResourceType.TOPIC, "events", AclOperation.READ),
        (ResourceType.GROUP, "check", AclOperation.READ),
    ]
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acls = [AclBinding(kind, name, literal, "User:client", "*", what, allow) for kind, name, what in wanted]
    for made in admin.create_acls(acls).values():
        made.result(30)


def refusal_of(options: dict[str, Any], topic: str) -> str | None:
    """Produce one record; returns the error's name, None if it was taken."""
    told: list[str | None] = []
    producer = Producer(options)
    producer.produce(topic, b"one more", on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(30)
    return told[0]


def test_a_cluster_goes_from_plain_to_sasl_while_it_serves(tmp_path: Path) -> None:
    cluster = Rolling(tmp_path)
    try:
        for broker in BROKERS:
            cluster.start(broker, (PLAIN,), PLAIN)
        admin = AdminClient(cluster.options(PLAIN))
        eventually(lambda: len(admin.list_topics(timeout=5).brokers) == len(BROKERS), "three brokers", 60)
        admin.create_topics([NewTopic("events", 3, 3)])["events"].result(30)
        cluster.await_full_isr(PLAIN)
        load = Load(cluster.options(PLAIN))
        with load.running():
            cluster.turn((PLAIN, SECURE), PLAIN, PLAIN)
            load.use(cluster.options(SECURE))
            cluster.turn((PLAIN, SECURE), SECURE, SECURE)
            if IS_PROOF:  # elsewhere the old listener goes and the rights come in one turn
                cluster.turn((SECURE,), SECURE, SECURE)
            cluster.turn((SECURE,), SECURE, SECURE, OPEN)
            allow_the_client(AdminClient(cluster.options(SECURE, "admin")))
            cluster.turn((SECURE,), SECURE, SECURE, RIGHTS)
        assert load.failed == []
        assert len(load.acknowledged) > 100
        assert load.acknowledged - consumed(cluster.options(SECURE), load.acknowledged) == set()
        assert REFUSED not in cluster.logged()
        with pytest.raises(KafkaException):
            AdminClient({**cluster.options(SECURE), "sasl.password": "a wrong one"}).list_topics(timeout=5)
        eventually(lambda: REFUSED in cluster.logged(), "who is refused is in the log")
        assert refusal_of(cluster.options(SECURE, "stranger"), "events") == "TOPIC_AUTHORIZATION_FAILED"
        assert refusal_of(cluster.options(SECURE), "events") is None
    finally:
        cluster.close()
    logged = cluster.logged()
    assert logged.count(" clean=True") >= (5 if IS_PROOF else 4) * len(BROKERS)
    for password in (BROKER_PASSWORD, *PASSWORDS.values()):
        assert password not in logged
