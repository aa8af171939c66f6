"""The secured cluster of tests/support/secured.py: its users log in by every mechanism, and ACLs decide."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import kafka, secured
from tests.support.secured import MECHANISMS, Secured

pytestmark = pytest.mark.timeout(300)

LOGINS = [("SSL", ""), *((p, m) for p in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS)]


@pytest.fixture(scope="module", params=["K", "O"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    with secured.running(tmp_path_factory.mktemp("secured"), request.param) as running:
        running.create("flights")
        running.allow("alice", "Topic", "flights", "Write")
        yield running


@pytest.mark.parametrize(("protocol", "mechanism"), LOGINS)
def test_every_protocol_and_mechanism_logs_in(world: Secured, protocol: str, mechanism: str) -> None:
    admin = AdminClient(world.librdkafka("alice", mechanism, protocol))
    topics = admin.list_topics(timeout=15).topics
    # The user of a certificate is its whole subject, to whom nothing is allowed.
    assert list(topics) == ([] if protocol == "SSL" else ["flights"])


def test_acls_decide(world: Secured) -> None:
    outcome: list[object] = []
    for user in ("alice", "bob"):
        producer = Producer(world.librdkafka(user))
        producer.produce("flights", b"v", on_delivery=lambda error, _: outcome.append(error and error.name()))
        producer.flush(20)
    assert outcome == [None, "TOPIC_AUTHORIZATION_FAILED"]
    anonymous = AdminClient({"bootstrap.servers": world.bootstrap("PLAINTEXT")})
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        anonymous.create_topics([NewTopic("mine", 1, 1)])["mine"].result(20)


def test_kafkas_tools_log_in(world: Secured) -> None:
    where = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin")))
    assert "User:alice" in kafka.tool("acls", *where, "--list", "--topic", "flights")
