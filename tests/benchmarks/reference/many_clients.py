"""Rows of many clients that each ask for little: a trickle of records, groups, metadata, offsets by time.

Their requests are bare, so that the time is the brokers': librdkafka in a thousand processes would be most of it.
"""

import selectors
import socket
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from logyard.broker.protocol import codec
from logyard.broker.records import batch
from tests.benchmarks import frames, harness
from tests.benchmarks.reference.group import JOIN_GROUP, SYNC_GROUP, VERSIONS, Wire, coordinator
from tests.benchmarks.reference.measure import Measured, broker_processes, cpu_s
from tests.benchmarks.reference.moves import once
from tests.benchmarks.reference.reading import leader_of
from tests.benchmarks.reference.rows import create, led, topic, wait
from tests.support.real_cluster import RealCluster, eventually

LIST_OFFSETS, OFFSET_COMMIT, HEARTBEAT = 2, 8, 12
WIRE_VERSIONS = {**VERSIONS, LIST_OFFSETS: 5, OFFSET_COMMIT: 7, HEARTBEAT: 3}
TIMED, RECORDS_OF_A_BATCH, BATCHES = "timed", 10, 20_000
FIRST_MS = 1_700_000_000_000
BLOCK = 1 << 20
FLOOR = "floor: bare servers, p99 ms"


def trickle(cluster: RealCluster, *, producers: int = 1000, a_second: int = 10, seconds: int = 4) -> Measured:
    """So many connections, each with ten records of 200 bytes a second, one a request, acks=1, evenly spread.

    Their floor is what the same client sees of three servers that do the bare work.
    """
    count, every_second = producers * a_second * seconds, producers * a_second
    with topic(cluster, 6, 1) as name:
        servers = [leader_of(cluster, name, partition) for partition in range(6)]
        sent_frames = [frames.produce(200, 1, topic=name, partition=partition) for partition in range(6)]
        with _connected(servers, producers) as links:
            cpu = cpu_s(cluster)
            taken = _paced(links, sent_frames, count, every_second)
            used = cpu_s(cluster) - cpu
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        bare = [stack.enter_context(harness.bare_server(Path(home, str(n)))) for n in range(3)]
        floor = _paced(stack.enter_context(_connected(bare, producers)), [frames.produce(200, 1)], count, every_second)
    return {
        "p50 ms": harness.percentile(taken, 0.5) * 1000,
        "p99 ms": harness.percentile(taken, 0.99) * 1000,
        FLOOR: harness.percentile(floor, 0.99) * 1000,
        "CPU µs each": used / count * 1e6,
    }


@contextmanager
def _connected(servers: Sequence[harness.Server], count: int) -> Iterator[list[socket.socket]]:
    """So many connections to these servers in turn."""
    with ExitStack() as stack:
        links = []
        for number in range(count):
            server = servers[number % len(servers)]
            links.append(stack.enter_context(socket.create_connection((server.host, server.port))))
            links[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield links


def _paced(links: Sequence[socket.socket], requests: Sequence[bytes], count: int, a_second: int) -> list[float]:
    """Send `count` requests at that pace, link after link; seconds from each one's sending to its answer.

    Not from the time when it is due: the sender waits for answers a millisecond at a time, so that it is the later the
    fewer it still waits for. It does not wait for one link's answer before it sends by another.
    """
    selector = selectors.DefaultSelector()
    sent: dict[socket.socket, list[float]] = {link: [] for link in links}
    for link in links:
        selector.register(link, selectors.EVENT_READ)
    taken: list[float] = []
    begun, number, deadline = time.perf_counter(), 0, time.perf_counter() + count / a_second + 60
    while len(taken) < count and time.perf_counter() < deadline:
        now = time.perf_counter()
        while number < count and begun + number / a_second <= now:
            link = links[number % len(links)]
            sent[link].append(time.perf_counter())
            link.sendall(requests[number % len(links) % len(requests)])
            number += 1
        for key, _ in selector.select(0.001):
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            _take(peer, sent[peer], taken)
    selector.close()
    assert len(taken) == count, f"{len(taken)} of {count} answers"
    return taken


def _take(link: socket.socket, sent: list[float], taken: list[float]) -> None:
    """Take what has come; every answer to the same request has the same size and comes whole, as small as it is."""
    data = link.recv(65536)
    assert data, "the broker closed a connection"
    at, now = 0, time.perf_counter()
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4 + size
        taken.append(now - sent.pop(0))
    assert at == len(data), "half an answer"


def groups(cluster: RealCluster, *, count: int = 1000, rounds: int = 5) -> Measured:
    """So many groups of one member: each sends a heartbeat and a commit, all at once, a few times over."""
    with topic(cluster, 6, 3) as name:
        made = [_Alone(cluster, f"alone-{uuid.uuid4().hex[:8]}") for _ in range(count)]
        try:
            _each(made, JOIN_GROUP, lambda one: one.join)
            _each(made, JOIN_GROUP, lambda one: one.join)
            _each(made, SYNC_GROUP, lambda one: one.sync)
            _each(made, HEARTBEAT, lambda one: one.member)
            cpu, begun = cpu_s(cluster), time.perf_counter()
            for _ in range(rounds):
                _each(made, HEARTBEAT, lambda one: one.member)
            beats, used_by_beats = time.perf_counter() - begun, cpu_s(cluster) - cpu
            cpu, begun = cpu_s(cluster), time.perf_counter()
            for _ in range(rounds):
                _each(made, OFFSET_COMMIT, lambda one: one.commit(name))
            commits, used_by_commits = time.perf_counter() - begun, cpu_s(cluster) - cpu
        finally:
            for one in made:
                one.wire.close()
    asked = count * rounds
    return {
        "heartbeats/s": asked / beats,
        "CPU µs a heartbeat": used_by_beats / asked * 1e6,
        "commits/s": asked / commits,
        "CPU µs a commit": used_by_commits / asked * 1e6,
    }


class _Alone:
    """One member that is a group of its own."""

    def __init__(self, cluster: RealCluster, name: str) -> None:
        self.wire = Wire(*coordinator(cluster, name))
        self.group, self.id, self.generation = name, "", -1

    @property
    def member(self) -> dict[str, Any]:
        named = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return {**named, "group_instance_id": None}

    @property
    def join(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": self.id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0" * 60}],
        }

    @property
    def sync(self) -> dict[str, Any]:
        return {**self.member, "assignments": [{"member_id": self.id, "assignment": b"\0" * 60}]}

    def commit(self, topic_name: str) -> dict[str, Any]:
        offsets = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        whose = {**self.member, "generation_id_or_member_epoch": self.generation}
        return {**whose, "topics": [{"name": topic_name, "partitions": [offsets]}]}

    def learn(self, api_key: int, told: Any) -> None:
        """Keep what an answer says; any error but the first, which gives the id, fails the row."""
        if api_key == JOIN_GROUP:
            self.id, self.generation = told.member_id, told.generation_id
            assert told.error_code in (0, 79), told  # MEMBER_ID_REQUIRED
        elif api_key == OFFSET_COMMIT:
            assert told.topics[0].partitions[0].error_code == 0, told
        else:
            assert told.error_code == 0, told


