"""Brokers on hosts of their own (hosts.py), secured: SASL_SSL by SCRAM, ACLs, the HTTP side with the same log-ins.

    with BrokersOnHosts(hosts, ("broker1", "broker2")) as brokers:    # ZooKeeper runs on the first
        brokers.create("flights", 2)
        brokers.allow_jobs("flights")
        brokers.produce("flights", [(b"k", b"v")])                     # (partition, value) → offset

Users: `admin` (super user), and `jobs`, who may do what `allow_jobs` gives.
"""

import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from logyard.admin.zookeeper.znodes import KazooZnodes
from logyard.local import scram_users
from logyard.local.authority import Authority
from tests.support.hosts import Host, Hosts
from tests.support.real_cluster import eventually
from tests.support.zookeeper import QUICK_JAVA, java, pyspark_jars

PORT, ZOOKEEPER_PORT, HTTP_PORT = 9093, 2181, 8082
PROPERTIES = """\
broker.id={id}
zookeeper.connect={zookeeper}
listeners=SASL_SSL://0.0.0.0:{port}
advertised.listeners=SASL_SSL://{address}:{port}
http.listener=0.0.0.0:{http}
http.advertised.listener={name}:{http}
http.security.listener=SASL_SSL
log.dirs={directory}/log
security.inter.broker.protocol=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={pem}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin;User:broker
offsets.topic.replication.factor=2
offsets.topic.num.partitions=2
log.cleaner.enable=false
controlled.shutdown.retry.backoff.ms=500
"""


class BrokersOnHosts:
    """A broker on each of the hosts; its files are in the host's own folder."""

    def __init__(self, hosts: Hosts, names: Sequence[str]) -> None:
        self._hosts: list[Host] = [hosts[name] for name in names]
        # The authority is no host's: each host gets a copy of what it needs.
        self._authority = Authority(self._hosts[0].directory.parent / "authority")
        self.passwords = {name: secrets.token_urlsafe(12) for name in ("admin", "broker", "jobs")}
        self._ended = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host.name}:{PORT}" for host in self._hosts)

    @property
    def certificate(self) -> str:
        """The authority's certificate as PEM text."""
        return self._authority.certificate.read_text()

    def connection(self) -> dict[str, Any]:
        """Airflow's connection of the user `jobs`; the certificate is in it as text."""
        extra = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "ssl_ca": self.certificate}
        login = {"login": "jobs", "password": self.passwords["jobs"]}
        return {"conn_type": "logyard", "host": self.bootstrap, **login, "extra": extra}

    def __enter__(self) -> Self:
        first = self._hosts[0]
        _start_zookeeper(first)
        address = f"{first.address}:{ZOOKEEPER_PORT}"
        client = eventually(lambda: KazooZnodes(address), "ZooKeeper", 60)
        try:
            scram_users.write_credentials(client, self.passwords)
        finally:
            client.close()
        for number, host in enumerate(self._hosts, start=1):
            self._start_broker(number, host, f"{first.name}:{ZOOKEEPER_PORT}")
        wanted = len(self._hosts)
        eventually(lambda: len(self.admin().list_topics(timeout=5).brokers) == wanted, "the brokers", 90)
        return self

    def __exit__(self, *failure: object) -> None:
        """They end with their hosts."""

    def _start_broker(self, number: int, host: Host, zookeeper: str) -> None:
        directory, authority = host.directory, host.directory / "ca.pem"
        authority.write_text(self.certificate)
        pem = directory / "key.pem"
        pem.write_text(self._authority.issue(host.name, (host.name, host.address)).pem.read_text())
        text = PROPERTIES.format(
            id=number,
            zookeeper=zookeeper,
            port=PORT,
            http=HTTP_PORT,
            name=host.name,
            address=host.address,
            directory=directory,
            pem=pem,
            authority=authority,
        )
        login = scram_users.login_module("broker", self.passwords["broker"])
        path = directory / "server.properties"
        path.write_text(f"{text}listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={login}\n")
        host.start("broker", [sys.executable, "-P", "-m", "logyard.broker", "--config", str(path), "--strict"])

    def options(self, user: str = "admin") -> dict[str, Any]:
        """Options of librdkafka, for clients outside of all hosts."""
        return {
            "bootstrap.servers": ",".join(f"{host.address}:{PORT}" for host in self._hosts),
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.pem": self.certificate,
            "log_level": 0,
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.options())

    def create(self, topic: str, partitions: int, **config: str) -> None:
        keys = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, len(self._hosts), config=keys)])[topic].result(30)

    def allow_jobs(self, topic: str) -> None:
        """Let `jobs` audit, compact and export the topic, and nothing else."""
        rights = [(ResourceType.TOPIC, topic, name) for name in ("DESCRIBE", "READ", "ALTER")]
        rights.append((ResourceType.BROKER, "kafka-cluster", "DESCRIBE_CONFIGS"))
        pattern, permission = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        bindings = [
            AclBinding(kind, name, pattern, "User:jobs", "*", AclOperation[operation], permission)
            for kind, name, operation in rights
        ]
        admin = self.admin()
        for made in admin.create_acls(bindings).values():
            made.result(20)

    def produce(self, topic: str, events: Sequence[tuple[bytes, bytes]], **conf: Any) -> dict[tuple[int, bytes], int]:
        """Send with acks=all; returns the offset of every acknowledged (partition, value)."""
        acknowledged: dict[tuple[int, bytes], int] = {}

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged[message.partition(), message.value()] = message.offset()

        producer = Producer({**self.options(), "acks": "all", **conf})
        for key, value in events:
            producer.produce(topic, value, key, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(60) == 0
        return acknowledged

    def consume(self, topic: str, partitions: int, timeout_s: float = 60) -> list[Any]:
        """Read every partition from its start to its end."""
        consumer = Consumer({**self.options(), "group.id": "unused", "enable.auto.commit": False})
        found: list[Any] = []
        try:
            for partition in range(partitions):
                place = TopicPartition(topic, partition, 0)
                end = consumer.get_watermark_offsets(place, 10)[1]
                consumer.assign([place])
                deadline = time.monotonic() + timeout_s
                while consumer.position([place])[0].offset < end:
                    assert time.monotonic() < deadline, f"{topic}-{partition} is not read to {end}"
                    found += [message for message in consumer.consume(1000, 0.05) if message.error() is None]
        finally:
            consumer.close()
        return found

    def log_bytes(self, topic: str) -> dict[str, int]:
        """Return host → bytes of the topic's segments on that host's disk."""
        return {
            host.name: sum(path.stat().st_size for path in (host.directory / "log").glob(f"{topic}-*/*.log"))
            for host in self._hosts
        }


def _start_zookeeper(host: Host) -> None:
    data, config = host.directory / "zookeeper", host.directory / "zoo.cfg"
    data.mkdir()
    lines = [f"dataDir={data}", f"clientPort={ZOOKEEPER_PORT}", "tickTime=500", "admin.enableServer=false"]
    config.write_text("\n".join([*lines, "minSessionTimeout=1000", "maxSessionTimeout=60000"]) + "\n")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    options = ["-Xmx128m", "-XX:+UseSerialGC", QUICK_JAVA]
    host.start("zookeeper", [java(), *options, "-cp", f"{pyspark_jars()}/*", main, str(config)])
