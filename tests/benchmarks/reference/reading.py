"""Rows of reading in which the broker works more than the client: kcat, bare requests, a new replica, old clients."""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from confluent_kafka import Producer

from logyard.broker.model import TopicPartition
from tests.benchmarks import frames, harness
from tests.benchmarks.reference import bare_senders, kcat
from tests.benchmarks.reference.cost import Meter
from tests.benchmarks.reference.measure import Measured, Steps, cpu_s
from tests.benchmarks.reference.moves import client_of, once
from tests.benchmarks.reference.rows import create, pour, topic
from tests.support.real_cluster import RealCluster, eventually

PARTITIONS = 6
READS = 5
"""Readings of a run of many readers."""
SMALL, SMALL_FETCHES, CONNECTIONS = "small-batches", 10_000, 10
GROWING = "growing"
OLD, OLD_VERSION, OLD_BATCHES, OLD_RECORDS = "old-readers", 2, 2000, 16


def many_readers(cluster: RealCluster, *, readers: int, megabytes: int = 600, cold: bool = False) -> Steps:
    """`readers` processes of kcat (librdkafka in C, nothing decoded or printed) read one topic of 1 KiB records.

    `megabytes` are what all of them receive together, READS times. `cold`: none of it is in the page cache when they
    begin; without it, the floor is what bare senders of the same files take. Yields before each time.
    """
    each = megabytes // readers
    name = f"read-{each}"
    once(cluster, name, lambda: fill(cluster, name, each))
    options = ["-X", "fetch.message.max.bytes=1048576"]
    prepare = partial(forget_pages, cluster, name) if cold else lambda: None
    read = yield from kcat.in_steps(cluster, [*kcat.command(cluster, name), *options], READS, readers, prepare)
    amount = each * readers
    found = {
        "MB/s": amount / read.seconds,
        "CPU s per GB": read.brokers_s / amount * 1000,
        "client's CPU s per GB": read.own_s / amount * 1000,
    }
    if cold:
        return found
    with bare_senders.running(cluster, name) as bare:
        words = [*kcat.command(cast(RealCluster, bare), name), *options]
        least = yield from kcat.in_steps(cast(RealCluster, bare), words, READS, readers)
    return {
        **found,
        "floor: bare senders, CPU s per GB": least.brokers_s / amount * 1000,
        "floor: their clients' CPU s per GB": least.own_s / amount * 1000,
    }


