"""Brokers of either kind whose listener has TLS, on one ZooKeeper, with a certificate for each broker and client.

    with running(tmp_path, "OKO", {"ssl.client.auth": "required"}) as cluster:
        Producer(cluster.librdkafka())

Each letter is a broker: K is Apache Kafka, O is ours. All listeners, that between brokers too, speak SSL.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from logyard.local.ports import HOST, Ports
from logyard.local.processes import Processes
from tests.support.certificates import PASSWORD, Authority
from tests.support.kafka import BROKER_JVM, CONFIG, jars_or_skip, java
from tests.support.zookeeper import ZooKeeperServer

START_S = 90.0


class TlsCluster:
    """See the head of this file; use `running`."""

    def __init__(self, directory: Path, kinds: str, config: Mapping[str, str]) -> None:
        self.directory = directory
        self.kinds = kinds
        self.authority = Authority()
        self.ports = [Ports(directory).choose(f"broker {number}") for number in range(len(kinds))]
        self.processes = Processes(directory)
        self.zookeeper = ZooKeeperServer(directory)
        self.trust = self.authority.write_pem(directory / "ca.pem")
        self.trust_pkcs12 = self.authority.write_pkcs12(directory / "trust.p12")
        client = self.authority.issue("client")
        self.client = client.write_pem(directory / "client.pem")
        client.write_pkcs12(directory / "client.p12")
        self._config = dict(config)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        """The settings of a client of librdkafka's, with a certificate."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trust),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client),
            **more,
        }

    def java(self, *, pem: bool = False) -> dict[str, str]:
        """The settings of a client of Java's, with a certificate."""
        return {"security.protocol": "SSL", **_stores("", self, "client", pem=pem)}

    def properties(self, broker: int) -> Path:
        """Write and return a broker's server.properties, and its stores."""
        own = self.authority.issue(f"broker-{broker}")
        own.write_pkcs12(self.directory / f"broker-{broker}.p12")
        own.write_pem(self.directory / f"broker-{broker}.pem")
        replicas = str(min(3, len(self.kinds)))
        keys = {
            **CONFIG,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "broker.id": str(broker),
            "listeners": f"SSL://{HOST}:{self.ports[broker]}",
            "security.inter.broker.protocol": "SSL",
            "zookeeper.connect": self.zookeeper.connect,
            "log.dirs": str(self.directory / f"data-{broker}"),
            **_stores("", self, f"broker-{broker}", pem=False),
            **self._config,
        }
        path = self.directory / f"broker-{broker}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        return path

    def start_broker(self, broker: int) -> None:
        path = self.directory / f"broker-{broker}.properties"
        if not path.exists():
            self.properties(broker)
        if self.kinds[broker] == "K":
            command = [*java(BROKER_JVM, "INFO"), "-cp", f"{jars_or_skip()}/*", "kafka.Kafka", str(path)]
        else:
            command = [sys.executable, "-P", "-m", "logyard.broker", "--config", str(path)]
        self.processes.start(f"broker-{broker}", command)

    def await_brokers(self, expected: set[int] | None = None) -> None:
        """Return when the brokers know each other."""
        wanted = set(range(len(self.kinds))) if expected is None else expected
        admin = AdminClient(self.librdkafka(log_level=0))
        deadline = time.monotonic() + START_S
        found: Any = None
        while time.monotonic() < deadline:
            try:
                found = set(admin.list_topics(timeout=5).brokers)
            except KafkaException as error:
                found = error
            if found == wanted:
                return
            for broker in wanted:
                assert self.processes.alive(f"broker-{broker}"), self.processes.failure(f"broker-{broker}")
            time.sleep(0.2)
        raise AssertionError(f"brokers {wanted} are not there: {found!r}")

    def kill(self, broker: int) -> None:
        """End a broker with kill -9."""
        self.processes.stop(f"broker-{broker}", number=signal.SIGKILL)

    def await_in_sync(self, topic: str) -> None:
        """Return when every replica of the topic is in sync."""
        admin = AdminClient(self.librdkafka(log_level=0))
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(KafkaException):
                found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
                if found and all(len(p.isrs) == len(p.replicas) for p in found):
                    return
            time.sleep(0.2)
        raise AssertionError(f"{topic} is not in sync")

    def stop(self) -> None:
        for broker in range(len(self.kinds)):
            self.processes.stop(f"broker-{broker}")
        self.zookeeper.stop()


@contextmanager
def running(directory: Path, kinds: str, config: Mapping[str, str] | None = None) -> Iterator[TlsCluster]:
    """Start a cluster, and stop it at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    cluster = TlsCluster(directory, kinds, config or {})
    try:
        cluster.zookeeper.start()
        for broker in range(len(kinds)):
            cluster.start_broker(broker)
        cluster.await_brokers()
        yield cluster
    finally:
        cluster.stop()


def _stores(prefix: str, cluster: TlsCluster, owner: str, *, pem: bool) -> dict[str, str]:
    if pem:
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(cluster.directory / f"{owner}.pem"),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(cluster.trust),
        }
    return {
        f"{prefix}ssl.keystore.type": "PKCS12",
        f"{prefix}ssl.keystore.location": str(cluster.directory / f"{owner}.p12"),
        f"{prefix}ssl.keystore.password": PASSWORD,
        f"{prefix}ssl.key.password": PASSWORD,
        f"{prefix}ssl.truststore.type": "PKCS12",
        f"{prefix}ssl.truststore.location": str(cluster.trust_pkcs12),
        f"{prefix}ssl.truststore.password": PASSWORD,
    }
