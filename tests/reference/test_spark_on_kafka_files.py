"""Our audit and export on the log directories that Apache Kafka's brokers wrote: transactions, codecs, epochs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def submit(job: str, *arguments: str) -> dict[str, Any]:
    binaries = Path(sys.executable).parent
    command = [str(binaries / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"
    command += [str(ROOT / "spark_jobs" / f"{job}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{job}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def transactions(cluster: RealCluster, topic: str) -> None:
    """Ten transactions, every other one aborted, between plain records."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(10):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, f"{'aborted' if number % 2 else 'committed'} {number} {n}", str(n))
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def test_audit_and_export_of_kafkas_own_files(tmp_path: Path) -> None:
    kafka.jars_or_skip()
    topic = "written-by-kafka"
    with kafka.running(tmp_path / "cluster", "KKK") as cluster:
        cluster.create(topic, 2, 3, segment_bytes="50000", index_interval_bytes="500")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            sent = [(str(n).encode(), f"{codec} {n} ".encode() * 5) for n in range(1000)]
            assert len(cluster.produce(topic, sent, **{"compression.type": codec, "batch.size": 4000})) == 1000
            transactions(cluster, topic)
        leader = cluster.describe(topic)[0].leader
        cluster.cluster.stop_broker(leader)  # another leader epoch in every log
        cluster.cluster.start_broker(leader)
        eventually(lambda: cluster.isrs_full(topic), "in sync", 60)
        cluster.produce(topic, [(b"k", b"last %d" % n) for n in range(10)])
        # librdkafka reads read_committed: what consumers see is what an export has to hold.
        seen = cluster.consume(topic, 5 * 1000 + 5 * 100 + 10)
        expected = {(m.partition(), m.offset()): (m.key(), m.value()) for m in seen}
        assert len(expected) == 5510
        folders = {broker: tmp_path / "cluster" / f"broker-{broker}" / "data" for broker in range(3)}

    # The brokers have stopped cleanly; their directories are as they left them.
    where = [word for broker, folder in folders.items() for word in ("--log-dir", f"{broker}={folder}")]
    sound = submit("audit", "--topic", topic, *where)
    assert (sound["verdict"], sound["first_findings"]) == ("ok", [])
    target = tmp_path / "exported"
    first = submit("export", "--topic", topic, "--log-dir", str(folders[0]), "--destination", str(target))
    rows = pq.read_table(target / "data").to_pylist()
    assert {(r["partition"], r["offset"]): (r["key"], r["value"]) for r in rows} == expected
    assert first["rows"] == 5510
