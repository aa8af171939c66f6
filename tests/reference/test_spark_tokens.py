"""Spark's Kafka source and sink log in by delegation tokens that Spark gets for them: on Apache Kafka and on ours.

Tasks have no other log-in: the user's is in the driver's settings, for getting tokens only.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import kafka, secured
from tests.support.kerberos import REALM, running_realm
from tests.support.real_cluster import eventually
from tests.support.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SENT = [f"value-{number:03}" for number in range(200)]


@pytest.fixture(scope="module", params=["O", "K"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip("spark")
    with secured.running(tmp_path_factory.mktemp("secured"), request.param) as running:
        for topic in ("events", "copied-local", "copied-executors"):
            running.create(topic, 2)
            running.allow("alice", "Topic", topic, "Read")
            running.allow("alice", "Topic", topic, "Write")
        running.allow("alice", "Group", "spark-kafka-", "Read", prefixed=True)
        running.allow("alice", "Broker", "kafka-cluster", "Idempotent_Write")
        producer = Producer(running.librdkafka("alice"))
        for value in SENT:
            producer.produce("events", value.encode())
        assert producer.flush(30) == 0
        yield running


def settings(world: Secured, **more: str) -> dict[str, str]:
    """Of spark-defaults.conf: how tokens are got, as alice by SCRAM."""
    cluster = "spark.kafka.clusters.main"
    login = world.java("alice")
    return {
        f"{cluster}.auth.bootstrap.servers": world.bootstrap(),
        f"{cluster}.security.protocol": "SASL_SSL",
        f"{cluster}.ssl.truststore.type": "PEM",
        f"{cluster}.ssl.truststore.location": login["ssl.truststore.location"],
        f"{cluster}.sasl.token.mechanism": "SCRAM-SHA-512",
        f"{cluster}.kafka.sasl.mechanism": login["sasl.mechanism"],
        f"{cluster}.kafka.sasl.jaas.config": login["sasl.jaas.config"],
        "spark.redaction.regex": "(?i)secret|password|token|jaas",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def drive(world: Secured, tmp_path: Path, master: str, target: str, given: dict[str, str]) -> tuple[list[str], str]:
    """The values that the driver has read, and what it said."""
    home = tmp_path / "conf"
    home.mkdir(mode=0o700)
    (home / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in given.items()))
    jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(home),
    }
    program, authority = "tests.support.token_driver", str(world.authority.certificate)
    words = [master, world.bootstrap(), "events", target, authority, jars, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", program, *words],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr


def tokens_of(world: Secured, user: str) -> str:
    where = ("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin")))
    return kafka.tool("delegation-tokens", *where, "--describe", "--owner-principal", f"User:{user}")


def ends(world: Secured, topic: str) -> int:
    admin = world.admin()
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in range(2)})
    return sum(one.result(20).offset for one in asked.values())


def test_spark_gets_the_tokens_itself(world: Secured, tmp_path: Path) -> None:
    """It does so only after it has logged in by Kerberos: a realm of the test's own; brokers know nothing of it."""
    with running_realm(tmp_path / "kdc") as realm:
        given = settings(world) | {
            "spark.kerberos.principal": f"spark@{REALM}",
            "spark.kerberos.keytab": str(realm.keytab("spark")),
            "spark.hadoop.hadoop.security.authentication": "kerberos",
            "spark.driver.extraJavaOptions": " ".join(realm.java_options),
        }
        values, said = drive(world, tmp_path, "local[2]", "copied-local", given)
    assert values == SENT
    assert world.users["alice"].scram not in said
    assert "User:alice" in tokens_of(world, "alice")
    eventually(lambda: ends(world, "copied-local") == len(SENT), "all are copied")


def test_executors_log_in_with_what_the_driver_got(world: Secured, tmp_path: Path) -> None:
    given = settings(world)
    values, said = drive(world, tmp_path, "local-cluster[1,2,1024]", "copied-executors", given)
    assert values == SENT
    assert world.users["alice"].scram not in said
    eventually(lambda: ends(world, "copied-executors") == len(SENT), "all are copied")
