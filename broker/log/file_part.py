"""Bytes of a log that a socket gets from their file, without a copy of them in this process (sendfile)."""

import os
import socket

from logyard.broker.errors import StorageError
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.segment.segment_list import SegmentList

# To copy fewer bytes takes no longer than to ask whether they are in memory (docs/decisions/0042).
FILE_BYTES_MIN = 256 * 1024


class FilePart:
    """A range of a log file that was in memory when it was found. It keeps the file open."""

    __slots__ = ("_cuts", "_descriptor", "_file", "_position", "_segments", "_size")

    def __init__(self, segments: SegmentList, file: DiskFile, descriptor: int, position: int, size: int) -> None:
        self._segments, self._cuts = segments, segments.cuts - segments.swaps
        self._file, self._descriptor = file, descriptor
        self._position, self._size = position, size

    def __len__(self) -> int:
        return self._size

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut meanwhile: other records may be at this position. A segment that another has replaced
        (compaction) is open, and has them still."""
        return self._segments.cuts - self._segments.swaps != self._cuts

    def is_in_memory(self, begin: int) -> bool:
        """Whether the bytes from the part's `begin` on still are in memory."""
        return self._file.sendable(self._size - begin, self._position + begin) is not None

    def warm(self, begin: int) -> None:
        """Wait, in a thread, until the bytes from the part's `begin` on are in memory. Raises StorageError."""
        self._file.warm(self._size - begin, self._position + begin)

    def send(self, sock: socket.socket, begin: int = 0) -> int:
        """Send the bytes from the part's `begin` on, as much as the socket takes now; returns how many. Raises
        StorageError if the file is shorter, OSError if the peer is gone."""
        try:
            sent = os.sendfile(sock.fileno(), self._descriptor, self._position + begin, self._size - begin)
        except BlockingIOError:
            return 0
        if not sent:
            raise StorageError(f"{self._file.path}: it ends in the middle of an answer")
        return sent

    def read(self) -> bytes:
        """Return the bytes. Raises StorageError if the file is shorter."""
        data = self._file.read_at(self._size, self._position)
        if len(data) != self._size:
            raise StorageError(f"{self._file.path}: it ends in the middle of an answer")
        return data
