"""SASL with what others have written: Java's clients and Kafka's tools on a broker of ours."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support import kafka, secured
from tests.support.secured import MECHANISMS, Secured

pytestmark = pytest.mark.timeout(300)

EVENTS = [b"%d" % number for number in range(200)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    with secured.running(tmp_path_factory.mktemp("sasl"), "O") as running:
        running.create("flights", partitions=1)
        yield running


def java(world: Secured, mechanism: str, topic: str) -> list[bytes]:
    where = ("--bootstrap-server", world.bootstrap(), "--topic", topic)
    properties = str(world.file("admin", mechanism))
    sent = "\n".join(event.decode() for event in EVENTS) + "\n"
    kafka.tool("console-producer", *where, "--producer.config", properties, given=sent)
    read = kafka.tool(
        "console-consumer", *where, "--consumer.config", properties, "--from-beginning", "--max-messages",
        str(len(EVENTS)), "--timeout-ms", "30000",
    )  # fmt: skip
    return [line.encode() for line in read.splitlines() if line.isdigit()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_clients_log_in(world: Secured, mechanism: str) -> None:
    assert java(world, mechanism, "flights")[:3] == EVENTS[:3]


def test_kafkas_tool_makes_a_token_that_logs_in(world: Secured) -> None:
    where = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin")))
    made = kafka.tool("delegation-tokens", *where, "--create", "--max-life-time-period", "-1",
                      "--renewer-principal", "User:bob")  # fmt: skip
    row = next(line.split() for line in made.splitlines() if "User:admin" in line)
    token_id, hmac = row[0], row[1]
    assert token_id in kafka.tool("delegation-tokens", *where, "--describe", "--owner-principal", "User:admin")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="{token_id}" password="{hmac}" tokenauth="true";'
    properties = {**world.java("admin"), "sasl.jaas.config": login}
    path = world.directory / "token.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    listed = kafka.tool("topics", "--bootstrap-server", world.bootstrap(), "--command-config", str(path), "--list")
    assert "flights" in listed
    bobs = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("bob")))
    kafka.tool("delegation-tokens", *bobs, "--renew", "--renew-time-period", "100000", "--hmac", hmac)
    kafka.tool("delegation-tokens", *bobs, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in kafka.tool("delegation-tokens", *where, "--describe", "--owner-principal", "User:admin")


def test_no_secret_is_left_behind(world: Secured) -> None:
    wrong = {**world.librdkafka("admin"), "sasl.password": world.users["bob"].scram}
    Producer(wrong).poll(2)
    left = [path for path in world.directory.rglob("*.log") if not re.fullmatch(r"\d{20}\.log", path.name)]
    assert left
    found = [
        f"{path.name} has a secret"
        for path in left
        for secret in world.used_secrets
        if secret.encode() in path.read_bytes()
    ]
    assert found == []
    described = kafka.tool(
        "configs", "--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin")),
        "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0",
    )  # fmt: skip
    assert "sasl.jaas.config" in described
    assert [secret for secret in world.used_secrets if secret in described] == []
    with world.cluster.zookeeper() as zk:
        for path in ("/brokers/ids/0", "/config/brokers/0", "/config/changes", "/controller"):
            if zk.exists(path):
                data = (zk.get(path)[0] or b"").decode()
                assert [secret for secret in world.used_secrets if secret in data] == []
