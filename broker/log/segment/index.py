"""The three indexes of a segment, as values: offset → position, timestamp → offset, aborted transactions.

Formats (facts §12), big-endian: `.index` int32 offset-base, int32 position; `.timeindex` int64 timestamp,
int32 offset-base; `.txnindex` int16 version 0, then four int64. Entries of the first two increase strictly.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import lt
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

    __slots__ = ("_offsets", "_times", "base_offset", "last_timestamp")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._times = array("q")
        self._offsets = array("i")
        self.last_timestamp = -1

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Parse a whole, trimmed index file; raises CorruptData for partial entries, or timestamps that do not
        increase."""
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptData(f"time index: {len(data)} bytes are not whole entries of {TIME_ENTRY_SIZE}")
        index = cls(base_offset)
        count = len(data) // TIME_ENTRY_SIZE
        index._times, index._offsets = array("q", bytes(8 * count)), array("i", bytes(4 * count))
        words, halves = memoryview(data).cast("i"), _halves(index._times)
        halves[0::2], halves[1::2], memoryview(index._offsets)[:] = words[0::3], words[1::3], words[2::3]
        if sys.byteorder == "little":
            index._times.byteswap()
            index._offsets.byteswap()
        times = index._times.tolist()
        if times:
            if min(index._offsets) < 0 or not all(map(lt, times, times[1:])):
                raise CorruptData("time index: entries do not increase")
            index.last_timestamp = times[-1]
        return index

    def __len__(self) -> int:
        return len(self._times)

    def entry(self, number: int) -> tuple[int, int]:
        """Return (timestamp, offset) of one entry; negative numbers count from the end."""
        return self._times[number], self.base_offset + self._offsets[number]

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one's; otherwise nothing changes."""
        if timestamp > self.last_timestamp:
            # In this order, so that a thread that finds the timestamp also finds its offset.
            self._offsets.append(offset - self.base_offset)
            self._times.append(timestamp)
            self.last_timestamp = timestamp

    def floor(self, timestamp: int) -> int:
        """Return an offset up to which no record has `timestamp` or a later one: where a scan starts."""
        # An entry holds the largest timestamp up to its offset, so all records up to an entry below `timestamp` are
        # older.
        found = bisect_left(self._times, timestamp)
        return self.base_offset + self._offsets[found - 1] if found else self.base_offset

    def below(self, offset: int) -> "TimeIndex":
        """Return a copy without the entries at or above `offset`."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        index = TimeIndex(self.base_offset)
        index._times, index._offsets = self._times[:keep], self._offsets[:keep]
        index.last_timestamp = self._times[keep - 1] if keep else -1
        return index

    def encode(self) -> bytes:
        """Return the file's bytes."""
        times, offsets = self._times[:], self._offsets[:]
        if sys.byteorder == "little":
            times.byteswap()
            offsets.byteswap()
        data = bytearray(len(offsets) * TIME_ENTRY_SIZE)
        words, halves = memoryview(data).cast("i"), _halves(times)
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], memoryview(offsets)
        return bytes(data)


def _halves(times: "array[int]") -> memoryview:
    """Return a view of the two halves of each of these numbers of 64 bits."""
    return memoryview(times).cast("B").cast("i")


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
