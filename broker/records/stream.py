"""Bytes of a batch as they are decompressed, and records read from them in Python: of any size, held or passed over."""

from collections.abc import Iterator
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.records.decompression_stream import HELD_BYTES_MAX, Buffer
from logyard.broker.records.header import BatchHeader, TimestampType
from logyard.broker.records.varint import read_varint

# The longest varint; more than this many bytes ahead, one can be read without looking whether it is all there.
VARINT_BYTES_MAX = 10
# All numbers in a record but its time have 32 bits.
INT_BYTES_MAX = 5


def wrapped(number: int) -> int:
    """The number as 64 bits hold it."""
    return number if -(2**63) <= number < 2**63 else (number + 2**63) % 2**64 - 2**63


class Outline(NamedTuple):
    """A record without its bytes: `key` and `value` are None where it has none, else empty."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Record(NamedTuple):
    """One record; `timestamp` is what a consumer sees (the batch's own with LogAppendTime). Attributes are always 0.

    A header's name that is not UTF-8 has its odd bytes as lone surrogates (`surrogateescape`).
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


class Stream:
    """What `pieces` yields, as one row of bytes of which only the unread part is held."""

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._data = bytearray()
        self._pos = 0

    @property
    def unread(self) -> int:
        """How many bytes are here and not read."""
        return len(self._data) - self._pos

    def more(self) -> None:
        """Get a piece more; raises CorruptData where there is none."""
        piece = next(self._pieces, None)
        if piece is None:
            raise CorruptData("its records are cut short, or fewer than its header says")
        if self._pos:
            del self._data[: self._pos]
            self._pos = 0
        self._data += piece

    def is_at_end(self) -> bool:
        """Whether nothing is left, here or to come."""
        while not self.unread:
            piece = next(self._pieces, None)
            if piece is None:
                return True
            self._data, self._pos = bytearray(piece), 0
        return False

    def whole_records(self, most: int) -> tuple[int, int]:
        """How many whole records come next, `most` at most, and how many bytes they are."""
        data, at, end = self._data, self._pos, len(self._data)
        count = 0
        while count < most and at < end:
            size = data[at]
            if size < 128 and not size & 1:
                following = at + 1 + (size >> 1)
            elif end - at <= VARINT_BYTES_MAX:
                break  # the length itself may be cut
            elif data[at + 1] < 128 and not size & 1:  # two bytes, as most have: a call would double the cost
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

    def take(self, size: int) -> bytes:
        """The next bytes, all of them; raises CorruptData for more than may be held."""
        if size > HELD_BYTES_MAX:
            raise CorruptData(f"a record of {size} bytes is more than can be held")
        while self.unread < size:
            self.more()
        self._pos += size
        return bytes(memoryview(self._data)[self._pos - size : self._pos])

    def skip(self, size: int) -> None:
        """Pass over bytes without holding them."""
        while self.unread < size:
            size -= self.unread
            self._pos = len(self._data)
            self.more()
        self._pos += size

    def varint(self) -> tuple[int, int]:
        """The next number and how many bytes it took."""
        while self.unread < VARINT_BYTES_MAX:
            try:
                self.more()
            except CorruptData:
                break  # the end is near: it may be here all the same
        value, following = read_varint(self._data, self._pos)
        size = following - self._pos
        self._pos = following
        return value, size


class _Reading:
    """One record's fields in their order, and how many of its bytes they took."""

    def __init__(self, stream: Stream, *, hold: bool) -> None:
        self._stream = stream
        self._hold = hold
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

    def sized(self, *, may_be_null: bool = True) -> bytes | None:
        size = self.number()
        if size == -1 and may_be_null:
            return None
        if not 0 <= size <= self.left:
            raise CorruptData(f"{size} bytes in a record with {self.left} left")
        self.left -= size
        if self._hold:
            return self._stream.take(size)
        self._stream.skip(size)
        return b""


def outline(stream: Stream, header: BatchHeader) -> Outline:
    """Read the next record without holding its bytes; raises CorruptData or IndexError where it does not parse."""
    read = _read(stream, header, hold=False)
    return Outline(read.offset, read.timestamp, read.key, read.value)


def record(stream: Stream, header: BatchHeader) -> Record:
    """Read the next record; raises CorruptData or IndexError where it does not parse."""
    return _read(stream, header, hold=True)


def _read(stream: Stream, header: BatchHeader, *, hold: bool) -> Record:
    reading = _Reading(stream, hold=hold)
    reading.attributes()
    timestamp = wrapped(header.base_timestamp + reading.number(VARINT_BYTES_MAX))
    offset = header.base_offset + reading.number()
    key, value = reading.sized(), reading.sized()
    count = reading.number()
    if not 0 <= count <= reading.left:
        raise CorruptData(f"a record says that it has {count} headers")
    headers = []
    for _ in range(count):
        name, content = reading.sized(may_be_null=False) or b"", reading.sized()
        if hold:
            headers.append((name.decode(errors="surrogateescape"), content))
    if reading.left:
        raise CorruptData(f"a record with {reading.left} bytes more than its fields have")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    return Record(offset, timestamp, key, value, tuple(headers))
