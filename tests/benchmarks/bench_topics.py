"""Many small topics: seconds a topic with a Spark application each, and with one that works through them all.

A broker holds topics of 5 MB, all of them due. Jobs are submitted as Airflow does it, so Spark's start is in the
figures, and the kernels are compiled before.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from tests.benchmarks import harness
from tests.benchmarks.harness import Row

ROOT = Path(__file__).resolve().parents[2]
ALONE = int(os.environ.get("TOPICS_ALONE", "10"))
SOME = int(os.environ.get("TOPICS_SOME", "40"))
MANY = int(os.environ.get("TOPICS_MANY", "200"))
TOPIC_BYTES = 5 * harness.MEGABYTE
VALUE_BYTES, KEYS = 1000, 1000
AT_ONCE = (1, 2, 8)
CONFIG = {"log.cleaner.enable": "false", "offsets.topic.replication.factor": "1", "log.retention.hours": "-1"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(harness.MEGABYTE)}


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about eight minutes."""
    groups = {"warm": 1, "alone": ALONE, "many": MANY, **{f"some{n}": SOME for n in AT_ONCE}, "fair": SOME}
    topics = {group: [f"{group}-{number:03d}" for number in range(count)] for group, count in groups.items()}
    with harness.cluster_of(directory / "cluster", 1, CONFIG) as cluster:
        brokers = harness.servers(cluster)
        every = [name for names in topics.values() for name in names]
        harness.create_topics(brokers, dict.fromkeys(every, (1, 1)), COMPACTED)
        _fill(f"{brokers[0].host}:{brokers[0].port}", every)
        described = cluster.layout.directory / "cluster.json"
        return list(_rows(described, directory, topics))


def _rows(described: Path, directory: Path, topics: dict[str, list[str]]) -> Iterator[Row]:
    _submit("compact", described, topics["warm"])
    begun = time.perf_counter()
    for topic in topics["alone"]:
        _submit("compact", described, [topic])
    yield _row(f"compact, an application each ({ALONE} topics)", begun, ALONE)
    for job, more in (
        ("compact", ()),
        ("compact", ()),
        ("audit", ()),
        ("export", ("--destination", str(directory / "exported"))),
    ):
        begun = time.perf_counter()
        due = _submit(job, described, topics["many"], *more)
        what = "none due" if job == "compact" and not due["compacted"] else "one application"
        yield _row(f"{job}, {what} ({MANY} topics)", begun, MANY)
    for at_once in AT_ONCE:
        begun = time.perf_counter()
        _submit("compact", described, topics[f"some{at_once}"], "--topics-at-once", str(at_once))
        yield _row(f"compact, one application ({SOME} topics), {at_once} at once", begun, SOME)
    begun = time.perf_counter()
    _submit("compact", described, topics["fair"], conf=("spark.scheduler.mode=FAIR",))
    yield _row(f"compact, one application ({SOME} topics), FAIR", begun, SOME)


def _row(what: str, begun: float, count: int) -> Row:
    seconds = time.perf_counter() - begun
    row = Row(what, seconds / count, "s each", note=f"{seconds:.1f} s in all")
    print(row.text(), file=sys.stderr, flush=True)
    return row


def _submit(
    job: str, described: Path, topics: Sequence[str], *arguments: str, conf: Sequence[str] = ()
) -> dict[str, int]:
    """Run a job on these topics; returns its summary."""
    settings = ("spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1", *conf)
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += [word for setting in settings for word in ("--conf", setting)]
    command += [str(ROOT / "spark_jobs" / f"{job}.py"), "--cluster-file", str(described)]
    command += [word for topic in topics for word in ("--topic", topic)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _fill(bootstrap: str, topics: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.kbytes": 200_000})
    refused: list[KafkaError] = []

    def answered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    noise = os.urandom(4 * VALUE_BYTES)
    for topic in topics:
        for number in range(TOPIC_BYTES // VALUE_BYTES):
            value = noise[number % 1000 : number % 1000 + VALUE_BYTES]
            while True:
                try:
                    producer.produce(topic, value, b"key-%04d" % (number % KEYS), partition=0, on_delivery=answered)
                    break
                except BufferError:
                    producer.poll(0.1)
    producer.flush()
    if refused:
        raise RuntimeError(f"records were refused: {refused[0]}")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="bench-topics-") as home:
        measure(Path(home))
