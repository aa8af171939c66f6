"""The platform of docker-compose.yaml, on hosts that share no files: what `make demo` does, from a machine outside.

Every kind of container is killed once on the way. Nothing acknowledged may be lost, and every service has to go on.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from logyard.local.airflow.api import AirflowApi, Run
from logyard.local.errors import LocalError
from tests.compose import images
from tests.compose.composed import BOOTSTRAP, PROJECT, UI, Composed, eventually
from tests.compose.images import Podman

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3600)]

TOPIC, PARTITIONS, RECORDS, KEYS = "flights", 6, 60_000, 500
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "262144", "min.insync.replicas": "2"} | {
    "min.cleanable.dirty.ratio": "1"  # the broker's own cleaner leaves the topic to the Spark job
}
EXPORTS = "/var/lib/logyard-exports/flights"
RUN_S = 600.0
BROKERS = ("broker1", "broker2", "broker3")
# One container of each kind that does not run a broker.
KINDS = (
    "zookeeper1",
    "postgres",
    "airflow-api-server",
    "airflow-scheduler1",
    "airflow-dag-processor",
    "airflow-triggerer",
    "spark-master",
    "spark-worker1",
)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    try:
        podman = Podman.of_tests()
        images.make_all(podman)
    except LocalError as error:
        if os.environ.get("LOGYARD_REQUIRE"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with Composed(podman) as running:
        yield running


@pytest.fixture(scope="module")
def outside(composed: Composed, tmp_path_factory: pytest.TempPathFactory) -> "Outside":
    return Outside(composed, tmp_path_factory.mktemp("outside"))


class Outside:
    """A user on the machine outside: clients of the brokers' HOST listeners, and Airflow's UI by its API."""

    def __init__(self, composed: Composed, directory: Path) -> None:
        self.composed = composed
        authority = directory / "ca.pem"
        eventually(lambda: "broker3" in composed.states(), "the brokers' containers", 600)
        authority.write_text(eventually(lambda: composed.exec("broker1", "cat", "/run/logyard/ca.pem"), "broker 1"))
        properties = composed.exec("broker1", "cat", "/var/lib/logyard/security/admin.properties")
        self._client = {
            "bootstrap.servers": BOOTSTRAP,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": properties.partition('password="')[2].partition('"')[0],
            "ssl.ca.location": str(authority),
            "log_level": 0,
        }
        self.sent: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self.admin = AdminClient(self._client)

    def api(self) -> AirflowApi:
        return AirflowApi(UI, "admin", self.composed.password(), timeout_s=120.0)

    def run(self, dag: str, **conf: Any) -> dict[str, Any]:
        """Run a DAG to its end; returns what its tasks returned, by task."""
        with self.api() as api:
            run = api.run_dag(f"logyard_{dag}", conf, RUN_S)
            return {task.task_id: _xcom(api, run, task.task_id, task.map_index) for task in api.tasks(run)}

    def produce(self, count: int, stop: threading.Event | None = None) -> int:
        """Send records with acks=all, and note where each was acknowledged. Returns how many were."""
        producer = Producer(self._client | {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": 120_000})
        before = len(self.sent)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.sent[message.partition(), message.offset()] = (message.key(), message.value())

        for number in range(count):
            if stop is not None and (stop.is_set() or stop.wait(0.005)):
                break
            key = f"plane-{number % KEYS}".encode()
            producer.produce(TOPIC, json.dumps({"flight": number, "at": "x" * 60}).encode(), key, on_delivery=delivered)
            producer.poll(0)
            if number % 5_000 == 0:
                producer.flush(120)
        assert producer.flush(150) == 0
        return len(self.sent) - before

    def read(self) -> dict[tuple[int, int], tuple[bytes, bytes]]:
        """Read the whole topic with a stock consumer."""
        consumer = Consumer(self._client | {"group.id": "check", "enable.auto.commit": False, "check.crcs": True})
        found: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        try:
            ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 30) for p in range(PARTITIONS)}
            for partition, (low, high) in ends.items():
                consumer.assign([TopicPartition(TOPIC, partition, low)])
                position, silent = low, 0
                while position < high:
                    messages = consumer.consume(10_000, 1.0)  # it waits for that many, or for that long
                    silent = 0 if messages else silent + 1
                    assert silent < 30, f"{TOPIC}-{partition} has nothing more at {position} of {high}"
                    for message in messages:
                        assert message.error() is None, message.error()
                        found[partition, message.offset()] = (message.key(), message.value())
                        position = message.offset() + 1
        finally:
            consumer.close()
        return found

    def leaders(self) -> dict[int, int]:
        topic = self.admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
        return {number: partition.leader for number, partition in topic.partitions.items()}

    def in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=30).topics.values()
        return all(set(p.isrs) == set(p.replicas) and p.leader > 0 for t in topics for p in t.partitions.values())


def _xcom(api: AirflowApi, run: Run, task: str, map_index: int) -> Any:
    try:
        return api.xcom(run, task, map_index=map_index)
    except LocalError:  # sensors and skipped tasks return nothing
        return None


def of(returned: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The result of the task that has this key."""
    return next(value for value in returned.values() if isinstance(value, dict) and key in value)


def wait_healthy(outside: Outside) -> None:
    with outside.api() as api:
        api.wait_healthy(300)


