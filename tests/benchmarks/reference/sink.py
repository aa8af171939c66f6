"""The sink of `format("logyard")` beside Spark's own Kafka sink: MB/s into one broker of Apache Kafka, in turns.

    python -m tests.benchmarks.reference.sink [--megabytes 100] [--rounds 3]

Both write the same rows of one session's memory, in eight work partitions, two at a time. Ours writes transactions and
each row once; Spark's has acks=all and writes at least once.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from logyard.spark_jobs import source
from tests.support import kafka
from tests.support.real_cluster import RealCluster

WORK_PARTITIONS, PARTITIONS = 8, 8
SIZES = (100, 1024)
SINKS = ("logyard", "kafka")
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    return builder.config("spark.driver.memory", "3g").getOrCreate()


def write(frame: Any, sink: str, cluster: RealCluster, topic: str) -> float:
    """Return how many seconds it took."""
    begun = time.perf_counter()
    writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.option("topic", topic).save()
    return time.perf_counter() - begun


def measure(spark: Any, cluster: RealCluster, size: int, megabytes: int, rounds: int) -> dict[str, float]:
    """Return the median MB/s of each sink; the first round, which loads code, does not count."""
    count = megabytes * 1_000_000 // size
    frame = spark.range(0, count, 1, WORK_PARTITIONS).selectExpr(
        "cast(id as string) as key", f"rpad(cast(xxhash64(id) as string), {size}, 'abcdefghij') as value"
    )
    frame = frame.cache()
    frame.count()
    paces: dict[str, list[float]] = {sink: [] for sink in SINKS}
    for number in range(rounds + 1):
        for sink in SINKS:
            topic = f"{sink}-{size}-{number}"
            cluster.create(topic, PARTITIONS, 1)
            seconds = write(frame, sink, cluster, topic)
            if number:
                paces[sink].append(megabytes / seconds)
    frame.unpersist()
    return {sink: statistics.median(found) for sink, found in paces.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
    with tempfile.TemporaryDirectory() as scratch, kafka.running(Path(scratch) / "cluster", "K", ALONE) as cluster:
        spark = session(jars)
        source.register(spark)
        for size in SIZES:
            found = measure(spark, cluster, size, options.megabytes, options.rounds)
            said = ", ".join(f"{sink} {pace:.1f} MB/s" for sink, pace in found.items())
            print(f"values of {size} B: {said}; {found['logyard'] / found['kafka']:.2f}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
