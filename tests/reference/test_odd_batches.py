"""The same odd Produce requests to Apache Kafka and to ours: the same answers, and the same bytes on disk."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.protocol import codec
from logyard.broker.records import batch
from logyard.broker.records.decompression_stream import pieces
from tests.support import kafka
from tests.support.odd_batches import UNREADABLE, Odd, requests
from tests.support.real_cluster import RealCluster, eventually

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "gzipped": {"compression_type": "gzip"},
    "unpacked": {"compression_type": "uncompressed"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "bounded": {"message_timestamp_before_max_ms": "3600000", "message_timestamp_after_max_ms": "3600000"},
    "short": {"max_message_bytes": "300"},
}
# Where Kafka writes records anew it drops their attributes and what is not UTF-8 in a header's name; ours keeps them.
MADE_ANEW = ("gzipped", "unpacked")
COUNT = int(os.environ.get("LOGYARD_ODD_BATCHES", "4000"))
SEED = int(os.environ.get("LOGYARD_ODD_SEED", "1"))


@dataclass(frozen=True)
class Answer:
    """What a broker says to one request; `closed` where it ends the connection."""

    error: int
    base_offset: int
    record_errors: tuple[int, ...] = ()
    closed: bool = False
    message: str | None = None

    def compared(self) -> tuple[object, ...]:
        return self.error, self.base_offset, self.record_errors, self.closed


# Which fault of several is found first depends on who reads what when; all of these say that the batch is no good.
SHORT = "longer -40"  # less than a header, which is a fault of its own
NO_GOOD = {-1, 2, 10, 76, 87}


def alike(odd: Odd, expected: Answer, got: Answer) -> bool:
    if odd.topic == UNREADABLE:
        return not got.closed
    if (odd.faults > 1 or SHORT in odd.what) and {expected.error, got.error} <= NO_GOOD:
        return expected.closed == got.closed
    return expected.compared() == got.compared()


class Producer:
    """One connection to a broker, opened again when the broker closes it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._sock: socket.socket | None = None

    def ask(self, frame: bytes, version: int) -> Any:
        if self._sock is None:
            self._sock = socket.create_connection(self._address, timeout=30)
        self._sock.sendall(frame)
        return codec.decode_response(0, version, memoryview(self._whole()))[1]

    def send(self, odd: Odd) -> Answer:
        partition = {"index": 0, "records": odd.records}
        topic = {"name": odd.topic, "partition_data": [partition]}
        fields = {"transactional_id": None, "acks": 1, "timeout_ms": 5000, "topic_data": [topic]}
        try:
            answer = self.ask(codec.encode_request(0, odd.version, 1, "odd", fields), odd.version)
        except ConnectionError:
            if self._sock is not None:
                self._sock.close()
            self._sock = None
            return Answer(-1, -1, closed=True)
        found = answer.responses[0].partition_responses[0]
        errors = getattr(found, "record_errors", None) or ()
        numbers = tuple(error.batch_index for error in errors)
        return Answer(found.error_code, found.base_offset, numbers, message=getattr(found, "error_message", None))

    def _whole(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        assert self._sock is not None
        found = b""
        while len(found) < size:
            more = self._sock.recv(size - len(found))
            if not more:
                raise ConnectionError
            found += more
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealCluster, RealCluster]]:
    """A broker of Apache Kafka's and one of ours, each with a ZooKeeper of its own."""
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("odd")
    with kafka.running(home / "kafka", "K") as theirs, kafka.running(home / "ours", "O") as ours:
        yield theirs, ours


def test_answers_and_bytes_on_disk_are_those_of_kafka(both: tuple[RealCluster, RealCluster]) -> None:
    for cluster in both:
        for name, config in {**TOPICS, UNREADABLE: {}}.items():
            cluster.create(name, 1, 1, **config)
            eventually(lambda c=cluster, n=name: c.isrs_full(n), "the topic is led")
    theirs, ours = (Producer(cluster.bootstrap) for cluster in both)
    differing = []
    for odd in requests(SEED, COUNT, TOPICS, int(time.time() * 1000)):
        expected, got = theirs.send(odd), ours.send(odd)
        if not alike(odd, expected, got):
            differing.append((odd.what, expected, got))
    report = [f"{what}\n    kafka {expected}\n    ours  {got}" for what, expected, got in differing]
    assert not report, f"{len(report)} of {COUNT} differ\n" + "\n".join(report)
    for name in TOPICS:
        assert stored(both[1], name) == stored(both[0], name), name


def test_a_partition_that_a_request_names_twice(both: tuple[RealCluster, RealCluster]) -> None:
    """It is answered once, and what is said of it last counts."""
    kept = []
    for cluster in both:
        for name in ("twice", "beside"):
            cluster.create(name, 2, 1)
            eventually(lambda c=cluster, n=name: c.isrs_full(n), "the topic is led")
        made = [batch.build([batch.Record(n, 1, None, b"v") for n in range(count)]) for count in (1, 2, 3)]
        parts = [{"index": index, "records": bytes(made[n])} for n, index in enumerate((0, 1, 0))]
        topics = [{"name": "twice", "partition_data": parts}, {"name": "beside", "partition_data": parts[:1]}]
        fields = {"transactional_id": None, "acks": 1, "timeout_ms": 5000, "topic_data": topics}
        answer = Producer(cluster.bootstrap).ask(codec.encode_request(0, 9, 1, "odd", fields), 9)
        told = {
            topic.name: sorted((p.index, p.error_code, p.base_offset) for p in topic.partition_responses)
            for topic in answer.responses
        }
        assert told == {"twice": [(0, 0, 0), (1, 0, 0)], "beside": [(0, 0, 0)]}
        kept.append([[found[6] for found in stored(cluster, "twice", index)] for index in (0, 1)])
    assert kept[0] == kept[1] == [[2], [1]], "the last offset delta of each batch"


def readable(record: batch.Record) -> batch.Record:
    headers = tuple((name.encode(errors="surrogateescape").decode(errors="replace"), v) for name, v in record.headers)
    return record._replace(headers=headers)


def stored(cluster: RealCluster, topic: str, partition: int = 0) -> list[tuple[Any, ...]]:
    """The batches of the topic's segment; what the two cannot have alike (codecs' bytes, clocks) is made so."""
    (directory,) = cluster.replica_dirs(topic, partition).values()
    data = memoryview(b"".join(path.read_bytes() for path in sorted(Path(directory).glob("*.log"))))
    found = []
    for at, header in batch.iter_headers(data):
        assert batch.crc_matches(data, at, header)
        body: Any = b"".join(map(bytes, pieces(header.compression, data[at + 61 : at + header.length])))
        if topic in MADE_ANEW:
            body = [readable(record) for record in batch.records(data, at)]
        header = header._replace(length=0, crc=0)
        if topic == "stamped":
            header = header._replace(max_timestamp=0)
        found.append((*header, body))
    return found
