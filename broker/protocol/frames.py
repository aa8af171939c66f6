"""A byte stream cut into frames: four bytes of size, then the frame."""

import struct

from logyard.broker.errors import CorruptData

_SIZE = struct.Struct(">i")


class FrameBuffer:
    """Collects bytes as they arrive and gives out whole frames.

    Memory grows with the bytes received, never by what a size field promises.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """Take what arrived and return the frames that are now whole, without their sizes.

        The frames are writable, share one buffer and stay valid as long as they are held. Raises CorruptData for a
        size that is negative or above the limit; the stream is then of no more use.
        """
        self._buffer += data
        buffer = self._buffer
        available = len(buffer)
        bounds: list[tuple[int, int]] = []
        pos = 0
        while available - pos >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, pos)
            if not 0 <= size <= self._size_max:
                raise CorruptData(f"a frame of {size} bytes is announced, at most {self._size_max} are taken")
            start = pos + _SIZE.size
            if start + size > available:
                break
            pos = start + size
            bounds.append((start, pos))
        if not bounds:
            return []
        self._buffer = buffer[pos:]
        view = memoryview(buffer)
        return [view[start:end] for start, end in bounds]
