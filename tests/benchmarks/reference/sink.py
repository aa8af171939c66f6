"""The sink of `format("logyard")` beside Spark's own Kafka sink: MB/s into one broker of Apache Kafka, in turns.

    python -m tests.benchmarks.reference.sink [--megabytes 100] [--rounds 3]

Both write the same rows of one session's memory, in eight work partitions, two at a time. Ours writes transactions and
each row once; Spark's has acks=all and writes at least once. `pipe` writes nothing: its tasks take the rows from the
JVM as every Python data source does, and let them go, so nothing in Python can be faster.

Two figures each: the median MB/s, and the least CPU seconds a million rows cost Spark (its JVM and Python workers,
without the broker). On a machine with other work the second one tells more.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from logyard.spark_jobs import source
from tests.support import kafka
from tests.support.real_cluster import RealCluster

WORK_PARTITIONS, PARTITIONS = 8, 8
SIZES = (100, 1024)
SINKS = ("logyard", "kafka", "pipe")
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


class PipeWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types here
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Pipe(DataSource):  # type: ignore[misc]  # pyspark has no types here
    @classmethod
    def name(cls) -> str:
        return "pipe"

    def writer(self, schema: Any, overwrite: bool) -> PipeWriter:
        return PipeWriter()


class Cost(NamedTuple):
    """Of one write: seconds, and CPU seconds of Spark."""

    seconds: float
    cpu_s: float


def cpu_s() -> float:
    """Return the CPU seconds that Spark's JVM and its Python workers have used, those that have ended too."""
    jvm = next(one for one in psutil.Process().children() if "org.apache.spark.deploy.SparkSubmit" in one.cmdline())
    times = [process.cpu_times() for process in (jvm, *jvm.children(recursive=True))]
    return float(sum(one.user + one.system + one.children_user + one.children_system for one in times))


def write(frame: Any, sink: str, cluster: RealCluster, topic: str) -> Cost:
    used, begun = cpu_s(), time.perf_counter()
    writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.option("topic", topic).save()
    return Cost(time.perf_counter() - begun, cpu_s() - used)


def measure(spark: Any, cluster: RealCluster, size: int, megabytes: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return MB/s and CPU seconds a million rows of each sink; the first round, which loads code, does not count."""
    count = megabytes * 1_000_000 // size
    frame = spark.range(0, count, 1, WORK_PARTITIONS).selectExpr(
        "cast(id as string) as key", f"rpad(cast(xxhash64(id) as string), {size}, 'abcdefghij') as value"
    )
    frame = frame.cache()
    frame.count()
    costs: dict[str, list[Cost]] = {sink: [] for sink in SINKS}
    for number in range(rounds + 1):
        for sink in SINKS:
            topic = f"{sink}-{size}-{number}"
            cluster.create(topic, PARTITIONS, 1)
            cost = write(frame, sink, cluster, topic)
            if number:
                costs[sink].append(cost)
    frame.unpersist()
    return {
        sink: (
            statistics.median(megabytes / cost.seconds for cost in found),
            min(cost.cpu_s for cost in found) / count * 1e6,
        )
        for sink, found in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
    with tempfile.TemporaryDirectory() as scratch, kafka.running(Path(scratch) / "cluster", "K", ALONE) as cluster:
        spark = session(jars)
        source.register(spark)
        spark.dataSource.register(Pipe)
        for size in SIZES:
            found = measure(spark, cluster, size, options.megabytes, options.rounds)
            said = ", ".join(f"{sink} {pace:.1f} MB/s {cpu:.2f} s" for sink, (pace, cpu) in found.items())
            (pace, cpu), (theirs, their_cpu) = found["logyard"], found["kafka"]
            print(f"values of {size} B: {said}; pace {pace / theirs:.2f}, CPU {cpu / their_cpu:.2f}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
