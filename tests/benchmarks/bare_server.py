"""The least a Produce and a Fetch can cost in one Python process: what the broker's figures are held against.

A server over uvloop that takes frames of a fixed shape: for a Produce it checks the batch's CRC, writes the batch to a
file and answers with fixed bytes; for a Fetch it reads a piece of that file and sends it. No versions, no partitions,
no offsets, no errors. `python -m tests.benchmarks.bare_server FILE [BYTES]` prints its port; BYTES are of a Fetch.
"""

import asyncio
import os
import struct
import sys
from pathlib import Path

import crc32c
import uvloop

from logyard.broker.protocol.primitives import read_uvarint

BUFFER_BYTES = 2 << 20
# Where the size of the records lies in the Produce frames of frames.py, behind the frame's own size.
RECORDS_SIZE_AT = 35
CRC_AT, ATTRIBUTES_AT = 17, 21
PRODUCED = struct.pack(">i", 50) + bytes(50)
FETCHED_BYTES = 252_000
_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")


class Bare(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, fd: int, fetched: int = FETCHED_BYTES) -> None:
        self._fd, self._fetched = fd, fetched
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = self._position = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if BUFFER_BYTES - self._end < 65536:
            unread = self._end - self._start
            self._view[:unread] = self._view[self._start : self._end]
            self._start, self._end = 0, unread
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        answers: list[bytes] = []
        while self._end - self._start >= 4:
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            begin = self._start + 4
            if self._end < begin + size:
                break
            self._start = begin + size
            answers += self._answer(self._view[begin : self._start])
        if self._start == self._end:
            self._start = self._end = 0
        if answers:
            self._transport.write(b"".join(answers) if len(answers) > 1 else answers[0])  # type: ignore[attr-defined]

    def _answer(self, frame: memoryview) -> list[bytes]:
        if frame[1] == 1:
            self._transport.writelines(  # type: ignore[attr-defined]
                [_SIZE.pack(self._fetched), os.pread(self._fd, self._fetched, 0)]
            )
            return []
        size, at = read_uvarint(frame, RECORDS_SIZE_AT)
        batch = frame[at : at + size - 1]
        if crc32c.crc32c(batch[ATTRIBUTES_AT:]) != _CRC.unpack_from(batch, CRC_AT)[0]:
            raise ValueError("the checksum is wrong: the frame has another shape")
        self._position += os.pwrite(self._fd, batch, self._position)
        return [PRODUCED]


async def serve(path: Path, fetched: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    server = await asyncio.get_running_loop().create_server(lambda: Bare(fd, fetched), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else FETCHED_BYTES))
