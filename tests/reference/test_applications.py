"""Whole applications of the Java world on our brokers: Kafka Streams' word count, Spark's Kafka source."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import read

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


def test_streams_counts_exactly_once_whoever_is_killed(tmp_path: Path) -> None:
    """exactly_once_v2 while brokers are killed in turn: no count is ever wrong for who reads committed records."""
    words = ("logs", "segments", "offsets", "leaders", "epochs")
    with kafka.running(tmp_path / "cluster", "OOO", {"min.insync.replicas": "2"}) as own:
        for topic in ("lines", "counts"):
            own.create(topic, 2, 3)
        command = [*kafka.java(), "-cp", f"{kafka.jars_or_skip()}/*", str(HERE / "WordCount.java"), own.bootstrap]
        command += ["exact", "lines", "counts", str(tmp_path / "state"), "150", "exactly_once_v2"]
        log = tmp_path / "streams.log"
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as streams:
            try:
                sent = 0
                for victim in range(3):
                    # Each line is another one, by blanks that Java's split passes over.
                    lines = [(b"%d" % n, " ".join(words).encode() + b" " * n) for n in range(200)]
                    sent += len(own.produce("lines", lines))
                    eventually(lambda n=sent: last_counts(own, words) == {n}, f"{sent} counted: see {log}", 120)
                    own.cluster.stop_broker(victim, signal.SIGKILL)
                    sent += len(own.produce("lines", lines))
                    own.cluster.start_broker(victim)
                    eventually(lambda: own.isrs_full("counts") and own.isrs_full("lines"), "all in sync", 90)
                eventually(lambda: last_counts(own, words) == {sent}, f"{sent} counted: see {log}", 120)
                assert streams.poll() is None, log.read_text()[-4000:]
            finally:
                streams.terminate()
        told: dict[str, list[int]] = {}
        for message in read(own.bootstrap, "counts"):
            told.setdefault(message.key().decode(), []).append(struct.unpack(">q", message.value())[0])
        assert set(told) == set(words)
        # Each count once, and none that was taken back.
        assert all(counts == sorted(set(counts)) for counts in told.values()), told


def last_counts(cluster: RealCluster, words: tuple[str, ...]) -> set[int]:
    """The last count of each word."""
    last: dict[str, int] = dict.fromkeys(words, 0)
    for message in read(cluster.bootstrap, "counts"):
        (last[message.key().decode()],) = struct.unpack(">q", message.value())
    return set(last.values())


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
