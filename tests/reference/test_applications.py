"""Whole applications of the Java world on our brokers: Kafka Streams' word count, Spark's Kafka source."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually

pytestmark = pytest.mark.timeout(900)
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with kafka.running(tmp_path_factory.mktemp("applications") / "cluster", "OOO") as running:
        yield running


def test_streams_counts_words(cluster: RealCluster, tmp_path: Path) -> None:
    """A consumer group, repartition and changelog topics made by the admin client, compaction, restart from the log."""
    for topic in ("lines", "counts"):
        cluster.create(topic, 2, 3)
    lines = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
    cluster.produce("lines", [(str(n).encode(), line.encode()) for n, line in enumerate(lines)])
    command = [*kafka.java(), "-cp", f"{kafka.jars_or_skip()}/*", str(HERE / "WordCount.java"), cluster.bootstrap]
    command += ["word-count", "lines", "counts", str(tmp_path / "state"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    words = " ".join(lines).split()
    expected = {word: words.count(word) for word in words}

    def counted() -> dict[str, int]:
        found: dict[str, int] = {}
        for message in cluster.consume("counts", len(words), 10):
            (count,) = struct.unpack(">q", message.value())
            found[message.key().decode()] = max(count, found.get(message.key().decode(), 0))
        return found

    eventually(lambda: counted() == expected, "counts", 60)
    names = set(cluster.admin().list_topics(timeout=10).topics)
    assert {name for name in names if name.startswith("word-count-")} and "word-count" not in names  # noqa: PT018


SPARK = """
import json, sys
from pyspark.sql import SparkSession
bootstrap, jars, checkpoint = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate())
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "events", "startingOffsets": "earliest"}
batch = spark.read.format("kafka").options(**options).load()
rows = [(r.partition, r.offset, bytes(r.key).decode(), bytes(r.value).decode()) for r in batch.collect()]
query = (spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", "150").load()
    .selectExpr("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    .option("topic", "copied").option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
print(json.dumps(rows))
spark.stop()
"""


@pytest.mark.spark
def test_sparks_kafka_source_and_sink(cluster: RealCluster, tmp_path: Path) -> None:
    """A batch read of everything; a stream in several micro-batches from one topic of ours into another."""
    import json

    jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
    for topic in ("events", "copied"):
        cluster.create(topic, 3, 3)
    sent = [(b"k%d" % n, b"value %d" % n) for n in range(500)]
    acknowledged = cluster.produce("events", sent, **{"compression.type": "zstd"})
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", SPARK, cluster.bootstrap, jars, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert {(partition, value.encode()): offset for partition, offset, _, value in rows} == acknowledged
    copied = {(message.key(), message.value()) for message in cluster.consume("copied", 500)}
    assert copied == set(sent)
