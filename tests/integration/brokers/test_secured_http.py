"""The HTTP side between secured brokers: they ask each other for decisions, and their stores are replaced meanwhile.

Three brokers of `cluster start --secure`, each a process of its own: TLS, SCRAM, ACLs, and every allowed request in the
audit log.
"""

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.broker.model import TopicPartition
from logyard.cli import command_config
from logyard.local.authority import Pair, authority, subject
from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from logyard.login import http
from logyard.login.security import Security
from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from tests.integration.conftest import CONFIG
from tests.support.lease_job import compact_replicas, kept_below
from tests.support.real_cluster import RealCluster, eventually

pytestmark = pytest.mark.timeout(300)

BROKERS = range(3)
HOSTS = ("127.0.0.1", "localhost")
SETTINGS = {**CONFIG, "logyard.audit.allowed": "true", "auto.leader.rebalance.enable": "false"}
STORE = "listener.name.sasl_ssl.ssl.keystore.location"
ALICES_PASSWORD = "alice-has-this-one"


class World:
    """A secured cluster, and how its users ask its brokers over HTTP."""

    def __init__(self, directory: Path, cluster: LocalCluster) -> None:
        self.directory, self.security = directory, directory / "security"
        self.client_file = directory / "client.properties"
        login = command_config.settings("", command_config.read(self.client_file))
        self.admin = login
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": str(login.sasl_mechanism),
            "sasl.username": str(login.username),
            "sasl.password": str(login.password),
            "ssl.ca.location": str(self.security / "ca.pem"),
        }
        self.cluster = RealCluster(cluster, options)

    def command(self, *words: str) -> None:
        where = (
            "--bootstrap-server",
            self.cluster.bootstrap,
            "--command-config",
            str(self.directory / "client.properties"),
        )
        command = [sys.executable, "-m", "logyard.cli.main", *words[:2], *where, *words[2:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def address(self, broker: int) -> tuple[str, int]:
        (found,) = [each for each in self.cluster.description["brokers"] if each["id"] == broker]
        return str(found["host"]), int(found["http_port"])

    def http(self, broker: int, user: str | None = "admin", password: str | None = None) -> BrokerHttp:
        """The HTTP side of a broker, asked by that user; None: by nobody."""
        host, port = self.address(broker)
        known = Security(
            security_protocol="SSL" if user is None else "SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            username=user,
            password=password or self.admin.password,
            ssl_cafile=str(self.security / "ca.pem"),
        )
        login = http.of(known)
        return BrokerHttp(broker, f"https://{host}:{port}", "", login.trust, login)

    def log(self, broker: int) -> str:
        return (self.directory / "logs" / f"broker-{broker}.log").read_text(errors="replace")

    def asked(self, leader: int) -> int:
        """How often that leader has let another broker ask for its decisions."""
        words = ("Principal = User:broker is Allowed Operation = ClusterAction", "GET /decisions")
        return sum(all(word in line for word in words) for line in self.log(leader).splitlines())

    def connect(self, broker: int, context: ssl.SSLContext | None = None) -> HTTPSConnection:
        trusted = context or ssl.create_default_context(cafile=str(self.security / "ca.pem"))
        connection = HTTPSConnection(*self.address(broker), timeout=10, context=trusted)
        connection.connect()
        return connection

    def serial(self, broker: int) -> int:
        """Of the certificate that the broker's HTTP side shows to a new connection."""
        connection = self.connect(broker)
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown = connection.sock.getpeercert(True)
        connection.close()
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def reread(self, broker: int) -> None:
        """Have the broker read its stores again. Raises KafkaException if it refuses what they hold."""
        location = str(self.security / f"broker-{broker}.pem")
        entry = ConfigEntry(STORE, location, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin = self.cluster.admin()
        admin.incremental_alter_configs([resource])[resource].result(30)

    def give(self, broker: int, signer: Pair, name: str | None = None) -> int:
        """Write another certificate into the broker's key store; returns its serial."""
        made = signer.issue(subject(name or f"broker-{broker}"), HOSTS)
        (self.security / f"broker-{broker}.pem").write_text(made.key_pem + made.pem + signer.pem)
        return made.certificate.serial_number


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("secured") / "yard"
    cluster = LocalCluster(directory)
    try:
        cluster.start(Settings(len(BROKERS), None, None, SETTINGS, secure=True))
        yield World(directory, cluster)
    finally:
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


def events(start: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 97), b"%d-" % number + bytes(50)) for number in range(start, start + count)]


@pytest.mark.long
def test_a_broker_that_was_down_is_given_the_decision_over_tls(world: World, tmp_path: Path) -> None:
    cluster, topic, small = world.cluster, "missed", {"batch.size": 4000}
    cluster.create(topic, 1, 3, cleanup_policy="compact", segment_bytes="20000", min_insync_replicas="2")
    assert len(cluster.produce(topic, events(0, 3000), **small)) == 3000
    leader = cluster.describe(topic)[0].leader
    down = next(broker for broker in BROKERS if broker != leader)
    cluster.cluster.stop_broker(down, signal.SIGKILL)
    eventually(lambda: len(cluster.describe(topic)[0].isrs) == 2, "it is out of the ISR")
    up = [world.http(broker) for broker in BROKERS if broker != down]
    range_end = compact_replicas(up, topic, 3000, tmp_path / "part")

    cluster.cluster.start_broker(down)
    eventually(lambda: cluster.isrs_full(topic), "all in sync again", 60)
    cluster.produce(topic, events(3000, 1000), **small)  # what it holds of the range is now in closed segments
    back = world.http(down)
    eventually(lambda: client.partition_status(back, topic, 0)["clean_offset"] == range_end, "it has caught up", 60)
    directories = cluster.replica_dirs(topic, 0)
    expected = kept_below(directories[leader], range_end)
    assert len(expected) == 97
    assert kept_below(directories[down], range_end) == expected
    assert world.asked(leader) >= 2  # for the list, and for the decision
    assert "decision applied" in world.log(down)


def refusal(broker: BrokerHttp, path: str = "/decisions") -> str:
    with pytest.raises(LeaseError) as refused:
        broker.call("GET", path)
    return refused.value.code


def test_who_asks_for_decisions_needs_the_rights_of_a_broker(world: World) -> None:
    world.cluster.create("theirs", 1, 1, cleanup_policy="compact")
    password = world.directory / "alice.password"
    password.write_text(ALICES_PASSWORD)
    world.command("users", "add", "--user", "alice", "--password-file", str(password))
    world.command("acls", "add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "*")
    leader = world.cluster.describe("theirs")[0].leader
    alice = world.http(leader, "alice", ALICES_PASSWORD)
    eventually(lambda: client.partitions_status(alice)["partitions"], "she is known, and may see topics")
    for path in ("/decisions", "/decisions/theirs/0"):
        assert refusal(alice, path) == "forbidden"
        assert refusal(alice.for_run("run", "theirs", "compact"), path) == "forbidden"
        assert refusal(world.http(leader, None), path) == "unauthorized"
        assert refusal(world.http(leader, "alice", "a-guess"), path) == "unauthorized"
    world.command("acls", "add", "--allow-principal", "User:alice", "--operation", "ClusterAction", "--cluster")

    def decisions() -> Any:
        return alice.call("GET", "/decisions")["decisions"]

    eventually(lambda: isinstance(decisions(), list), "she may do what brokers do")
    assert refusal(alice, "/decisions/theirs/0") == "unknown_decision"
    assert ALICES_PASSWORD not in "".join(world.log(broker) for broker in BROKERS)


def own_authority(world: World) -> Pair:
    """The authority of the cluster's directory."""
    key = serialization.load_pem_private_key((world.security / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(key, x509.load_pem_x509_certificate((world.security / "ca.pem").read_bytes()))


def test_a_new_certificate_is_shown_to_new_connections_and_open_ones_go_on(world: World) -> None:
    own = own_authority(world)
    old = [world.serial(broker) for broker in BROKERS]
    held = world.connect(0)
    held.request("GET", "/health")
    assert held.getresponse().read()
    new = world.give(0, own)
    assert world.serial(0) == old[0], "nothing is read before the broker is told to"
    world.reread(0)
    eventually(lambda: world.serial(0) == new, "the new certificate is shown")
    held.request("GET", "/health")
    answer = held.getresponse()
    assert (answer.status, b'"ready"' in answer.read()) == (200, True)
    held.close()
    assert [world.serial(broker) for broker in BROKERS[1:]] == old[1:]


def test_a_certificate_of_somebody_else_is_refused_and_the_old_one_stays(world: World) -> None:
    own = own_authority(world)
    store = world.security / "broker-0.pem"
    before, shown = store.read_bytes(), world.serial(0)
    for signer, name in ((own, "another name"), (authority("strangers"), None)):
        world.give(0, signer, name)
        with pytest.raises(KafkaException, match=r"distinguished name|could not connect to each other"):
            world.reread(0)
        assert world.serial(0) == shown
    store.write_bytes(before)
    world.reread(0)
    assert world.serial(0) == shown


def led_by_the_next(world: World, topic: str) -> int:
    """Let another replica lead the topic, so that the others follow anew and ask it soon; returns who leads."""
    replicas: list[int] = list(world.cluster.describe(topic)[0].replicas)
    turned = [*replicas[1:], replicas[0]]
    tp = TopicPartition(topic, 0)
    admin = KafkaClusterClient(command_config.settings(world.cluster.bootstrap, command_config.read(world.client_file)))
    try:
        assert not any(admin.alter_reassignments({tp: turned}).values())
        eventually(lambda: not admin.list_reassignments(), "turned")
        assert not any(admin.elect_leaders([tp]).values())
    finally:
        admin.close()
    eventually(lambda: world.cluster.describe(topic)[0].leader == turned[0], "led by the next")
    return turned[0]


def all_ask(world: World, topic: str) -> None:
    """Each other broker asks the new leader for its decisions."""
    before = {broker: world.asked(broker) for broker in BROKERS}
    leader = led_by_the_next(world, topic)
    eventually(lambda: world.asked(leader) >= before[leader] + 2, f"both others ask broker {leader}", 60)


def test_brokers_go_on_asking_each_other_while_the_authority_is_replaced(world: World) -> None:
    """Both authorities are trusted, then certificates are the new one's, then the old one is trusted no more."""
    world.cluster.create("asked", 1, 3, cleanup_policy="compact")
    logged = [len(world.log(broker)) for broker in BROKERS]
    trusted, new = world.security / "ca.pem", authority("another authority")
    old = trusted.read_text()
    all_ask(world, "asked")
    trusted.write_text(old + new.pem)
    for broker in BROKERS:
        world.reread(broker)
    all_ask(world, "asked")
    for broker in BROKERS:
        serial = world.give(broker, new)
        world.reread(broker)
        eventually(lambda b=broker, s=serial: world.serial(b) == s, "the new certificate is shown")
        all_ask(world, "asked")
    trusted.write_text(new.pem)
    for broker in BROKERS:
        world.reread(broker)
    for _ in BROKERS:
        all_ask(world, "asked")
    only_old = ssl.create_default_context(cadata=old)
    with pytest.raises(ssl.SSLCertVerificationError):
        world.connect(0, only_old)
    assert all("cannot be asked for decisions" not in world.log(broker)[logged[broker] :] for broker in BROKERS)
