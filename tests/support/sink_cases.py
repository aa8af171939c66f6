"""What `format("logyard")` has to do on any cluster with transactions, whoever made its brokers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from logyard.spark_jobs.sink.client import Client
from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.progress import Work
from logyard.spark_jobs.sink.rows import Rows
from logyard.spark_jobs.sink.task import Limits, Outcome, PartitionWrite
from tests.support import dying_sink
from tests.support.real_cluster import RealCluster, eventually
from tests.support.sink_driver import ROWS
from tests.support.standalone_spark import StandaloneSpark
from tests.support.transactional import END_S
from tests.support.wire_client import ask

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(timeout_ms=60_000, wait_s=3)
KILLED = -9
FIND_COORDINATOR = 10


def start_driver(action: str, cluster: RealCluster, topic: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.sink_driver", action, cluster.bootstrap, topic]
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def ended(driver: "subprocess.Popen[str]", *statuses: int, timeout_s: float = 280) -> str:
    """Return what a driver said, once it has ended with one of these statuses."""
    said, _ = driver.communicate(timeout=timeout_s)
    assert driver.returncode in (statuses or (0,)), f"{driver.returncode}: {said[-5000:]}"
    return said


def values(cluster: RealCluster, topic: str) -> Counter[str]:
    """Return how often each value is in the topic, for a consumer that reads what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"counts-{topic}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    ends: set[int] = set()
    found: Counter[str] = Counter()
    try:
        while len(ends) < 4:
            for message in consumer.consume(5000, END_S):
                if message.error() is None:
                    found[message.value().decode()] += 1
                else:
                    ends.add(message.partition())
    finally:
        consumer.close()
    return found


def once(*names: str, count: int = ROWS) -> Counter[str]:
    return Counter(f"{name}:{number}" for name in names for number in range(count))


def dying_tasks(cluster: RealCluster, directory: Path, first: int, last: int) -> None:
    """A task dies at each step and is repeated."""
    topic = f"kills-{first}"
    cluster.create(topic, 4, 1)
    ended(start_driver("kills", cluster, topic, directory, first, last))
    assert values(cluster, topic) == once(*(f"kill{number}" for number in range(first, last)))


def two_drivers(cluster: RealCluster, directory: Path) -> None:
    """Two Spark drivers write the same at the same time; one may give up, none may write twice."""
    cluster.create("two", 4, 1)
    drivers = [start_driver("batch", cluster, "two", directory, "same", 3) for _ in range(2)]
    for driver in drivers:
        ended(driver, 0, 1)
    assert 0 in [driver.returncode for driver in drivers]
    assert values(cluster, "two") == once("same")


def dying_drivers(cluster: RealCluster, directory: Path) -> None:
    """A query's driver dies after a commit that Spark has not noted, then amid a micro-batch; it goes on each time."""
    cluster.create("stream", 4, 1)
    (directory / "in").mkdir()
    for number in range(3):
        file = directory / "in" / f"{number}.txt"
        file.write_text("".join(f"{number}:{n}\n" for n in range(500)))
        os.utime(file, (1000 + number, 1000 + number))
    for step in (dying_sink.DRIVER_COMMITS, "after commit"):
        ended(start_driver("stream", cluster, "stream", directory, 3, step), KILLED, 1)
        assert (directory / f"died {step}").exists()
    ended(start_driver("stream", cluster, "stream", directory, 3))
    assert values(cluster, "stream") == once("0", "1", "2", count=500)


def speculation(cluster: RealCluster, directory: Path) -> None:
    """Spark's scheduler runs a second attempt beside a slow one that has sent nothing yet, or a part.

    The slow one goes on as the second begins, so both write at once, until one has ended and Spark kills the other.
    """
    cluster.create("speculation", 4, 1)
    stops = (0, 100)
    with StandaloneSpark(directory, ("127.0.0.1", "127.0.0.2")) as spark:
        driver = start_driver("speculate", cluster, "speculation", directory, spark.master, *stops)
        ended(driver, timeout_s=900)
    told = [f"{what}-{sent}" for what in ("first", "resumed", "second") for sent in stops]
    assert [name for name in told if (directory / name).exists()] == told
    assert values(cluster, "speculation") == once("slow0", "slow100")


