"""Rows of the data plane and of groups: each does its work on a cluster and returns figures named with their units."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.benchmarks import bare_files
from tests.benchmarks.reference import bare_senders, kcat
from tests.benchmarks.reference.cost import Meter
from tests.benchmarks.reference.group import Group
from tests.benchmarks.reference.measure import Measured, Steps, cpu_s, resident_mb
from tests.benchmarks.reference.tls import client
from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually

_names = itertools.count()
_made: dict[tuple[int, int, int], list[list[str]]] = {}
"""What a row made and another is to delete, a list of topics a round: by cluster, topics and partitions of each."""


def create(cluster: RealCluster, name: str, partitions: int, replicas: int, **config: str) -> None:
    """Make a topic and wait until all its replicas are in sync; patient, on a machine that may be busy.

    In the names of `config`, _ stands for a dot.
    """
    admin = cluster.admin()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    wait(admin.create_topics([NewTopic(name, partitions, replicas, config=settings)], operation_timeout=100))
    eventually(lambda: cluster.isrs_full(name), f"{name} in sync", 100)


@contextlib.contextmanager
def topic(cluster: RealCluster, partitions: int, replicas: int, **config: str) -> Iterator[str]:
    """A topic for one run, deleted after it."""
    name = f"bench-{next(_names)}"
    create(cluster, name, partitions, replicas, **config)
    try:
        yield name
    finally:
        admin = cluster.admin()  # its work ends with the handle
        admin.delete_topics([name], operation_timeout=30)[name].result(60)


def produce_and_consume(
    cluster: RealCluster,
    *,
    size: int,
    replicas: int,
    acks: str,
    codec: str,
    large: bool = False,
    megabytes: int = 300,
    tls: bool = False,
) -> Steps:
    """librdkafka with its default batches or `large` ones of a megabyte, six partitions: in, then out again.

    `megabytes` of records of 1 KiB or more; of smaller ones a million records. kcat reads them from another topic, in
    full batches: those of the first are the smaller the sooner a broker answers, and small ones are dearer to read.
    """
    count = min(megabytes * 1_000_000 // size, 1_000_000)
    values = [os.urandom((size + 1) // 2).hex()[:size].encode() for _ in range(1024)]  # lz4 halves it
    settings: dict[str, object] = {**client(cluster, tls=tls), "acks": acks, "compression.type": codec}
    settings |= {"queue.buffering.max.messages": 1_000_000}
    batches = {"batch.size": 1_000_000, "linger.ms": 50} if large else {"linger.ms": 5}
    # Both topics are deleted at the end: to give their pages back is work, too.
    with topic(cluster, 6, replicas) as name, topic(cluster, 6, replicas) as full:
        yield
        meter, begun = Meter(cluster), time.perf_counter()
        pour(Producer({**settings, **batches}), name, (values[n % 1024] for n in range(count)))
        produced = time.perf_counter() - begun
        cost = meter.figures(count * size / 1e6, "produce")
        yield
        pour(Producer({**settings, "linger.ms": 1000}), full, (values[n % 1024] for n in range(count)))
        consumed = yield from kcat.readings(cluster, full, count, size, "consume", tls=tls)
        if not tls:
            with bare_senders.running(cluster, full) as bare:
                floor = yield from kcat.floor(cast(RealCluster, bare), full, count, size, "consume")
            consumed = {**consumed, **floor}
    return {"produce MB/s": count * size / 1e6 / produced, **cost, **consumed}


def pour(producer: Producer, name: str, values: Iterable[bytes], together: int = 1000) -> None:
    """Send all of them, so many at a time to each of six partitions, and wait until they are acknowledged."""
    for n, value in enumerate(values):
        while True:
            try:
                producer.produce(name, value, partition=n // together % 6)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(120)
    assert left == 0, f"{left} records of {name} are not acknowledged"


def java_produce(cluster: RealCluster, *, size: int, acks: str) -> Measured:
    """kafka-producer-perf-test: the Java producer with its defaults; its own figures."""
    with topic(cluster, 6, 3) as name:
        records = 60_000_000 // size
        words = f"--topic {name} --num-records {records} --record-size {size} --throughput -1"
        options = f"--producer-props bootstrap.servers={cluster.bootstrap} acks={acks}"
        cpu = cpu_s(cluster)
        said = kafka.tool("producer-perf-test", *words.split(), *options.split()).splitlines()
        last = next(line for line in reversed(said) if "99th" in line)
        amount = records * size / 1e6
        return {
            "produce MB/s": float(last.split("(")[1].split()[0]) * 1.048576,
            "p99 ms": max(1.0, float(last.split(" ms 99th")[0].split()[-1])),
            "CPU s per GB": (cpu_s(cluster) - cpu) / amount * 1000,
        }


def latency(cluster: RealCluster, *, acks: str, tls: bool = False) -> Measured:
    """One 1 KiB record at a time, 500 a second in all: from produce() to its delivery report.

    The producer has its connections and its metadata before: how they are made is another matter.
    """
    with topic(cluster, 6, 3) as name:
        taken: list[float] = []
        producer = Producer({**client(cluster, tls=tls), "acks": acks, "linger.ms": 0})
        for partition in range(6):
            producer.produce(name, b"x", partition=partition)
        producer.flush(30)
        begun, cpu = time.perf_counter(), cpu_s(cluster)
        for n in range(2000):
            while time.perf_counter() < begun + n / 500:
                producer.poll(0.0005)
            sent = time.perf_counter()
            note = partial(lambda sent, error, message: taken.append(time.perf_counter() - sent), sent)
            producer.produce(name, b"x" * 1024, partition=n % 6, on_delivery=note)
        producer.flush(30)
        used = cpu_s(cluster) - cpu
    taken.sort()
    assert len(taken) == 2000
    return {"p50 ms": taken[1000] * 1000, "p99 ms": taken[1980] * 1000, "CPU s": used}


def create_many(cluster: RealCluster, *, topics: int, partitions: int) -> Measured:
    """Until every partition has a leader in the metadata. The topics stay, for `delete_many`.

    Deleted at once they would be what the next round measures: ext4 takes a deleted file's inode for a new one only
    after some minutes, and looks at all of them again for each new file. 5,000 files in 1,000 directories are 0.15 s of
    a core, and up to 2.8 s soon after as many were deleted. The floor is as many partitions' files, made right after by
    system calls alone: what varies there is the file system's.
    """
    names = [f"many-{next(_names)}" for _ in range(topics)]
    admin = cluster.admin()
    begun = time.perf_counter()
    wait(admin.create_topics([NewTopic(name, partitions, 1) for name in names], operation_timeout=100))
    eventually(lambda: led(admin.list_topics(timeout=30), names, partitions), "all led", 100)
    _made.setdefault((id(cluster), topics, partitions), []).append(names)
    taken = time.perf_counter() - begun
    floor = bare_files.make(cluster.directory, topics * partitions)
    return {"create s": taken, "floor: the same files alone, s": floor}


def delete_many(cluster: RealCluster, *, topics: int, partitions: int) -> Measured:
    """What a round of `create_many` has made, until the last name is gone from the metadata."""
    names = _made[id(cluster), topics, partitions].pop()
    admin = cluster.admin()
    begun = time.perf_counter()
    wait(admin.delete_topics(names, operation_timeout=100))
    eventually(lambda: not admin.list_topics(timeout=30).topics.keys() & set(names), "all gone", 100)
    return {"delete s": time.perf_counter() - begun}


def wait(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(120)


def led(metadata: Any, names: list[str], partitions: int) -> bool:
    found = [metadata.topics.get(name) for name in names]
    return all(
        t and len(t.partitions) == partitions and all(p.leader >= 0 for p in t.partitions.values()) for t in found
    )


def commits(cluster: RealCluster) -> Measured:
    """One member, one offset, one synchronous commit after the other."""
    with topic(cluster, 1, 3) as name:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": f"g-{name}", "enable.auto.commit": False}
        )
        consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
        begun, cpu = time.perf_counter(), cpu_s(cluster)
        for n in range(500):
            consumer.commit(offsets=[TopicPartition(name, 0, n)], asynchronous=False)
        taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
        consumer.close()
    return {"commits/s": 500 / taken, "CPU ms each": used * 2}


def rebalances(cluster: RealCluster, *, members: int) -> Measured:
    """Ten rebalances of a stable group, one after the other: every member joins and syncs."""
    group = Group(cluster, members)
    try:
        group.form()
        cpu = cpu_s(cluster)
        taken = sorted(group.rebalance() for _ in range(10))
        return {"ms": taken[5] * 1000, "CPU ms each": (cpu_s(cluster) - cpu) * 100}
    finally:
        group.close()


def restart(cluster: RealCluster, *, number: signal.Signals) -> Measured:
    """One broker of three: until it is back in every ISR; its own log has 100 MB and some hundred partitions.

    How soon the system has cleared a killed process away says nothing of a broker: only a clean stop has a time.
    """
    begun = time.perf_counter()
    cluster.cluster.stop_broker(0, number)
    stopped = {} if number == signal.SIGKILL else {"stop s": time.perf_counter() - begun}
    begun = time.perf_counter()
    cluster.cluster.start_broker(0)
    eventually(lambda: cluster.isrs_full("kept"), "back", 60)
    return {**stopped, "start s": time.perf_counter() - begun}


def resident(cluster: RealCluster) -> Measured:
    return {"resident MB of three brokers": resident_mb(cluster)}