def _each(made: Sequence[_Alone], api_key: int, fields: Callable[[_Alone], Mapping[str, Any]]) -> None:
    for one in made:
        one.wire.send(bytes(codec.encode_request(api_key, WIRE_VERSIONS[api_key], 1, "bench", fields(one))))
    for one in made:
        one.learn(api_key, codec.decode_response(api_key, WIRE_VERSIONS[api_key], memoryview(one.wire.answer()))[1])


def metadata_rush(cluster: RealCluster, *, topics: int = 10_000, clients: int = 1000) -> Measured:
    """Every client asks the same broker for the metadata of all topics at once; until the last has it all."""

    def make() -> None:
        admin = cluster.admin()
        for at in range(0, topics, 500):
            names = [f"crowded-of-{topics}-{n:05}" for n in range(at, min(topics, at + 500))]
            wait(admin.create_topics([NewTopic(each, 1, 1) for each in names], operation_timeout=100))
            eventually(lambda names=names: led(admin.list_topics(timeout=30), names, 1), "all led", 100)

    once(cluster, f"crowded-{topics}", make)
    (process, *_), (address, *_) = broker_processes(cluster), cluster.bootstrap.split(",")
    host, _, port = address.partition(":")
    links = [socket.create_connection((host, int(port))) for _ in range(clients)]
    cpu, begun, most = cpu_s(cluster), time.perf_counter(), 0
    asked = frames.metadata()
    owed = dict.fromkeys(links, -1)
    received = 0
    with selectors.DefaultSelector() as selector:
        for link in links:
            selector.register(link, selectors.EVENT_READ)
            link.sendall(asked)
        while owed:
            for key, _ in selector.select(60):
                peer = key.fileobj
                assert isinstance(peer, socket.socket)
                data = peer.recv(BLOCK)
                assert data, "the broker closed a connection"
                received += len(data)
                left = owed[peer]
                owed[peer] = (struct.unpack_from(">i", data)[0] + 4 if left < 0 else left) - len(data)
                if owed[peer] == 0:
                    del owed[peer]
                    selector.unregister(peer)
            most = max(most, process.memory_info().rss)
    taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
    for link in links:
        link.close()
    return {"s": taken, "CPU s": used, "answers MB": received / 1e6, "resident MB at most": most / 1e6}


def lookups(cluster: RealCluster, *, count: int = 6000) -> Measured:
    """ListOffsets by time: 20,000 batches of ten records, a second apart; one request after the other."""

    def make() -> None:
        create(cluster, TIMED, 1, 1, retention_ms="-1")
        wire = harness.Wire(leader_of(cluster, TIMED))
        for number in range(BATCHES):
            wire.exchange(_timed(number), 1)
        wire.close()

    once(cluster, TIMED, make)
    wire = harness.Wire(leader_of(cluster, TIMED))
    version = WIRE_VERSIONS[LIST_OFFSETS]
    places = [n * 7919 % BATCHES for n in range(count)]
    asked = [_at(FIRST_MS + place * 1000) for place in places]
    cpu, begun = cpu_s(cluster), time.perf_counter()
    answers = [wire.ask(each) for each in asked]
    taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
    wire.close()
    for place, said in zip(places, answers, strict=True):
        found = codec.decode_response(LIST_OFFSETS, version, memoryview(said))[1].topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, place * RECORDS_OF_A_BATCH), (place, found)
    return {"requests/s": count / taken, "CPU µs each": used / count * 1e6}


def _timed(number: int) -> bytes:
    records = [batch.Record(n, FIRST_MS + number * 1000 + n, None, b"x" * 100) for n in range(RECORDS_OF_A_BATCH)]
    part = {"index": 0, "records": bytes(batch.build(records))}
    tree = {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": TIMED, "partition_data": [part]}]}
    return bytes(codec.encode_request(frames.PRODUCE, 9, 1, "bench", tree))


def _at(timestamp_ms: int) -> bytes:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TIMED, "partitions": [partition]}]}
    return bytes(codec.encode_request(LIST_OFFSETS, WIRE_VERSIONS[LIST_OFFSETS], 1, "bench", fields))