def rows(name: str, numbers: Sequence[int]) -> list[Rows]:
    said = [f"{name}:{number}".encode() for number in numbers]
    return [Rows(keys=[b"%d" % n for n in numbers], values=said)]


def write(cluster: RealCluster, topic: str, work: Work, batches: Iterator[Rows] | list[Rows]) -> Outcome:
    client = Client({"bootstrap.servers": cluster.bootstrap}, topic, LIMITS.timeout_ms, topic)
    client.check_topic(topic)
    return PartitionWrite(work, client, LIMITS).run(batches)


def attempts_at_once(cluster: RealCluster) -> None:
    """A slow attempt is overtaken by another, as with speculation, before and after it has sent records."""
    cluster.create("attempts", 4, 1)
    for epoch, sent in enumerate((0, 100)):
        work = Work("speculated", epoch, 0, "run")

        def slow(sent: int = sent, work: Work = work) -> Iterator[Rows]:
            name = f"epoch{work.epoch}"
            if sent:
                yield from rows(name, range(sent))
            other = threading.Thread(target=write, args=(cluster, "attempts", work, rows(name, range(200))))
            other.start()
            other.join()
            yield from rows(name, range(sent, 200))

        if sent:
            with pytest.raises(Fenced, match="a later attempt of the same work has begun"):
                write(cluster, "attempts", work, slow())
        else:
            assert write(cluster, "attempts", work, slow()).is_skipped
        assert write(cluster, "attempts", work, rows(f"epoch{epoch}", range(200))).is_skipped
    assert values(cluster, "attempts") == once("epoch0", "epoch1", count=200)


def lost_coordinator(cluster: RealCluster) -> None:
    """The broker that coordinates the group dies, and the client forgets it, before it commits there again."""
    cluster.create("lost", 3, 3)
    client = Client({"bootstrap.servers": cluster.bootstrap}, "lost", LIMITS.timeout_ms, "lost")
    first = cluster.bootstrap.split(",")[0]
    producer = client.transactions("w-0")
    producer.start()
    for number in range(2):
        producer.begin()
        values = [f"w:{number}-{partition}".encode() for partition in range(3)]
        producer.send(Rows(keys=[None] * 3, values=values, partitions=[0, 1, 2]))
        if number:
            time.sleep(5)  # who led a partition is asked for again, and the dead broker is not among the answer
        begun = time.monotonic()
        producer.commit("w-0", number, "{}")
        if not number:
            cluster.cluster.stop_broker(
                ask(first, FIND_COORDINATOR, 2, {"key": "w-0", "key_type": 0}).node_id, signal.SIGKILL
            )
            eventually(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 2, "it is gone")
    assert time.monotonic() - begun < 60
    producer.close()
    assert client.committed(["w-0"]) == {"w-0": "{}"}


def refusals(cluster: RealCluster) -> None:
    """What is refused with one line, and nothing is written."""
    cluster.create("refused", 4, 1)
    first = Work("w", 7, 1, "one")
    assert write(cluster, "refused", first, rows("w", range(100))).records == 100
    cases: list[tuple[str, str, Work, list[Rows]]] = [
        ("is 99 other records now", "refused", Work("w", 7, 1, "two"), rows("w", range(99))),
        ("has committed work partition 1, and after 3 s", "refused", Work("w", 7, 0, "two"), rows("w", [7])),
        ("epoch 7 has begun already", "refused", Work("w", 6, 0, "two"), rows("w", [7])),
        ("topic absent: UNKNOWN_TOPIC_OR_PART", "absent", Work("x", 0, 0, "two"), rows("w", [7])),
        (
            "partition 9 of refused does not exist: it has 4",
            "refused",
            Work("y", 0, 0, "two"),
            [Rows(keys=[None], values=[b"w:7"], partitions=[9])],
        ),
        (
            "raise kafka.message.max.bytes",
            "refused",
            Work("z", 0, 0, "two"),
            [Rows(keys=[None], values=[b"v" * 2_000_000])],
        ),
    ]
    for text, topic, work, batches in cases:
        with pytest.raises(CannotWrite) as refused:
            write(cluster, topic, work, batches)
        assert text in str(refused.value)
        assert "\n" not in str(refused.value)
    assert values(cluster, "refused") == once("w", count=100)
