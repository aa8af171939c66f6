"""The compiled loop over the records of a client's batch: it finds what a leader has to know of them.

Rule 1: what it does not accept may still be right. Whoever called then reads the records in Python, which decides.
Rule 2: it runs without the interpreter lock, 15 ns a record.
"""

from typing import Any

import numpy as np

from logyard.broker.compiled import jit
from logyard.broker.compiled.kernels import Array
from logyard.broker.records.compiled_look import Found
from logyard.broker.records.header import NO_TIMESTAMP

# What is kept from window to window (int64).
DONE, LATEST, EARLIEST, FIRST, BEFORE_1970, GAPS, KEYLESS = 0, 1, 2, 3, 4, 5, 6
REFUSED = -1
_NOTHING_YET = np.array((0, NO_TIMESTAMP, 2**63 - 1, NO_TIMESTAMP, 0, 0, 0), np.int64)


@jit.kernel
def number(data: Array, at: Any, end: Any, bits_max: int) -> tuple[Any, Any, bool]:
    """Return a zigzag varint, the position after it, and whether it ends before `end` and has at most so many bits."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(bits_max):
        byte = np.uint64(data[at])
        at += np.uint64(1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at, True
        shift += np.uint64(7)
    return np.int64(0), at, False


@jit.kernel
def field(data: Array, at: Any, end: Any, is_nullable: int) -> tuple[Any, Any, bool]:
    """Return the length of a field (-1: null), the position after its bytes, and whether it is well formed."""
    size, at, is_good = number(data, at, end, 28)
    if not is_good or size < -is_nullable:
        return size, at, False
    if size <= 0:
        return size, at, True
    if np.uint64(size) > end - at:
        return size, at, False
    return size, at + np.uint64(size), True


@jit.kernel
def look(data: Array, count: int, base_timestamp: int, kept: Array) -> Any:
    """Look at the next whole records in `data` (uint8), until `count` are done in all; note them in `kept` (int64).

    Returns the position after them, or REFUSED. Integers above 28 bits and times above 63 are refused: Java cuts them.
    Positions are unsigned: with signed ones it takes twice as long.
    """
    at, data_end = np.uint64(0), np.uint64(len(data))
    done, latest, earliest, first = kept[DONE], kept[LATEST], kept[EARLIEST], kept[FIRST]
    before_1970, gaps, keyless = kept[BEFORE_1970], kept[GAPS], kept[KEYLESS]
    while done < count:
        size, begin, is_good = number(data, at, data_end, 28)
        if (not is_good and data_end - at >= np.uint64(4)) or size < 0:
            return REFUSED
        if not is_good or np.uint64(size) > data_end - begin:
            break
        end = begin + np.uint64(size)
        # Each goes on where the last has stopped, at most at the record's end; one look tells whether all are good.
        delta, place, has_time = number(data, begin + np.uint64(1), end, 63)  # after the attributes
        offset, place, has_offset = number(data, place, end, 28)
        key_size, place, has_key = field(data, place, end, 1)
        _, place, has_value = field(data, place, end, 1)
        headers, place, has_headers = number(data, place, end, 28)
        is_good = has_time & has_offset & has_key & has_value & has_headers & (headers >= 0)
        for _ in range(headers):  # in a function of its own it would double the time of each record
            _, place, has_key = field(data, place, end, 0)
            _, place, has_value = field(data, place, end, 1)
            is_good = is_good & has_key & has_value
            if not is_good:
                break
        if not is_good or place != end:
            return REFUSED
        timestamp = base_timestamp + delta
        if done == 0:
            first = timestamp
        latest = max(latest, timestamp)
        if timestamp != NO_TIMESTAMP:
            earliest = min(earliest, timestamp)
            if timestamp < NO_TIMESTAMP:
                before_1970 = np.int64(1)
        if offset != done:
            gaps = np.int64(1)
        if key_size < 0:
            keyless = np.int64(1)
        done += 1
        at = end
    kept[DONE], kept[LATEST], kept[EARLIEST], kept[FIRST] = done, latest, earliest, first
    kept[BEFORE_1970], kept[GAPS], kept[KEYLESS] = before_1970, gaps, keyless
    return np.int64(at)


class Look:
    """Looks at the records of one batch, window by window."""

    def __init__(self, count: int, base_timestamp: int) -> None:
        self._count, self._base_timestamp = count, base_timestamp
        self._kept = _NOTHING_YET.copy()

    def read(self, window: bytes | bytearray | memoryview) -> int:
        """Look at the whole records at its start; return their size in bytes, or REFUSED."""
        data = np.frombuffer(window, np.uint8)
        return int(look(data, self._count, self._base_timestamp, self._kept))

    def found(self) -> Found | None:
        """Return what the records of the batch are like; None if some are missing."""
        done, latest, earliest, first, before_1970, gaps, keyless = self._kept.tolist()
        if done < self._count:
            return None
        return Found(latest, earliest, first, bool(before_1970), not gaps, bool(keyless))


def compile_and_keep() -> None:
    """Compile the loop, and keep it where other processes of this user find it."""
    for values in _CALLS:
        jit.compile_for(look, *values)


def is_kept() -> bool:
    """Load the loop that another process has compiled; False if there is none. It is not compiled here."""
    return all(jit.load_kept(look, *values) for values in _CALLS)


# What `look` is called with: bytes that may be written, and bytes that may not.
_CALLS = tuple((np.frombuffer(data, np.uint8), 1, 1, _NOTHING_YET) for data in (bytearray(1), bytes(1)))
