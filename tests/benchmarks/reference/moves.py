"""Rows of the control plane at size: failover, controlled shutdown, and data that moves between brokers."""

import itertools
import os
import signal
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.connector import RealPause
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from tests.benchmarks.reference.measure import Measured, cpu_s
from tests.benchmarks.reference.rows import led, wait
from tests.support.memory_records import MemoryRecords
from tests.support.real_cluster import RealCluster, eventually

MANY, LED = 10_000, 3_000
_names = itertools.count()


def once(cluster: RealCluster, name: str, make: Callable[[], None]) -> None:
    """Prepare a cluster for a row the first time the row comes to it."""
    mark = cluster.directory / f"prepared-{name}"
    if not mark.exists():
        make()
        mark.touch()


def failover(cluster: RealCluster, *, partitions: int = 0) -> Measured:
    """/controller is deleted: until another broker leads and has created a topic.

    `partitions`: that many more are in the cluster then, in topics of 1,000 with one replica.
    """
    admin = cluster.admin()

    def fill() -> None:
        for number in range(partitions // 1000):
            name = f"crowd-{number}"
            wait(admin.create_topics([NewTopic(name, 1000, 1)], operation_timeout=100))
            eventually(lambda name=name: led(admin.list_topics(name, timeout=30), [name], 1000), "all led", 100)

    if partitions:
        once(cluster, f"crowd-{partitions}", fill)
    with cluster.zookeeper() as zk:
        before = zk.get("/controller")[1].czxid
        cpu, begun = cpu_s(cluster), time.perf_counter()
        zk.delete("/controller")
        while (stat := zk.exists("/controller")) is None or stat.czxid == before:
            time.sleep(0.002)
        name = f"after-{next(_names)}"

        _make(cluster, name)
        taken = time.perf_counter() - begun
    used = cpu_s(cluster) - cpu
    eventually(lambda: _deleted(cluster, name), "the topic deleted again", 120)
    # What of it is the client's way to a controller, and a topic of any day.
    begun = time.perf_counter()
    _make(cluster, f"{name}-again")
    floor = time.perf_counter() - begun
    eventually(lambda: _deleted(cluster, f"{name}-again"), "the topic deleted again", 120)
    return {"s": taken, "s without a failover": floor, "CPU s": used}


def _make(cluster: RealCluster, name: str) -> None:
    """Make a topic at whichever controller there is, asked again at once: a pause would be a part of what is measured.

    By a client of its own each time: librdkafka goes on asking the controller that it once learnt of.
    """
    deadline = time.monotonic() + 120
    while True:
        client = cluster.admin()
        try:
            wait(client.create_topics([NewTopic(name, 1, 1)], operation_timeout=60))
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _deleted(cluster: RealCluster, name: str) -> bool:
    admin = cluster.admin()
    try:
        wait(admin.delete_topics([name], operation_timeout=60))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise  # eventually() asks again, and says what it saw last
    return True


def shutdown(cluster: RealCluster) -> Measured:
    """A broker that leads 3,000 partitions of two replicas is asked to stop: until its process has ended."""
    admin = cluster.admin()
    names = [f"led-{number}" for number in range(LED // 1000)]

    def fill() -> None:
        made = [NewTopic(name, 1000, replica_assignment=[[0, 1 + p % 2] for p in range(1000)]) for name in names]
        wait(admin.create_topics(made, operation_timeout=100))
        eventually(lambda: all(cluster.isrs_full(name) for name in names), "in sync", 120)

    def all_led() -> bool:
        return all(p.leader == 0 for name in names for p in cluster.describe(name).values())

    once(cluster, "led", fill)
    eventually(all_led, "led by it", 60)
    begun = time.perf_counter()
    cluster.cluster.stop_broker(0, signal.SIGTERM)
    stopped = time.perf_counter() - begun
    left = admin.list_topics(timeout=30)
    assert led(left, names, 1000)
    begun = time.perf_counter()
    cluster.cluster.start_broker(0)
    eventually(lambda: all(cluster.isrs_full(name) for name in names), "back in sync", 120)
    started = time.perf_counter() - begun
    client = client_of(cluster)
    try:
        client.elect_leaders([TopicPartition(name, p) for name in names for p in range(1000)])
    finally:
        client.close()
    eventually(all_led, "led again", 120)
    return {"stop s": stopped, "start until in sync s": started}


def reassign(cluster: RealCluster, *, gigabytes: float, throttle: int) -> Measured:
    """Eight partitions with that much data go from one broker to another, or back; `throttle` in bytes/s, 0: none."""
    name = f"movable-{gigabytes}"

    def fill() -> None:
        admin = cluster.admin()
        wait(admin.create_topics([NewTopic(name, 8, replica_assignment=[[0]] * 8)], operation_timeout=60))
        eventually(lambda: led(admin.list_topics(name, timeout=30), [name], 8), "led", 60)
        settings = {"bootstrap.servers": cluster.bootstrap, "batch.size": 900_000, "linger.ms": 20, "acks": "1"}
        producer = Producer({**settings, "queue.buffering.max.kbytes": 200_000})
        value = os.urandom(100_000)
        for n in range(int(gigabytes * 10_000)):
            while True:
                try:
                    producer.produce(name, value, partition=n % 8)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(300)

    once(cluster, name, fill)
    now = cluster.describe(name)
    target = (1,) if now[0].replicas == [0] else (0,)
    moves = [Move(TopicPartition(name, p), tuple(found.replicas), target) for p, found in sorted(now.items())]
    client = client_of(cluster)
    try:
        book = ThrottleBook(client, MemoryRecords(), RealPause())
        if throttle:
            book.hold("bench", moves, throttle)
        cpu, begun = cpu_s(cluster), time.perf_counter()
        refused = {tp: said for tp, said in client.alter_reassignments({m.tp: m.target for m in moves}).items() if said}
        assert not refused, refused
        eventually(lambda: not client.list_reassignments(), "moved", 900)
        taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
        book.release("bench")
    finally:
        client.close()
    # The broker that is asked hears of the last change after the controller has made it.
    eventually(lambda: {tuple(found.replicas) for found in cluster.describe(name).values()} == {target}, "told", 60)
    return {"MB/s": gigabytes * 1000 / taken, "CPU s per GB": used / gigabytes}


def client_of(cluster: RealCluster) -> KafkaClusterClient:
    return KafkaClusterClient(
        ClusterSettings.read(cluster.bootstrap, {"request_timeout_s": 60, "total_timeout_s": 120})
    )
