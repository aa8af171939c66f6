"""Reads records in Python from the pieces of a batch, as they are decompressed; large values can be skipped."""

from collections.abc import Iterator
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.records.decompression_stream import HELD_BYTES_MAX, Buffer
from logyard.broker.records.header import BatchHeader, TimestampType
from logyard.broker.records.varint import read_varint

# The longest varint: if there are more bytes than this, one can be read without a check.
VARINT_BYTES_MAX = 10
# The longest varint of 32 bits; only a record's time has 64.
INT_BYTES_MAX = 5


def wrapped(number: int) -> int:
    """Return the number wrapped to signed 64 bits."""
    return number if -(2**63) <= number < 2**63 else (number + 2**63) % 2**64 - 2**63


class Keyed(NamedTuple):
    """A record with its key; `value` is None if it has none, else empty."""

    offset: int
    key: bytes | None
    value: bytes | None


class Outline(NamedTuple):
    """A record without its bytes: `key` and `value` are None if the record has none, else empty."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Record(NamedTuple):
    """One record. `timestamp` is what a consumer gets (with LogAppendTime the batch's). Attributes are always 0.

    In header names, bytes that are not UTF-8 are decoded by `surrogateescape`.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


class Stream:
    """The bytes that `pieces` yields, as one stream; only the unread part is in memory."""

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._data = bytearray()
        self._pos = 0

    @property
    def unread(self) -> int:
        """How many bytes are in memory and unread."""
        return len(self._data) - self._pos

    def more(self) -> None:
        """Get one more piece. Raises CorruptData at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            raise CorruptData("its records end early, or are fewer than its header says")
        if self._pos:
            del self._data[: self._pos]
            self._pos = 0
        self._data += piece

    def is_at_end(self) -> bool:
        """Whether no bytes are left."""
        while not self.unread:
            piece = next(self._pieces, None)
            if piece is None:
                return True
            self._data, self._pos = bytearray(piece), 0
        return False

    def whole_records(self, most: int) -> tuple[int, int]:
        """Return how many complete records are next in memory, at most `most`, and their size in bytes."""
        data, at, end = self._data, self._pos, len(self._data)
        count = 0
        while count < most and at < end:
            size = data[at]
            if size < 128 and not size & 1:
                following = at + 1 + (size >> 1)
            elif end - at <= VARINT_BYTES_MAX:
                break  # the length itself may be incomplete
            elif data[at + 1] < 128 and not size & 1:  # two bytes, as usual: inline, a call would double the time
                following = at + 2 + ((size & 0x7F | data[at + 1] << 7) >> 1)
            else:
                size, start = read_varint(data, at)
                if size < 0:
                    raise CorruptData(f"a record of {size} bytes")
                following = start + size
            if following > end:
                break
            at = following
            count += 1
        return count, at - self._pos

    def next_record_bytes(self) -> int:
        """Return the size that the next record says it has, at most HELD_BYTES_MAX; VARINT_BYTES_MAX are in memory."""
        size, _ = read_varint(self._data, self._pos)
        return max(0, min(size, HELD_BYTES_MAX))

    def take(self, size: int) -> bytes:
        """Read `size` bytes. Raises CorruptData at the end, or if `size` is above HELD_BYTES_MAX."""
        if size > HELD_BYTES_MAX:
            raise CorruptData(f"a record of {size} bytes is more than can be held")
        while self.unread < size:
            self.more()
        self._pos += size
        return bytes(memoryview(self._data)[self._pos - size : self._pos])

    def skip(self, size: int) -> None:
        """Skip `size` bytes without keeping them. Raises CorruptData at the end."""
        while self.unread < size:
            size -= self.unread
            self._pos = len(self._data)
            self.more()
        self._pos += size

    def varint(self) -> tuple[int, int]:
        """Read a varint; return it and its size in bytes."""
        while self.unread < VARINT_BYTES_MAX:
            try:
                self.more()
            except CorruptData:
                break  # the end of the stream; the varint may be complete
        value, following = read_varint(self._data, self._pos)
        size = following - self._pos
        self._pos = following
        return value, size


class _Reading:
    """Reads the fields of one record in their order, and counts the bytes that are left."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._size, taken = stream.varint()
        if taken > INT_BYTES_MAX:
            raise CorruptData(f"a record's length of {taken} bytes")
        if self._size < 0:
            raise CorruptData(f"a record of {self._size} bytes")
        self.left = self._size

    def number(self, bytes_max: int = INT_BYTES_MAX) -> int:
        value, size = self._stream.varint()
        if size > bytes_max:
            raise CorruptData(f"a number of {size} bytes in a record, {bytes_max} are possible")
        self.left -= size
        return value

    def attributes(self) -> None:
        self._stream.skip(1)
        self.left -= 1

    def sized(self, *, hold: bool, may_be_null: bool = True) -> bytes | None:
        size = self.number()
        if size == -1 and may_be_null:
            return None
        if not 0 <= size <= self.left:
            raise CorruptData(f"{size} bytes in a record with {self.left} left")
        self.left -= size
        if hold:
            return self._stream.take(size)
        self._stream.skip(size)
        return b""


def outline(stream: Stream, header: BatchHeader) -> Outline:
    """Read the next record without keeping its bytes. Raises CorruptData or IndexError if it cannot be parsed."""
    read = _read(stream, header, hold=False, hold_key=False)
    return Outline(read.offset, read.timestamp, read.key, read.value)


def keyed(stream: Stream, header: BatchHeader) -> Keyed:
    """Read the next record without keeping its value. Raises CorruptData or IndexError if it cannot be parsed."""
    read = _read(stream, header, hold=False, hold_key=True)
    return Keyed(read.offset, read.key, read.value)


def record(stream: Stream, header: BatchHeader) -> Record:
    """Read the next record. Raises CorruptData or IndexError if it cannot be parsed."""
    return _read(stream, header, hold=True, hold_key=True)


def _read(stream: Stream, header: BatchHeader, *, hold: bool, hold_key: bool) -> Record:
    reading = _Reading(stream)
    reading.attributes()
    timestamp = wrapped(header.base_timestamp + reading.number(VARINT_BYTES_MAX))
    offset = header.base_offset + reading.number()
    key, value = reading.sized(hold=hold_key), reading.sized(hold=hold)
    count = reading.number()
    if not 0 <= count <= reading.left:
        raise CorruptData(f"a record says that it has {count} headers")
    headers = []
    for _ in range(count):
        name, content = reading.sized(hold=hold, may_be_null=False) or b"", reading.sized(hold=hold)
        if hold:
            headers.append((name.decode(errors="surrogateescape"), content))
    if reading.left:
        raise CorruptData(f"a record with {reading.left} bytes more than its fields have")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    return Record(offset, timestamp, key, value, tuple(headers))
