"""Airflow, brokers and Spark on six hosts that share no files, secured: our operators as a worker of Airflow runs them.

Client mode: the driver is on Airflow's host. Cluster mode: it is on one of Spark's workers. What they say they have
done is checked by stock clients from outside, and by the files.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.brokers_on_hosts import BrokersOnHosts
from tests.support.hosts import Hosts
from tests.support.real_cluster import eventually
from tests.support.spark_on_hosts import SparkOnHosts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BROKERS, WORKERS = ("broker1", "broker2"), ("worker1", "worker2")
PARTITIONS, KEYS = 2, 31
EVENTS = [(b"key%d" % (number % KEYS), b"value %d" % number * 5) for number in range(4_000)]
MODES = ("client", "cluster")


@dataclass(frozen=True, slots=True)
class World:
    hosts: Hosts
    brokers: BrokersOnHosts
    spark: SparkOnHosts
    exports: Path

    def run(self, job: str, topic: str, mode: str, **arguments: Any) -> dict[str, Any]:
        """Run an operator on Airflow's host; returns the job's summary, wherever its driver has left it."""
        given = {"topics": [topic], **arguments}
        found = self.spark.run_operator(self.hosts["airflow"], job, given, self.brokers.connection(), mode)
        if mode == "client":
            return found
        assert found == {"job": job, "summary": "in the driver's log"}
        return dict(json.loads(self.spark.of_drivers("stdout")[-1].strip().splitlines()[-1]))

    def ended(self, job: str, topic: str, extra: dict[str, Any], **arguments: Any) -> str:
        """Run an operator that has to fail; returns what it said. `extra` is of the Spark connection."""
        given = {"topics": [topic], **arguments}
        done = self.spark.operator(self.hosts["airflow"], job, given, self.brokers.connection(), extra)
        assert done.returncode != 0, done.stdout[-6000:]
        return done.stdout + done.stderr

    def fill(self, topic: str) -> dict[tuple[int, bytes], int]:
        self.brokers.create(topic, PARTITIONS, cleanup_policy="compact", segment_bytes="32768")
        self.brokers.allow_jobs(topic)
        acknowledged = self.brokers.produce(topic, EVENTS, **{"batch.size": 4096})
        sizes = eventually(lambda: _equal(self.brokers.log_bytes(topic)), f"{topic} is on both disks")
        assert min(sizes.values()) > 4 * 32768
        return acknowledged


def _equal(sizes: dict[str, int]) -> dict[str, int]:
    return sizes if len(set(sizes.values())) == 1 else {}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("hosts")
    exports = directory / "exports"
    exports.mkdir()
    # What Airflow and Spark share is not the brokers' either.
    with (
        Hosts(directory, (*BROKERS, "master", *WORKERS, "airflow"), {exports: (*BROKERS, "master")}) as hosts,
        BrokersOnHosts(hosts, BROKERS) as brokers,
    ):
        spark = SparkOnHosts(hosts, "master", WORKERS)
        spark.start()
        yield World(hosts, brokers, spark, exports)


def test_hosts_share_no_files(world: World) -> None:
    """Else nothing would be proven below."""
    for name in (*WORKERS, "airflow", "broker2"):
        seen = world.hosts[name].run(["ls", str(world.hosts["broker1"].directory)]).stdout
        assert seen == "", name
    assert (world.hosts["broker1"].directory / "server.properties").exists()


def check_audit(world: World, topic: str, mode: str) -> None:
    sent = world.fill(topic)
    found = world.run("audit", topic, mode)
    assert (found["verdict"], found["records"]) == ("ok", len(sent) * len(BROKERS))


def test_an_audit_from_airflows_host(world: World) -> None:
    """The short path of all that is below."""
    check_audit(world, "short", "client")


@pytest.mark.long
def test_an_audit_with_its_driver_in_the_cluster(world: World) -> None:
    check_audit(world, "in-cluster", "cluster")
    assert_no_secret(world, world.spark.of_drivers("stderr"))


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_a_compaction(world: World, mode: str) -> None:
    topic = f"compacted-{mode}"
    sent = world.fill(topic)
    before = world.brokers.log_bytes(topic)
    found = world.run("compact", topic, mode, options={"force": True})
    assert found["replicas_compacted"] == PARTITIONS * len(BROKERS)
    after = world.brokers.log_bytes(topic)
    assert all(after[name] < before[name] / 2 for name in BROKERS), (before, after)
    left = {(m.partition(), m.value()): (m.offset(), m.key()) for m in world.brokers.consume(topic, PARTITIONS)}
    assert len(left) < len(sent) / 2
    assert all(sent[place] == offset for place, (offset, _) in left.items())
    last = dict(EVENTS)
    assert set(last.values()) <= {value for _, value in left}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_an_export(world: World, mode: str) -> None:
    topic = f"exported-{mode}"
    sent = world.fill(topic)
    target = world.exports / topic
    found = world.run("export", topic, mode, destination=str(target))
    rows = pq.read_table(target / "data").to_pylist()
    closed = {(row["partition"], row["value"]): row["offset"] for row in rows}
    assert found["rows"] == len(rows) == len(closed) > len(sent) / 2
    assert all(sent[place] == offset for place, offset in closed.items())
    if mode == "client":
        assert world.run("export", topic, mode, destination=str(target))["rows"] == 0


def test_a_status_port_that_is_closed(world: World) -> None:
    """Nothing is submitted where Airflow could not see how it goes on."""
    before = len(world.spark.of_drivers("stdout"))
    said = world.ended("audit", "any", {"deploy-mode": "cluster", "rest-port": 6067})
    assert "http://master:6067 does not tell how a driver in the cluster is ([Errno 111] Connection refused)" in said
    assert "spark.master.rest.enabled=true" in said
    assert len(world.spark.of_drivers("stdout")) == before


@pytest.mark.long
@pytest.mark.parametrize("killed", ["driver", "worker"])
def test_a_driver_in_the_cluster_that_dies(world: World, killed: str) -> None:
    """While it holds leases. The task says where it ran, the log is whole, and the next try does all of the work."""
    topic, options = f"killed-{killed}", {"force": True}
    sent = world.fill(topic)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.ended, "compact", topic, {"deploy-mode": "cluster"}, options=options)
        due = f"compact: {topic}: {PARTITIONS} of {PARTITIONS} partitions are due"
        eventually(lambda: any(due in text for text in world.spark.of_drivers("stdout")), "the job has leases", 120)
        host, driver = world.spark.driver()
        if killed == "driver":
            driver.kill()
        else:
            world.spark.kill_worker(host)
        said = first.result()
    state = "FAILED" if killed == "driver" else "ERROR"
    assert f"exited with status {state}; " in said
    assert f"it ran on {host.address}:" in said or f"it ran on {host.name}:" in said
    found = world.run("compact", topic, "cluster", options=options)
    if killed == "worker":
        world.spark.start_worker(host)
    assert found["replicas_compacted"] == PARTITIONS * len(BROKERS)
    left = {(m.partition(), m.value()): m.offset() for m in world.brokers.consume(topic, PARTITIONS)}
    assert all(sent[place] == offset for place, offset in left.items())
    assert {value for _, value in left} >= set(dict(EVENTS).values())


def assert_no_secret(world: World, texts: Sequence[str]) -> None:
    """Neither what Spark wrote nor a file of a host that is no broker's has the password."""
    password = world.brokers.passwords["jobs"]
    assert texts
    assert not [text for text in texts if password in text]
    for host in (*world.spark.workers, world.hosts["master"], world.hosts["airflow"]):
        files = [path for path in host.directory.rglob("*") if path.is_file()]
        assert not [path for path in files if password.encode() in path.read_bytes()], host.name
