"""What it costs at least to send a topic's records from its files: bare processes that know nothing else.

They answer ApiVersions, Metadata, ListOffsets and Fetch of one topic for kcat: no rights, quotas, sessions, leadership,
or look at what is in memory. So a row of `consume` has the floor of the same run, for the same client and files. Their
rate says nothing, since what they answer at the end of a partition is late:

    python -m tests.benchmarks.reference.bare_senders NUMBER PORTS TOPIC FILE...

is the broker of that number; the brokers of PORTS (three, with commas) lead the files' partitions in turn.
"""

import asyncio
import contextlib
import os
import select
import socket
import struct
import sys
from bisect import bisect_right
from pathlib import Path
from typing import Any

import uvloop

from tests.benchmarks.reference.bare_brokers import (
    API_VERSIONS,
    FETCH,
    HOST,
    METADATA,
    PARTITIONS,
    PRODUCE,
    Answers,
    BareCluster,
    Connection,
    free_ports,
    started,
)
from tests.support.real_cluster import RealCluster

LIST_OFFSETS, BROKERS = 2, 3
OFFERED = {
    PRODUCE: (3, 3),  # never sent: librdkafka asks for batches of format v2 only who takes them, too
    FETCH: (4, 4),
    LIST_OFFSETS: (1, 1),
    METADATA: (0, 8),
    API_VERSIONS: (0, 3),
}
LATEST = -1
NOTHING_NEW_S = 0.01
SEND_BUFFER_BYTES = 163_840  # socket.send.buffer.bytes, as our brokers have it
_BATCH = struct.Struct(">qi4xb6xi")
_ASKED = struct.Struct(">iqi")  # of a partition: its number, the offset, at most so many bytes
_SIZE, _SHORT, _COUNT = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">i")
_HEAD = struct.Struct(">iii")  # the correlation id, the throttle time, the topics
_PARTITION = struct.Struct(">ihqqii")  # number, error, high watermark, last stable offset, aborted, size of the records


class Log:
    """One partition's file, and where each batch begins in it."""

    def __init__(self, path: Path) -> None:
        self.fd, data = os.open(path, os.O_RDONLY), path.read_bytes()
        self.offsets: list[int] = []
        self.positions: list[int] = []
        position = self.end = 0
        while position + _BATCH.size <= len(data):
            base, length, _, delta = _BATCH.unpack_from(data, position)
            if length <= 0:
                break  # not written yet
            self.offsets.append(base)
            self.positions.append(position)
            self.end, position = base + delta + 1, position + length + 12
        self.size = position

    def place(self, offset: int, most: int) -> tuple[int, int]:
        """Position and size of what answers; the last batch may be incomplete, as with Kafka."""
        if offset >= self.end:
            return self.size, 0
        position = self.positions[max(bisect_right(self.offsets, offset) - 1, 0)]
        return position, min(most, self.size - position)


class Sender(Connection):
    """One client's connection."""

    def __init__(self, answers: Answers, topic: str, logs: list[Log]) -> None:
        super().__init__(answers)
        self._topic, self._logs = topic.encode(), logs

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket.close()

    def frame_received(self, frame: bytes) -> None:
        if _SHORT.unpack_from(frame)[0] == FETCH:
            self._fetch(frame)
        else:
            super().frame_received(frame)

    def _fetch(self, frame: bytes) -> None:
        """Answer version 4: behind the header (a client's id) are 17 bytes, one topic and its partitions."""
        correlation = _SIZE.unpack_from(frame, 4)[0]
        at = 10 + max(_SHORT.unpack_from(frame, 8)[0], 0) + 17
        wanted = []
        if _COUNT.unpack_from(frame, at)[0]:
            at += 4 + 2 + len(self._topic)
            for n in range(_COUNT.unpack_from(frame, at)[0]):
                partition, offset, most = _ASKED.unpack_from(frame, at + 4 + n * _ASKED.size)
                wanted.append((partition, *self._logs[partition].place(offset, most)))
        if sum(size for _, _, size in wanted):
            self._answer(correlation, wanted)
        else:
            asyncio.get_running_loop().call_later(NOTHING_NEW_S, self._answer, correlation, wanted)

    def _answer(self, correlation: int, wanted: list[tuple[int, int, int]]) -> None:
        if self._transport.is_closing():
            return
        head = _HEAD.pack(correlation, 0, 1) + _SHORT.pack(len(self._topic)) + self._topic + _COUNT.pack(len(wanted))
        whole = len(head) + sum(_PARTITION.size + size for _, _, size in wanted)
        with contextlib.suppress(OSError):  # the client has gone
            self._send(_SIZE.pack(whole) + head, more=bool(wanted))
            for partition, position, size in wanted:
                log = self._logs[partition]
                self._send(_PARTITION.pack(partition, 0, log.end, log.end, -1, size), more=True)
                self._send_file(log.fd, position, size)

    def _send(self, data: bytes, *, more: bool) -> None:
        while data:
            try:
                data = data[self._socket.send(data, socket.MSG_MORE if more else 0) :]
            except BlockingIOError:
                select.select([], [self._socket], [], 10)

    def _send_file(self, fd: int, position: int, size: int) -> None:
        while size:
            try:
                sent = os.sendfile(self._socket.fileno(), fd, position, size)
            except BlockingIOError:
                select.select([], [self._socket], [], 10)
                continue
            position, size = position + sent, size - sent


class OffsetAnswers(Answers):
    """What is not Fetch."""

    offered = OFFERED

    def __init__(self, number: int, at: list[int], logs: list[Log]) -> None:
        super().__init__(number, at)
        self._logs = logs
        self._by_key[LIST_OFFSETS] = self._offsets

    def _offsets(self, body: Any) -> dict[str, Any]:
        def of(p: Any) -> dict[str, Any]:
            offset = self._logs[p.partition_index].end if p.timestamp == LATEST else 0
            return {"partition_index": p.partition_index, "error_code": 0, "timestamp": -1, "offset": offset}

        return {"topics": [{"name": t.name, "partitions": [of(p) for p in t.partitions]} for t in body.topics]}


def running(cluster: RealCluster, topic: str) -> contextlib.AbstractContextManager[BareCluster]:
    """Start three that send this topic's records from the files of the cluster's brokers; stop them at the end."""
    files = [str(next(cluster.directory.rglob(f"{topic}-{n}/*.log"))) for n in range(PARTITIONS)]
    return started(__spec__.name, free_ports(BROKERS), topic, *files)


async def serve(number: int, at: list[int], topic: str, files: list[str]) -> None:
    logs = [Log(Path(file)) for file in files]
    answers = OffsetAnswers(number, at, logs)
    server = await asyncio.get_running_loop().create_server(lambda: Sender(answers, topic, logs), HOST, at[number])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")], sys.argv[3], sys.argv[4:]))
