"""How a job's processes end: with its work, at a failure, and by SIGTERM in the middle; none is left, and no lease."""

from pathlib import Path

import pytest

from logyard.spark_jobs.leases import client
from tests.support.job_process import all_gone, failing, finish_job, start_job
from tests.support.lease_job import broker_https
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# Much longer than the test waits: what is gone was given back.
LONG = ("--lease-ttl-s", "600")


def filled(cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 1, 3, cleanup_policy="compact", segment_bytes="16384", min_insync_replicas="2")
    cluster.produce(topic, [(b"k%d" % (n % 61), b"%d-" % n + bytes(50)) for n in range(3000)], **{"batch.size": 4000})
    eventually(lambda: cluster.isrs_full(topic), "all in sync")


def held(cluster: RealCluster, topic: str) -> list[str]:
    """The states of the topic's leases that have not ended."""
    known = [lease for b in broker_https(cluster.description).values() for lease in b.call("GET", "/leases")["leases"]]
    return [one["state"] for one in known if one["topic"] == topic and one["state"] in ("active", "committing")]


def test_sigterm_gives_the_leases_back_and_leaves_no_process(cluster: RealCluster, tmp_path: Path) -> None:
    topic, mark = "terminated", tmp_path / "reached"
    filled(cluster, topic)
    broker = next(iter(broker_https(cluster.description).values()))
    before = client.partition_status(broker, topic, 0)["clean_offset"]
    pausing = failing("request", r"PUT /leases/[0-9a-f]+/parts/", mark, do="pause") | {"LOGYARD_HIDE_DISK": "1"}
    running = start_job("compact", cluster, tmp_path, "--topic", topic, "--force", *LONG, more=pausing)
    eventually(mark.exists, "a task is in the middle of its work", 120)
    assert len(held(cluster, topic)) == 3
    running.terminate()
    out, _ = running.communicate(timeout=60)
    assert running.returncode not in (0, None)
    assert '"compacted"' not in out
    eventually(lambda: held(cluster, topic) == [], "every lease is given back", 60)
    eventually(lambda: all_gone(running), "no process is left", 60)
    assert client.partition_status(broker, topic, 0)["clean_offset"] == before


def test_a_job_that_is_done_leaves_no_process(cluster: RealCluster, tmp_path: Path) -> None:
    topic = "ended"
    filled(cluster, topic)
    running = start_job("audit", cluster, tmp_path, "--topic", topic, *LONG)
    assert finish_job(running)["verdict"] == "ok"
    eventually(lambda: all_gone(running), "no process is left", 60)
    assert held(cluster, topic) == []


@pytest.mark.long
def test_a_job_that_fails_leaves_no_process(cluster: RealCluster, tmp_path: Path) -> None:
    """Of jobs that fail in make test, see test_executors_python.py."""
    running = start_job("audit", cluster, tmp_path, "--topic", "absent", *LONG)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 1, err[-3000:]
    assert "audit.py: topic absent does not exist" in out + err
    eventually(lambda: all_gone(running), "no process is left", 60)
