"""Rows of the jobs: segments compacted by ours and by Kafka's LogCleaner, a topic exported by ours and by Spark's.

Every run has a broker of its own, of the kind it is asked for, and the same records in it.
"""

import itertools
import os
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from logyard.spark_jobs import driver_jvm
from tests.benchmarks.reference.cost import Meter
from tests.benchmarks.reference.measure import Measured
from tests.benchmarks.reference.moves import client_of
from tests.benchmarks.reference.rows import wait
from tests.support import kafka
from tests.support.job_process import job_environment
from tests.support.real_cluster import RealCluster, eventually

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS, KEYS, TOPIC = 8, 200_000, "dirty"
# What our jobs, and the one below, say when Spark is there and the work begins.
UP = "Spark is up"
JOB_S_MAX = 900
ALONE = {"offsets.topic.replication.factor": "1", "log.cleaner.threads": "2", "log.cleaner.backoff.ms": "100"}
_runs = itertools.count()

EXPORT = """
import sys
from pyspark.sql import SparkSession
bootstrap, jars, target = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
print("Spark is up", file=sys.stderr, flush=True)
source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "dirty")
source.option("startingOffsets", "earliest").load().write.parquet(target)
spark.stop()
"""

# An application of plain PySpark that does nothing, as anyone would write it: Spark is started, a task of Python is
# run, Spark is stopped. It has the JVM's options of our jobs, and nothing else of theirs: they prepare their workers
# beside Spark's start and leave sooner, so that a job may take less.
EMPTY = """
import sys
from pyspark import SparkContext
context = SparkContext()
assert context.parallelize([1], 1).map(lambda n: n + 1).collect() == [2]
print("Spark is up", file=sys.stderr, flush=True)
context.stop()
"""
FLOOR = "floor: an empty application"


