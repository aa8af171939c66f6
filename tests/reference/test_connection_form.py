"""*Test* of a connection names the step that fails: address, TLS, login, right; on Apache Kafka and on ours.

The connections are stored as Airflow stores them, and read by the hook.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.local.ports import HOST, Ports
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.topics import CreateTopicOperator
from tests.support import airflow_home, kafka, secured
from tests.support.airflow_tasks import context
from tests.support.authority import Authority
from tests.support.secured import Secured

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=["O", "K"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    airflow_home.prepare()
    with secured.running(tmp_path_factory.mktemp("secured"), request.param) as running:
        running.create("flights")
        yield running


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stores a connection and returns what *Test* says."""

    def test(connection: dict[str, Any]) -> tuple[bool, str]:
        monkeypatch.setenv("AIRFLOW_CONN_FORM", json.dumps({"conn_type": "logyard", **connection}))
        return ClusterHook("form").test_connection()

    return test


def form(world: Secured, user: str = "admin", **changed: Any) -> dict[str, Any]:
    """A connection by the form's own fields, SASL_SSL with SCRAM."""
    fields = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "ssl_cafile": str(world.authority.certificate),
        "request_timeout_s": 5,
    }
    extra = {**fields, **{name: value for name, value in changed.items() if name in fields}}
    rest = {name: value for name, value in changed.items() if name not in fields}
    return {"host": world.bootstrap(), "login": user, "password": world.users[user].scram, "extra": extra, **rest}


def test_what_is_right_is_said_to_be(world: Secured, connected: Any) -> None:
    good, said = connected(form(world))
    assert good, said
    assert "1 brokers, controller 0" in said


def test_a_wrong_address(world: Secured, connected: Any, tmp_path: Any) -> None:
    assert connected(form(world, host="no-such-broker.invalid:9092"))[1].startswith(
        "Address: no-such-broker.invalid:9092: the name does not resolve"
    )
    closed = f"{HOST}:{Ports(tmp_path).choose('closed')}"
    assert connected(form(world, host=closed))[1].startswith(f"Address: {closed}: nothing listens there")


def test_a_wrong_authority(world: Secured, connected: Any, tmp_path: Any) -> None:
    other = Authority(tmp_path / "other")
    good, said = connected(form(world, ssl_cafile=str(other.certificate)))
    assert (good, said.partition(": ")[0]) == (False, "TLS")
    assert "its certificate is not trusted" in said
    good, said = connected(form(world, host=world.bootstrap("PLAINTEXT")))
    assert (good, said.partition(": ")[0]) == (False, "TLS"), "a listener in plain text"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password(world: Secured, connected: Any, mechanism: str) -> None:
    good, said = connected(form(world, sasl_mechanism=mechanism, password="wrong-password"))
    assert (good, said.partition(": ")[0]) == (False, "Login")
    assert f"user 'admin' or its password is refused by {mechanism}" in said
    assert "wrong-password" not in said


def test_a_missing_right(world: Secured, connected: Any) -> None:
    good, said = connected(form(world, "nobody"))
    assert (good, said.partition(": ")[0]) == (False, "Rights")
    assert "lacks Describe on the cluster" in said
    world.allow("nobody", "Broker", "kafka-cluster", "Describe")
    good, said = connected(form(world, "nobody"))
    assert good, said


def test_the_official_providers_connection_is_used_unchanged(world: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its *Config Dict*: type kafka, no host, librdkafka's names, settings of consumers, texts and numbers mixed."""
    config = {
        **world.librdkafka("admin"),
        "group.id": "reports",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "socket.timeout.ms": 10000,
        "error_cb": "my_company.callbacks.error_cb",
    }
    for mechanism in ("sasl.mechanisms", "sasl.mechanism"):  # librdkafka knows both names
        config[mechanism] = config.pop("sasl.mechanisms", None) or config.pop("sasl.mechanism")
        stored = {"conn_type": "kafka", "extra": json.dumps(config)}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(stored))
        good, said = ClusterHook("kafka_default").test_connection()
        assert good, said
    create = CreateTopicOperator(
        task_id="c", topic="theirs", partitions=1, if_exists="skip", logyard_conn_id="kafka_default", dry_run=True
    )
    assert create.execute(context())["topic"] == "theirs"
