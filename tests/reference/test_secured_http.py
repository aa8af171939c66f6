"""The HTTP side between secured brokers, beside a broker of Apache Kafka: how they prove who they are to each other.

tests/integration/brokers/test_secured_http.py has SCRAM, the rights, and stores that are replaced.
"""

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.login import http
from logyard.login.security import Security
from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from tests.support import kafka, secured
from tests.support.lease_job import compact_replicas, kept_below
from tests.support.real_cluster import RealCluster, eventually
from tests.support.secured import Secured

pytestmark = pytest.mark.timeout(600)

KAFKA, LEADER, DOWN = 0, 1, 2
KINDS = "KOO"
TOPIC = "missed"
CERTIFICATES = {
    "security.inter.broker.protocol": "SSL",
    "http.security.listener": "SSL",
    "super.users": "User:CN=broker,O=Logyard;User:admin;User:CN=admin,O=Logyard",
}
PASSWORDS = {"http.security.listener": "SASL_SSL"}


def side(world: Secured, broker: int, protocol: str) -> BrokerHttp:
    """A broker's HTTP side, asked by the super user."""
    (found,) = [each for each in world.cluster.description["brokers"] if each["id"] == broker]
    issued = world.certificates["admin"] if protocol == "SSL" else None
    login = http.of(
        Security(
            security_protocol=protocol,
            sasl_mechanism="SCRAM-SHA-512",
            username="admin",
            password=world.users["admin"].scram,
            ssl_cafile=str(world.authority.certificate),
            ssl_certfile=str(issued.certificate) if issued else None,
            ssl_keyfile=str(issued.key) if issued else None,
        )
    )
    return BrokerHttp(broker, f"https://{found['host']}:{found['http_port']}", "", login.trust, login)


def events(start: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 97), b"%d-" % number + bytes(50)) for number in range(start, start + count)]


def logged(world: Secured, broker: int) -> str:
    return (world.directory / "logs" / f"broker-{broker}.log").read_text(errors="replace")


def led_by_ours(admin: KafkaClusterClient, cluster: RealCluster) -> None:
    """Kafka's broker has led so far, and publishes no address that could be asked."""
    tp = TopicPartition(TOPIC, 0)
    assert not any(admin.alter_reassignments({tp: [LEADER, DOWN, KAFKA]}).values())
    eventually(lambda: not admin.list_reassignments(), "turned")
    assert not any(admin.elect_leaders([tp]).values())
    eventually(lambda: cluster.describe(TOPIC)[0].leader == LEADER, "ours leads")


@pytest.mark.parametrize(
    ("between", "keys", "principal"),
    [
        pytest.param("PLAIN", PASSWORDS, "User:broker", id="user and password"),
        pytest.param("PLAIN", CERTIFICATES, "User:CN=broker,O=Logyard", id="certificate"),
    ],
)
def test_a_broker_that_was_down_is_given_the_decision(
    tmp_path: Path, between: str, keys: Mapping[str, str], principal: str
) -> None:
    kafka.jars_or_skip()
    protocol, small = keys["http.security.listener"], {"batch.size": 4000}
    own = {**keys, "logyard.audit.allowed": "true", "auto.leader.rebalance.enable": "false"}
    with secured.running(tmp_path / "cluster", KINDS, config=own, between=between) as world:
        cluster = world.reached_by("admin")
        admin = KafkaClusterClient(ClusterSettings.read("", cluster.admin_options))
        configs = {"cleanup.policy": "compact", "segment.bytes": "20000"}
        admin.create_topic(NewTopic(TOPIC, assignment={0: (KAFKA, LEADER, DOWN)}, configs=configs))
        eventually(lambda: cluster.isrs_full(TOPIC), "led and in sync")
        assert len(cluster.produce(TOPIC, events(0, 3000), **small)) == 3000
        eventually(lambda: "publishes no HTTP address" in logged(world, DOWN), "Kafka's broker cannot be asked", 90)
        led_by_ours(admin, cluster)
        cluster.cluster.stop_broker(DOWN, signal.SIGKILL)
        eventually(lambda: DOWN not in cluster.describe(TOPIC)[0].isrs, "it is out of the ISR", 60)
        range_end = compact_replicas([side(world, LEADER, protocol)], TOPIC, 3000, tmp_path / "part")

        cluster.cluster.start_broker(DOWN)
        eventually(lambda: cluster.isrs_full(TOPIC), "all in sync again", 60)
        cluster.produce(TOPIC, events(3000, 1000), **small)
        back = side(world, DOWN, protocol)
        eventually(lambda: client.partition_status(back, TOPIC, 0)["clean_offset"] == range_end, "caught up", 90)
        directories = cluster.replica_dirs(TOPIC, 0)
        expected = kept_below(directories[LEADER], range_end)
        assert len(expected) == 97
        assert kept_below(directories[DOWN], range_end) == expected
        asked = f"Principal = {principal} is Allowed Operation = ClusterAction"
        assert any(asked in line and "GET /decisions" in line for line in logged(world, LEADER).splitlines())
        assert world.broker_password not in logged(world, LEADER) + logged(world, DOWN)
        admin.close()


def test_brokers_without_a_password_are_refused_and_all_else_goes_on(tmp_path: Path) -> None:
    """With OAUTHBEARER between brokers they have nothing to show at HTTP: the replica waits for the next run."""
    kafka.jars_or_skip()
    with secured.running(tmp_path / "cluster", "OO", config=PASSWORDS, between="OAUTHBEARER") as world:
        cluster = world.reached_by("admin")
        cluster.create(TOPIC, 1, 2, cleanup_policy="compact", segment_bytes="20000")
        assert len(cluster.produce(TOPIC, events(0, 3000), **{"batch.size": 4000})) == 3000
        leader = int(cluster.describe(TOPIC)[0].leader)
        refused = (
            f"GET https://{side(world, leader, 'SASL_SSL').address.removeprefix('https://')}/decisions: status 401"
        )
        eventually(lambda: refused in logged(world, 1 - leader), "it is refused", 90)
        # Who shows nothing is no guesser: nobody at that address is slowed.
        assert "log-in refused" not in logged(world, leader)
        compact_replicas([side(world, broker, "SASL_SSL") for broker in (0, 1)], TOPIC, 3000, tmp_path / "part")
