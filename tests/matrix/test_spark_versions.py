"""The wheel with each version of PySpark that the extra allows, on a running cluster: what docs/spark.md's table says.

The cluster is this checkout's; the other environment has the jobs, the data source and Spark.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.matrix import environments
from tests.matrix.environments import Environment
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1500)]

SHORT = ("3.5.9", "3.11")
CELLS = (SHORT, ("4.0.5", "3.12"), ("4.1.4", "3.13"), ("4.2.1", "3.10"))
CONFIG = {
    "log.cleaner.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
EVENTS = [(b"key%d" % (number % 31), b"value %d" % number * 5) for number in range(4_000)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(cell, marks=[] if cell == SHORT else [pytest.mark.long], id=f"spark-{cell[0]}-py{cell[1]}")
        for cell in CELLS
    ],
)
def cell(request: pytest.FixtureRequest) -> tuple[str, Environment]:
    version, python = request.param
    ours = f"{environments.wheel()}[spark]"
    return version, environments.made(f"spark-{version}-py{python}", python, [f"pyspark=={version}"], [], ours)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    running = LocalCluster(tmp_path_factory.mktemp("cluster"))
    running.start(Settings(1, None, None, CONFIG))
    yield RealCluster(running)
    running.stop()


def run(cluster: RealCluster, made: Environment, topic: str, home: Path, what: str) -> dict[str, Any]:
    script = Path(__file__).with_name("spark_inside.py")
    said = made.run(script, cluster.directory / "cluster.json", topic, home, what, home=home, timeout_s=900)
    return dict(json.loads(said.strip().splitlines()[-1]))


def test_the_jobs(cluster: RealCluster, cell: tuple[str, Environment], tmp_path: Path) -> None:
    version, made = cell
    topic = f"jobs-{version}"
    cluster.create(topic, 1, 1, cleanup_policy="compact", segment_bytes="32768")
    sent = cluster.produce(topic, EVENTS, **{"batch.size": 4096})
    found = run(cluster, made, topic, tmp_path, "jobs")
    assert (found["audit"]["verdict"], found["audit"]["records"]) == ("ok", len(sent))
    assert found["compact"]["replicas_compacted"] == 1
    exported = {row["value"]: row["offset"] for row in pq.read_table(tmp_path / "exported" / "data").to_pylist()}
    assert found["export"]["rows"] == len(exported) < len(sent) / 2
    assert all(sent[0, value] == offset for value, offset in exported.items())
    left = {message.value() for message in cluster.consume(topic, len(sent), timeout_s=3)}
    assert exported.keys() <= left


def test_the_data_source(cluster: RealCluster, cell: tuple[str, Environment], tmp_path: Path) -> None:
    version, made = cell
    topic = f"read-{version}"
    for name in (topic, f"{topic}-copy"):
        cluster.create(name, 1, 1)
    cluster.produce(topic, EVENTS)
    found = run(cluster, made, topic, tmp_path, "source")
    if version < "4.0":
        assert found == {"register": f"the data source needs PySpark 4.0 or later, and this is {version}"}
        return
    stream: object = len(EVENTS)
    if version < "4.2":
        stream = f"spark.readStream of this format needs PySpark 4.2, and this is {version}"
    write = "written"
    if version < "4.1":
        write = f"df.write to this format needs PySpark 4.1, and this is {version}"
    assert found == {"batch": len(EVENTS) - 10, "stream": stream, "write": write}
    copied = cluster.consume(f"{topic}-copy", 1, timeout_s=5 if write == "written" else 1)
    assert [message.value() for message in copied] == ([b"v"] if write == "written" else [])