def compaction(cluster: RealCluster, *, megabytes: int = 1000, spark: bool = True) -> Measured:
    """100-byte records of 200,000 keys in eight partitions; `spark`: ours by the Spark job, else by the own cleaner.

    From the moment a topic is to be compacted until its closed segments are; and the pace of the work alone, which
    a cleaner begins at once and our job when Spark is up.
    """
    ours = _is_ours(cluster)
    cleaner = {"log.cleaner.enable": "false" if ours and spark else "true"}
    with kafka.running(cluster.directory / f"run-{next(_runs)}", "O" if ours else "K", {**ALONE, **cleaner}) as alone:
        _fill(alone, megabytes, 100)
        goals, dirty = _closed(alone)
        client = client_of(alone)
        meter = Meter(alone, jobs=True)
        begun = up = time.perf_counter()
        client.alter_topic_configs(TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        client.close()
        if ours and spark:
            up = _submit("compact", alone, "--topic", TOPIC, "--force")
        else:
            eventually(lambda: _cleaned(alone, goals), "every closed segment cleaned", 600)
        ended, cost = time.perf_counter(), meter.figures(dirty / 1e6)
        assert _size(alone) < dirty, "nothing was compacted"
        floor = _floor(alone)
    return {"s in all": ended - begun, "at work, MB/s": dirty / 1e6 / (ended - up), **cost, **floor}


def export(cluster: RealCluster, *, megabytes: int = 1000) -> Measured:
    """1 KiB records to Parquet, by our job and by Spark's Kafka source: in all, and the pace when Spark is up."""
    ours = _is_ours(cluster)
    with kafka.running(cluster.directory / f"run-{next(_runs)}", "O" if ours else "K", ALONE) as alone:
        _fill(alone, megabytes, 1024)
        target = alone.directory / "exported"
        meter = Meter(alone, jobs=True)
        begun = time.perf_counter()
        if ours:
            up = _submit("export", alone, "--topic", TOPIC, "--destination", str(target))
        else:
            jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
            up = _run([sys.executable, "-c", EXPORT, alone.bootstrap, jars, str(target)])
        ended, cost = time.perf_counter(), meter.figures(megabytes)
        assert any(target.rglob("*.parquet")), "nothing was exported"
        floor = _floor(alone)
    return {"s in all": ended - begun, "at work, MB/s": megabytes / (ended - up), **cost, **floor}


def audit(cluster: RealCluster, *, megabytes: int = 1000) -> Measured:
    """Every batch and record of 1 KiB records is checked: by our job, and by kafka-dump-log --deep-iteration, which
    is at work from its start on."""
    ours = _is_ours(cluster)
    with kafka.running(cluster.directory / f"run-{next(_runs)}", "O" if ours else "K", ALONE) as alone:
        _fill(alone, megabytes, 1024)
        meter = Meter(alone, jobs=True)
        begun = up = time.perf_counter()
        if ours:
            up = _submit("audit", alone, "--topic", TOPIC)
        else:
            files = ",".join(str(file) for folder in _folders(alone) for file in sorted(folder.glob("*.log")))
            kafka.tool("dump-log", "--deep-iteration", "--files", files, timeout_s=JOB_S_MAX)
        ended, cost = time.perf_counter(), meter.figures(megabytes)
        floor = _floor(alone)
    return {"s in all": ended - begun, "at work, MB/s": megabytes / (ended - up), **cost, **floor}


def _is_ours(cluster: RealCluster) -> bool:
    return "O" in kafka.kinds_file(cluster.directory).read_text()


def _fill(cluster: RealCluster, megabytes: int, size: int) -> None:
    admin = cluster.admin()
    config = {"segment.bytes": str(32 << 20), "cleanup.policy": "delete"}
    wait(admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)], operation_timeout=60))
    settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "batch.size": 200_000, "acks": "1"}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    values = [os.urandom(size - 10) for _ in range(64)]
    for n in range(megabytes * 1_000_000 // size):
        while True:
            try:
                producer.produce(TOPIC, values[n % 64], b"%010d" % (n * 7919 % KEYS), partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(300) == 0
    # Jobs read closed segments: the last ones are closed by one record more in each partition.
    client = client_of(cluster)
    client.alter_topic_configs(TOPIC, {"segment.ms": "1"})
    eventually(lambda: client.topic_configs(TOPIC)["segment.ms"].value == "1", "segments of a millisecond")
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"last", b"last", partition=partition)
    assert producer.flush(60) == 0
    client.alter_topic_configs(TOPIC, {}, ["segment.ms"])
    client.close()
    eventually(lambda: all(len(list(folder.glob("*.log"))) > 1 for folder in _folders(cluster)), "closed segments")


def _folders(cluster: RealCluster) -> list[Path]:
    data = cluster.directory / "broker-0" / "data"
    return [data / f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]


def _closed(cluster: RealCluster) -> tuple[dict[int, int], int]:
    """The base offset of each partition's active segment, and the bytes below it."""
    goals, size = {}, 0
    for partition, folder in enumerate(_folders(cluster)):
        *closed, active = sorted(folder.glob("*.log"))
        goals[partition] = int(active.stem)
        size += sum(file.stat().st_size for file in closed)
    return goals, size


def _cleaned(cluster: RealCluster, goals: dict[int, int]) -> bool:
    """Whether the checkpoint of the cleaner (topic partition offset a line) has come as far as the active segments."""
    checkpoint = cluster.directory / "broker-0" / "data" / "cleaner-offset-checkpoint"
    lines = [line.split() for line in checkpoint.read_text().splitlines()[2:]] if checkpoint.exists() else []
    reached = {int(line[1]): int(line[2]) for line in lines if line[0] == TOPIC}
    return all(reached.get(partition, 0) >= goal for partition, goal in goals.items())


def _size(cluster: RealCluster) -> int:
    """Bytes of the closed segments now."""
    return _closed(cluster)[1]


def _floor(cluster: RealCluster) -> Measured:
    """What an empty application takes, submitted as the jobs are."""
    script = cluster.directory / "empty.py"
    script.write_text(EMPTY)
    meter, begun = Meter(cluster, jobs=True), time.perf_counter()
    _run([*_submission(), str(script)])
    taken = time.perf_counter() - begun
    return {f"{FLOOR}, s": taken, f"{FLOOR}, CPU s": meter.figures(1000)["CPU s per GB"]}


def _submit(job: str, cluster: RealCluster, *arguments: str) -> float:
    script = str(ROOT / "spark_jobs" / f"{job}.py")
    return _run([*_submission(), script, "--cluster-file", str(cluster.directory / "cluster.json"), *arguments])


def _submission() -> list[str]:
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1"]
    return [*command, "--conf", f"{driver_jvm.SETTING}={_jvm_options()}"]


@cache
def _jvm_options() -> str:
    """As the operators set them, on a machine where `logyard.spark_jobs.warm` has run."""
    driver_jvm.make()
    return driver_jvm.options()


def _run(command: list[str]) -> float:
    """Run a job to its end; returns when its Spark was up, on the clock of `time.perf_counter`."""
    environment = job_environment(ROOT / ".numba_cache") | driver_jvm.LAUNCHER
    said, up = [], None
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        too_long = threading.Timer(JOB_S_MAX, process.kill)
        too_long.daemon = True
        too_long.start()
        for line in process.stdout or ():
            said.append(line)
            if UP in line:
                up = time.perf_counter()
        too_long.cancel()
    assert process.returncode == 0, "".join(said[-60:])
    assert up is not None, f"no line says {UP!r}"
    return up