def test_the_platform_comes_up_by_itself(composed: Composed, outside: Outside) -> None:
    eventually(lambda: len(outside.admin.list_topics(timeout=5).brokers) == 3, "three brokers", 180)
    eventually(lambda: composed.password(), "Airflow's password", 300)
    eventually(lambda: wait_healthy(outside) is None, "Airflow", 300)
    with outside.api() as api:
        api.wait_dag("logyard_create_topic", 180)
        assert (api.import_errors(), api.plugin_import_errors()) == ([], [])
    states = composed.states()
    once = {"prepare", "airflow-migrate"}
    assert {name: state for name, state in states.items() if state != "running"} == dict.fromkeys(once, "exited")


def test_a_topic_is_made_filled_audited_and_compacted(outside: Outside) -> None:
    outside.run("create_topic", topic=TOPIC, partitions=PARTITIONS, replication_factor=3, configs=CONFIGS)
    assert outside.produce(RECORDS) == RECORDS
    audited = of(outside.run("audit_replicas", topics=[TOPIC]), "verdict")
    assert (audited["verdict"], audited["records"]) == ("ok", RECORDS * 3)
    compacted = outside.run("compact_segments", topics=[TOPIC], options={"force": True})
    assert of(compacted, "replicas_compacted")["replicas_compacted"] == PARTITIONS * 3
    check_content(outside, was_compacted=True)
    assert len(outside.sent) < RECORDS / 2


def check_content(outside: Outside, *, was_compacted: bool = False) -> None:
    """What was acknowledged is read where it was; after a compaction at least the last record of every key."""
    found = outside.read()
    assert [place for place, record in outside.sent.items() if found.get(place, record) != record] == []
    wanted = set(outside.sent)
    if was_compacted:
        last: dict[tuple[int, bytes], int] = {}
        for (partition, offset), (key, _) in outside.sent.items():
            last[partition, key] = max(offset, last.get((partition, key), -1))
        wanted = {(partition, offset) for (partition, _), offset in last.items()}
    assert sorted(wanted - set(found)) == []
    outside.sent = {place: record for place, record in outside.sent.items() if place in found}


def test_an_export_reaches_all_hosts_once(composed: Composed, outside: Outside) -> None:
    once = of(outside.run("export_segments", topics=[TOPIC], destination=EXPORTS), "rows")
    assert once["rows"] == len(outside.read())
    again = of(outside.run("export_segments", topics=[TOPIC], destination=EXPORTS), "rows")
    assert again["rows"] == 0
    count = f"import pyarrow.dataset as d; print(d.dataset('{EXPORTS}/data', format='parquet').count_rows())"
    assert int(composed.exec("spark-worker2", "python", "-c", count)) == once["rows"]


def test_replicas_move_while_records_come(outside: Outside) -> None:
    with traffic(outside) as sent:
        outside.run("reassign_replicas", topics=[TOPIC], approve=False, drain=[3], replication_factor=2)
        described = outside.admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        assert all(3 not in partition.replicas for partition in described)
        outside.run("reassign_replicas", topics=[TOPIC], approve=False, replication_factor=3)
    assert sent()
    eventually(outside.in_sync, "replicas in sync", 120)
    check_content(outside)


class traffic:
    """A producer at work; returns a function that says, after the end, how many records were acknowledged."""

    def __init__(self, outside: Outside) -> None:
        self._stop, self._count = threading.Event(), 0
        self._thread = threading.Thread(target=self._send, args=(outside,))

    def _send(self, outside: Outside) -> None:
        self._count = outside.produce(1_000_000, self._stop)

    def __enter__(self) -> Callable[[], int]:
        self._thread.start()
        return lambda: self._count

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_killed_controller_is_replaced(composed: Composed, outside: Outside) -> None:
    controller = outside.admin.list_topics(timeout=30).controller_id
    with traffic(outside) as sent:
        composed.kill(f"broker{controller}")
        eventually(
            lambda: outside.admin.list_topics(timeout=10).controller_id not in (controller, -1), "a controller", 90
        )
        eventually(lambda: controller not in outside.leaders().values(), "other leaders", 60)
        composed.start(f"broker{controller}")
        eventually(outside.in_sync, "replicas in sync", 180)
    assert sent()
    check_content(outside)


@pytest.mark.parametrize("service", KINDS)
def test_a_killed_container_comes_back(service: str, composed: Composed, outside: Outside) -> None:
    with traffic(outside) as sent:
        composed.kill(service)
        composed.start(service)
        eventually(lambda: wait_healthy(outside) is None, f"Airflow after {service}", 300)
        audited = of(outside.run("audit_replicas", topics=[TOPIC]), "verdict")
        assert audited["verdict"] == "ok"
    assert sent()
    check_content(outside)


def test_a_second_up_changes_nothing(composed: Composed, outside: Outside) -> None:
    before = composed.password()
    composed.compose("up", "--detach", timeout_s=600)
    eventually(lambda: len(outside.admin.list_topics(timeout=5).brokers) == 3, "three brokers", 180)
    assert composed.password() == before
    check_content(outside)


def test_no_secret_is_in_logs_or_commands(composed: Composed) -> None:
    volume = f"{PROJECT}_authority:/a:ro"
    words = ("run", "--rm", "--user", "root", "--volume", volume, "--entrypoint", "cat", images.OURS)
    passwords = json.loads(composed.podman.run(*words, "/a/passwords.json").stdout)
    for service in composed.states():
        said = composed.logs(service, 100_000)
        assert not [name for name, password in passwords.items() if password in said], service
