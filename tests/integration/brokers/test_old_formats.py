"""Produce v0 to v2 and Fetch v0 to v4 in frames of our own: what old clients wrote, old and new clients read."""

import asyncio
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from tests.support.inside_broker import InsideBroker
from tests.support.real_cluster import RealCluster, eventually

NOW = int(time.time() * 1000)
RECORDS = [(NOW + n, b"key-%d" % n, b"value-%d" % n * 20) for n in range(30)]
UNSUPPORTED_VERSION, CORRUPT_MESSAGE = 35, 2


class OneBroker(RealCluster):
    """A broker in this process, with ZooKeeper in memory, behind a real socket."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._clients, self._admins = {}, {}

    @property
    def bootstrap(self) -> str:
        return self._address


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    ports: list[int] = []
    started, ended = threading.Event(), threading.Event()

    async def run() -> None:
        async with InsideBroker(tmp_path_factory.mktemp("broker")) as inside:
            ports.append(inside.port)
            while inside.components.metadata.controller_id < 0:
                await asyncio.sleep(0.01)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert started.wait(30)
        yield OneBroker(ports[0])
    finally:
        ended.set()
        thread.join(30)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class OldClient:
    """One connection, for partition 0 of a topic; every request is written out byte by byte."""

    def __init__(self, broker: OneBroker, topic: str) -> None:
        eventually(lambda: broker.describe(topic)[0].leader >= 0, "a leader")
        host, _, port = broker.bootstrap.rpartition(":")
        self.topic = topic
        self._sock = socket.create_connection((host, int(port)), timeout=20)

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhi", api, version, 5) + text("old") + body
        self._sock.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        assert answer[:4] == struct.pack(">i", 5)
        return answer[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._sock.recv(size - len(data))
            assert piece, "the connection was closed"
            data += piece
        return data

    def produce(self, version: int, records: bytes) -> tuple[int, int]:
        """Returns error code and base offset."""
        entry = struct.pack(">ii", 0, len(records)) + records
        body = struct.pack(">hii", -1, 10_000, 1) + text(self.topic) + struct.pack(">i", 1) + entry
        answer = self.ask(0, version, body)
        at = 4 + 2 + len(self.topic) + 4 + 4
        error, base = struct.unpack_from(">hq", answer, at)
        assert len(answer) == at + 10 + (8 if version >= 2 else 0) + (4 if version >= 1 else 0)
        return error, base

    def fetch(self, version: int, offset: int) -> tuple[int, bytes]:
        """Returns error code and records."""
        head = struct.pack(">iii", -1, 100, 1)
        head += struct.pack(">i", 1 << 20) if version >= 3 else b""
        head += b"\0" if version >= 4 else b""
        body = head + struct.pack(">i", 1) + text(self.topic) + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
        answer = self.ask(1, version, body)
        at = (4 if version >= 1 else 0) + 4 + 2 + len(self.topic) + 4
        _, error, _ = struct.unpack_from(">ihq", answer, at)
        at += 14 + (8 + 4 if version >= 4 else 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return error, answer[at + 4 : at + 4 + max(0, size)]


def message_set(magic: int, codec: int) -> bytes:
    made = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, (timestamp, key, value) in enumerate(RECORDS):
        made.append(number, timestamp=timestamp, key=key, value=value)
    return bytes(made.build())


def read(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """Opened by code that is not ours."""
    found = []
    batches = MemoryRecords(data)
    while batches.has_next():
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batches.next_batch()]
    return found


@pytest.mark.parametrize("codec", [0, 1, 2])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_what_old_producers_write_everybody_reads(broker: OneBroker, version: int, magic: int, codec: int) -> None:
    topic = f"old-{uuid.uuid4().hex[:8]}"
    broker.create(topic, 1, 1)
    client = OldClient(broker, topic)
    assert client.produce(version, message_set(magic, codec)) == (0, 0)
    assert client.produce(version, message_set(magic, codec)) == (0, 30)
    broken = bytearray(message_set(magic, codec))
    broken[-1] ^= 1
    assert client.produce(version, bytes(broken))[0] == CORRUPT_MESSAGE
    new = broker.consume(topic, 60)
    assert [(m.offset(), m.key(), m.value()) for m in new] == [(n, *RECORDS[n % 30][1:]) for n in range(60)]
    for fetch_version in range(5):
        expected = [
            (n, timestamp if magic and fetch_version >= 2 else None, key, value)
            for n in range(60)
            for timestamp, key, value in [RECORDS[n % 30]]
        ]
        error, data = client.fetch(fetch_version, 0)
        found = read(data)
        assert (error, len(found)) == (0, 60)
        assert data[16] == (0 if fetch_version < 2 else 1 if fetch_version < 4 else 2), "the format they read"
        if fetch_version < 4:
            assert found == expected
        else:
            assert [(r[0], r[2], r[3]) for r in found] == [(e[0], e[2], e[3]) for e in expected]


def test_a_topic_may_forbid_conversion_for_old_consumers(broker: OneBroker) -> None:
    topic = f"strict-{uuid.uuid4().hex[:8]}"
    broker.create(topic, 1, 1, message_downconversion_enable="false")
    broker.produce(topic, [(b"k", b"v")])
    client = OldClient(broker, topic)
    assert [client.fetch(version, 0)[0] for version in range(5)] == [UNSUPPORTED_VERSION] * 4 + [0]
