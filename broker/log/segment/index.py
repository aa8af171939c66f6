"""The three indexes of a segment, as values: offset → position, timestamp → offset, aborted transactions.

Formats (facts §12), big-endian: `.index` int32 offset-base, int32 position; `.timeindex` int64 timestamp,
int32 offset-base; `.txnindex` int16 version 0, then four int64. Entries of the first two increase strictly.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from logyard.broker.errors import CorruptData

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
TXN_ENTRY_SIZE = 34
RELATIVE_OFFSET_MAX = 2**31 - 1

_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")


def preallocated_size(index_bytes_max: int, entry_size: int) -> int:
    """Return the size of a new active index file: the limit, rounded down to whole entries."""
    return index_bytes_max // entry_size * entry_size


class OffsetIndex:
    """Sparse map from offsets to byte positions in one segment's log file."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "OffsetIndex":
        """Parse a whole, trimmed index file; raises CorruptData for partial entries, or entries that decrease."""
        if len(data) % OFFSET_ENTRY_SIZE:
            raise CorruptData(f"offset index: {len(data)} bytes are not whole entries of {OFFSET_ENTRY_SIZE}")
        words = array("i")
        words.frombytes(data)
        if sys.byteorder == "little":
            words.byteswap()
        index = cls(base_offset)
        index._offsets = words[0::2]
        index._positions = words[1::2]
        for column in (index._offsets, index._positions):
            values = column.tolist()
            if values and (values[0] < 0 or values != sorted(values)):
                raise CorruptData("offset index: its entries decrease")
        return index

    def __len__(self) -> int:
        return len(self._offsets)

    def entry(self, number: int) -> tuple[int, int]:
        """Return (offset, position) of one entry; negative numbers count from the end."""
        return self.base_offset + self._offsets[number], self._positions[number]

    def append(self, offset: int, position: int) -> None:
        """Add an entry; the caller makes sure that both values increase."""
        # In this order, so that a thread that finds the offset also finds its position.
        self._positions.append(position)
        self._offsets.append(offset - self.base_offset)

    def floor(self, offset: int) -> int:
        """Return the position from which to scan for the batch with `offset`: that of the last entry ≤ `offset`, or
        0."""
        found = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[found - 1] if found else 0

    def floor_of_position(self, position: int) -> int:
        """Return the largest indexed position ≤ `position`, or 0; always the start of a batch."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def ceiling_of_position(self, position: int) -> int | None:
        """Return the offset of the first entry at or behind that position, which is above all before; None without."""
        found = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[found] if found < len(self._offsets) else None

    def below(self, offset: int, position: int) -> "OffsetIndex":
        """Return a copy without the entries at or above that offset or position."""
        keep = min(bisect_left(self._offsets, offset - self.base_offset), bisect_left(self._positions, position))
        index = OffsetIndex(self.base_offset)
        index._offsets, index._positions = self._offsets[:keep], self._positions[:keep]
        return index

    def encode(self, start: int = 0) -> bytes:
        """Return the file's bytes from entry `start` on."""
        words = array("i", bytes(OFFSET_ENTRY_SIZE * (len(self._offsets) - start)))
        words[0::2] = self._offsets[start:]
        words[1::2] = self._positions[start:]
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()


class TimeIndex:
    """Sparse map from the largest timestamp so far to the offset of its record, in one segment."""

    __slots__ = ("_data", "base_offset", "last_timestamp")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._data = bytearray()
        self.last_timestamp = -1

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Parse a whole, trimmed index file; raises CorruptData for partial entries, or timestamps that do not
        increase."""
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptData(f"time index: {len(data)} bytes are not whole entries of {TIME_ENTRY_SIZE}")
        last = None
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            if offset < 0 or (last is not None and timestamp <= last):
                raise CorruptData("time index: entries do not increase")
            last = timestamp
        index = cls(base_offset)
        index._data = bytearray(data)
        if last is not None:
            index.last_timestamp = last
        return index

    def __len__(self) -> int:
        return len(self._data) // TIME_ENTRY_SIZE

    def entry(self, number: int) -> tuple[int, int]:
        """Return (timestamp, offset) of one entry; negative numbers count from the end."""
        if number < 0:
            number += len(self)
        timestamp, relative = _TIME_ENTRY.unpack_from(self._data, number * TIME_ENTRY_SIZE)
        return timestamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one's; otherwise nothing changes."""
        if timestamp > self.last_timestamp:
            self._data += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def floor(self, timestamp: int) -> int:
        """Return an offset up to which no record has `timestamp` or a later one: where a scan starts."""
        # An entry holds the largest timestamp up to its offset, so all records up to an entry below `timestamp` are
        # older.
        found = bisect_left(range(len(self)), timestamp, key=lambda n: self.entry(n)[0])
        return self.entry(found - 1)[1] if found else self.base_offset

    def below(self, offset: int) -> "TimeIndex":
        """Return a copy without the entries at or above `offset`."""
        keep = bisect_left(range(len(self)), offset, key=lambda n: self.entry(n)[1])
        index = TimeIndex(self.base_offset)
        index._data = self._data[: keep * TIME_ENTRY_SIZE]
        index.last_timestamp = index.entry(-1)[0] if keep else -1
        return index

    def encode(self, start: int = 0) -> bytes:
        """Return the file's bytes from entry `start` on."""
        return bytes(self._data[start * TIME_ENTRY_SIZE :])


def decode_last_time_entry(base_offset: int, entry: bytes) -> tuple[int, int]:
    """Return (timestamp, offset) of one encoded time index entry."""
    timestamp, relative = _TIME_ENTRY.unpack(entry)
    return timestamp, base_offset + relative


class AbortedTxn(NamedTuple):
    """An aborted transaction: its first offset, its marker's offset, and the last stable offset after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the bytes of a `.txnindex`."""
    return b"".join(_TXN_ENTRY.pack(0, *entry) for entry in entries)


def decode_aborted(data: bytes) -> list[AbortedTxn]:
    """Parse a `.txnindex`; raises CorruptData for partial entries, another version, or last offsets that decrease."""
    if len(data) % TXN_ENTRY_SIZE:
        raise CorruptData(f"transaction index: {len(data)} bytes are not whole entries of {TXN_ENTRY_SIZE}")
    entries: list[AbortedTxn] = []
    for version, *fields in _TXN_ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        if version != 0:
            raise CorruptData(f"transaction index: version {version}, 0 is expected")
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptData("transaction index: last offsets do not increase")
        entries.append(entry)
    return entries