def fill(cluster: RealCluster, name: str, megabytes: int, *, size: int = 1024, replicas: int = 1) -> None:
    """Make a topic of six partitions and put that much into it, in batches of a producer's usual size."""
    create(cluster, name, PARTITIONS, replicas)
    settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "batch.size": 16_384, "acks": "1"}
    value = os.urandom(size)
    producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
    pour(producer, name, itertools.repeat(value, megabytes * 1_000_000 // size), together=100)


def forget_pages(cluster: RealCluster, name: str) -> None:
    """Have the system write a topic's files out and drop them from its page cache."""
    for broker in cluster.description["brokers"]:
        for file in (cluster.directory / f"broker-{broker['id']}").rglob(f"{name}-*/*"):
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def catch_up(cluster: RealCluster, *, megabytes: int = 600) -> Measured:
    """Six partitions of 1 KiB records get a second replica: from the request until it is in sync, then it goes again.

    CPU seconds of all brokers, the leaders' and the followers' part together.
    """
    once(cluster, GROWING, lambda: fill(cluster, GROWING, megabytes))
    now = cluster.describe(GROWING)
    wider = {TopicPartition(GROWING, p): (found.leader, (found.leader + 1) % 3) for p, found in now.items()}
    narrower = {tp: replicas[:1] for tp, replicas in wider.items()}
    client = client_of(cluster)
    try:
        meter, begun = Meter(cluster), time.perf_counter()
        for target in (wider, narrower):
            refused = {tp: said for tp, said in client.alter_reassignments(target).items() if said}
            assert not refused, refused
            eventually(lambda: not client.list_reassignments(), "moved", 300)
            if target is wider:
                taken, cost = time.perf_counter() - begun, meter.figures(megabytes)
    finally:
        client.close()
    eventually(lambda: all(len(p.replicas) == 1 for p in cluster.describe(GROWING).values()), "one replica again")
    return {"MB/s": megabytes / taken, **cost}


def small_fetches(cluster: RealCluster) -> Measured:
    """Fetches of one batch of 200 bytes each, at changing offsets, ten connections with one request each."""
    count = 10_000

    def make() -> None:
        create(cluster, SMALL, 1, 1)
        wire = harness.Wire(leader_of(cluster, SMALL))
        wire.exchange(frames.produce(200, 1, topic=SMALL), count)
        wire.close()

    once(cluster, SMALL, make)
    found, size = _ask_by_turns(leader_of(cluster, SMALL), count)
    with _bare(size) as bare:
        floor, _ = _ask_by_turns(bare, count)
    return {**found, **{f"floor: a bare server, {figure}": value for figure, value in floor.items()}}


def _ask_by_turns(server: harness.Server, count: int) -> tuple[Measured, int]:
    """Fetch one batch of `count` after the other by that many connections, in no order; also the size of an answer."""
    wires = [harness.Wire(server) for _ in range(CONNECTIONS)]
    asked = [frames.fetch(n * 7919 % count, 100, topic=SMALL) for n in range(SMALL_FETCHES)]
    cpu, begun, size = server.cpu_s(), time.perf_counter(), 0
    for at in range(0, SMALL_FETCHES, CONNECTIONS):
        for wire, frame in zip(wires, asked[at:], strict=False):
            wire.send(frame)
        for wire in wires:
            size = len(wire.answer())
            assert size > 200, "an answer without the batch"
    taken, used = time.perf_counter() - begun, server.cpu_s() - cpu
    for wire in wires:
        wire.close()
    return {"requests/s": SMALL_FETCHES / taken, "CPU µs each": used / SMALL_FETCHES * 1e6}, size


@contextmanager
def _bare(size: int) -> Iterator[harness.Server]:
    """A server that answers each Fetch with so many bytes of a file, whatever was asked."""
    with tempfile.TemporaryDirectory(prefix="logyard-bare-") as home:
        file = Path(home, "file")
        file.write_bytes(os.urandom(size))
        with harness.bare_server(file, size) as server:
            yield server


def converted(cluster: RealCluster) -> Measured:
    """Fetch v2 of batches of sixteen records of 1 KB, 256 KB at a time: the broker makes messages of format v1 of them.

    The MB are those that it sends. The floor is a server that sends as many bytes, and converts nothing.
    """

    def make() -> None:
        create(cluster, OLD, 1, 1)
        wire = harness.Wire(leader_of(cluster, OLD))
        wire.exchange(frames.produce(1000, OLD_RECORDS, topic=OLD), OLD_BATCHES)
        wire.close()

    once(cluster, OLD, make)
    found, size = _ask_all(leader_of(cluster, OLD))
    with _bare(size) as bare:
        floor, _ = _ask_all(bare)
    return {**found, **{f"floor: a bare server, {figure}": value for figure, value in floor.items()}}


def _ask_all(server: harness.Server) -> tuple[Measured, int]:
    """Read all batches as old clients do, one request after the other; also the size of an answer."""
    wire, sent, size = harness.Wire(server), 0, 0
    cpu, begun = server.cpu_s(), time.perf_counter()
    for number in range(0, OLD_BATCHES, OLD_RECORDS):
        size = len(wire.ask(frames.fetch(number * OLD_RECORDS, 256 << 10, topic=OLD, version=OLD_VERSION)))
        assert size > 200_000, f"{size} bytes"
        sent += size
    taken, used = time.perf_counter() - begun, server.cpu_s() - cpu
    wire.close()
    return {"MB/s": sent / 1e6 / taken, "CPU s per GB": used / sent * 1e9}, size


def leader_of(cluster: RealCluster, name: str, partition: int = 0) -> harness.Server:
    """Where that partition's leader serves."""
    led_by = cluster.describe(name)[partition].leader
    each = next(each for each in cluster.description["brokers"] if each["id"] == led_by)
    return harness.Server(each["pid"], each["host"], each["port"])


def recompressed(cluster: RealCluster, *, codec: str, megabytes: int = 100) -> Measured:
    """A producer that does not compress, a topic that does: the broker opens no batch, but packs each anew."""
    # Repeated within what a codec looks back at.
    values = [os.urandom(512).hex().encode() for _ in range(16)]
    with topic(cluster, PARTITIONS, 1, compression_type=codec) as name:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "linger.ms": 5,
                "acks": "1",
                "queue.buffering.max.messages": 200_000,
            }
        )
        cpu, begun = cpu_s(cluster), time.perf_counter()
        pour(producer, name, itertools.islice(itertools.cycle(values), megabytes * 1_000_000 // 1024))
        taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
        assert _stored(cluster, name) < 0.8 * megabytes * 1e6, "the broker did not compress"
    return {"MB/s": megabytes / taken, "CPU s per GB": used / megabytes * 1000}


def _stored(cluster: RealCluster, name: str) -> int:
    found = [cluster.replica_dirs(name, partition) for partition in range(PARTITIONS)]
    return sum(file.stat().st_size for each in found for folder in each.values() for file in folder.glob("*.log"))
