"""Each way in which operators, sensors and triggers reach a cluster, with each protocol, on a real cluster.

tests/architecture/test_ways_to_brokers.py says that there are no other ways.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.notifier import TopicNotifier
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.sensors.cluster import TopicReadySensor
from logyard.operators.topics import CreateTopicOperator
from logyard.operators.triggers.arrivals import RecordsArrivedEvent
from logyard.operators.triggers.cluster import TopicReadyTrigger
from logyard.operators.triggers.records import AwaitRecordTrigger
from logyard.spark_jobs import cluster as jobs
from tests.support import airflow_home, kafka, secured, ways_to_brokers
from tests.support.airflow_tasks import context, first_event
from tests.support.secured import PROTOCOLS, Secured

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(300)]

CONNECTION = "by_protocol"
RECORDS = [{"key": f"k{number}", "value": f"v{number}"} for number in range(5)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    airflow_home.prepare()
    # No worker process ends here, so no trigger has to wait for its heartbeat.
    os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")
    who = "User:broker;User:admin;User:CN=admin,O=Logyard;User:ANONYMOUS"
    keys = {"super.users": who, "http.security.listener": "SASL_SSL"}
    with secured.running(tmp_path_factory.mktemp("protocols"), "O", keys) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def topic(request: pytest.FixtureRequest, world: Secured, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of its own for each protocol; the connection CONNECTION leads to the cluster by that protocol."""
    protocol: str = request.param
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(stored(world, protocol)))
    return f"by-{protocol.lower().replace('_', '-')}"


def stored(world: Secured, protocol: str) -> dict[str, Any]:
    """A connection by the form's fields. Without a password of Kafka's protocol the HTTP side has one of its own."""
    issued, ca = world.certificates["admin"], str(world.authority.certificate)
    extra: dict[str, Any] = {"security_protocol": protocol, "zookeeper": world.cluster.description["zookeeper"]}
    if "SSL" in protocol:
        extra |= {"ssl_cafile": ca}
    if protocol == "SSL":
        extra |= {"ssl_certfile": str(issued.certificate), "ssl_keyfile": str(issued.key)}
    if protocol.startswith("SASL"):
        extra |= {"sasl_mechanism": "SCRAM-SHA-512"}
        found = {"login": "admin", "password": world.users["admin"].scram}
    else:
        extra |= {"http_username": "admin", "http_password": world.users["admin"].scram}
        found = {}
    return {"conn_type": "logyard", "host": world.bootstrap(protocol), "extra": {"http_cafile": ca, **extra}, **found}


def on_cluster(kind: Callable[..., Any], **fields: Any) -> Any:
    """An operator or a sensor of the connection."""
    return kind(task_id="go", logyard_conn_id=CONNECTION, **fields)


def by_admin_client(topic: str, _: Path) -> None:
    assert on_cluster(CreateTopicOperator, topic=topic, partitions=1, if_exists="skip").execute(context())
    on_cluster(TopicReadySensor, topic=topic, deferrable=False, timeout=30).execute(context())
    good, said = ClusterHook(CONNECTION).test_connection()
    assert good, said


def by_records(topic: str, _: Path) -> None:
    written = on_cluster(ProduceToTopicOperator, topic=topic, records=RECORDS).execute(context())
    assert written["records"] == len(RECORDS)
    TopicNotifier(topic=topic, value="told", logyard_conn_id=CONNECTION).notify(context())
    read = on_cluster(ConsumeFromTopicOperator, topics=[topic], group=f"{topic}-readers").execute(context())
    assert read["records"] == len(RECORDS) + 1


def by_triggerer(topic: str, _: Path) -> None:
    waiting: dict[str, Any] = {
        "logyard_conn_id": CONNECTION,
        "poll_interval_s": 0.2,
        "deadline_ms": round((time.time() + 15) * 1000),
    }
    for trigger in (
        TopicReadyTrigger(topic=topic, partitions=1, **waiting),
        AwaitRecordTrigger(offsets={f"{topic}-0": 0}, **waiting),
    ):
        assert first_event(trigger)["status"] == "done"
    arrived = RecordsArrivedEvent(
        topics=[topic], group="nobody", wait_max_s=0.0, logyard_conn_id=CONNECTION, poll_interval_s=0.2
    )
    assert first_event(arrived)["records"] == len(RECORDS) + 1


def by_zookeeper(_: str, __: Path) -> None:
    with ClusterHook(CONNECTION).ensemble() as ensemble:
        assert list(ensemble.controller().brokers) == [0]


def by_job(topic: str, directory: Path) -> None:
    """What a job's driver does with the file of settings that its operator writes: a log-in, and a lease by HTTP."""
    parser = argparse.ArgumentParser()
    jobs.add_arguments(parser)
    settings = ClusterHook(CONNECTION).settings
    file = directory / "security.json"
    file.write_text(json.dumps(settings.security()))
    addresses = ",".join(settings.bootstrap)
    found = jobs.connect(parser.parse_args(["--bootstrap-server", addresses, "--security", str(file)]))
    assert found.unreachable == {}
    ((tp, _),) = found.partitions([topic])
    lease = found.lease_leader(tp, jobs.run_id("audit"), "audit")
    assert lease.high_watermark == len(RECORDS) + 1
    lease.abort("seen")


WAYS: dict[str, Callable[[str, Path], None]] = {
    "admin client": by_admin_client,
    "records": by_records,
    "triggerer": by_triggerer,
    "ZooKeeper": by_zookeeper,
    "job": by_job,
}


def test_each_way_of_each_operator_with_each_protocol(topic: str, tmp_path: Path) -> None:
    assert set(WAYS) == set().union(*ways_to_brokers.ways().values())
    for way in WAYS.values():
        way(topic, tmp_path)
