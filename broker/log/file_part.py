"""Bytes of a log that a socket gets from their file, without a copy of them in this process (sendfile)."""

import os

from logyard.broker.errors import StorageError
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.segment.segment_list import SegmentList

# To copy fewer bytes takes no longer than to ask whether they are in memory (docs/decisions/0042).
FILE_BYTES_MIN = 256 * 1024

CUT = "the log was cut before its records were sent"


class FilePart:
    """A range of a log file that was in memory when it was found. It keeps the file open."""

    __slots__ = ("_cuts", "_descriptor", "_file", "_position", "_segments", "size")

    def __init__(self, segments: SegmentList, file: DiskFile, descriptor: int, position: int, size: int) -> None:
        self._segments, self._cuts = segments, segments.cuts - segments.swaps
        self._file, self._descriptor = file, descriptor
        self._position, self.size = position, size

    def __len__(self) -> int:
        return self.size

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut meanwhile: other records may be at this position. A segment that another has replaced
        (compaction) is open, and has them still."""
        return self._segments.cuts - self._segments.swaps != self._cuts

    def is_in_memory(self, begin: int) -> bool:
        """Whether the bytes from the part's `begin` on still are in memory."""
        return self._file.sendable(self.size - begin, self._position + begin) is not None

    def warm(self, begin: int) -> None:
        """Wait, in a thread, until the bytes from the part's `begin` on are in memory. Raises StorageError."""
        self._file.warm(self.size - begin, self._position + begin)

    def send(self, to: int, begin: int = 0) -> int:
        """Send the bytes from the part's `begin` on to the socket of the descriptor `to`, as much as it takes now;
        returns how many. Raises StorageError if the log was cut or the file is shorter, OSError if the peer is gone."""
        segments = self._segments
        if segments.cuts - segments.swaps != self._cuts:
            raise StorageError(f"{self._file.path}: {CUT}")
        try:
            sent = os.sendfile(to, self._descriptor, self._position + begin, self.size - begin)
        except BlockingIOError:
            return 0
        if not sent:
            raise StorageError(f"{self._file.path}: it ends in the middle of an answer")
        return sent

    def read(self) -> bytes:
        """Return the bytes. Raises StorageError if the file is shorter."""
        data = self._file.read_at(self.size, self._position)
        if len(data) != self.size:
            raise StorageError(f"{self._file.path}: it ends in the middle of an answer")
        return data
