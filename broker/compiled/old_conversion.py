"""The compiled loop that makes messages of magic 0 or 1 of v2 batches, for old consumers.

Rule 1: what it does not accept may still be right: it stops before such a batch, and Python decides (downconvert.py).
Rule 2: it runs without the interpreter lock, and without bounds checks. Before it begins a batch it proves that there
        is room for whatever its records become: a message has at most MESSAGE_BYTES more than its record.
"""

from typing import Any

import numpy as np

from logyard.broker.compiled import crc_kernel, jit
from logyard.broker.compiled.crc_kernel import crc32
from logyard.broker.compiled.jit import copy_bytes
from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.record_look import field, number
from logyard.broker.records.decompression_stream import HELD_BYTES_MAX
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION_BITS,
    CONTROL_BIT,
    COUNT_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
)

# A record without key, value and headers has seven bytes; a message of magic 1 without key and value 34.
RECORD_BYTES_MIN = 7
MESSAGE_BYTES = 34 - RECORD_BYTES_MIN
# Offsets up to twice that are no overflow.
_OFFSET_MAX = np.uint64(2**62)
_ONE = np.uint64(1)


@jit.kernel
def _read(data: Array, at: Any, size: int) -> Any:
    """Return the big-endian number of `size` bytes at `at` (uint64) as a uint64."""
    value = np.uint64(0)
    for n in range(size):
        value = value << np.uint64(8) | np.uint64(data[at + np.uint64(n)])
    return value


@jit.kernel
def _put(out: Array, at: Any, size: int, value: Any) -> Any:
    """Write `value` (uint64) in `size` bytes, big-endian; return the position after them."""
    for n in range(size):
        out[at + np.uint64(n)] = np.uint8(value >> np.uint64(8 * (size - 1 - n)))
    return at + np.uint64(size)


@jit.kernel
def _put_field(out: Array, to: Any, data: Array, end: Any, size: Any) -> Any:
    """Write a field of `size` bytes (-1: null) that ends at data[end]; return the position after it."""
    to = _put(out, to, 4, np.uint64(size))
    if size <= 0:
        return to
    copy_bytes(out, to, data, end - np.uint64(size), size)
    return to + np.uint64(size)


@jit.kernel
def _length(data: Array, at: Any, end: Any) -> Any:
    """Return the size of the batch at `at` if it is whole, and one of those that the loop converts; else 0."""
    if end - at < np.uint64(HEADER_SIZE):
        return np.uint64(0)
    length = _read(data, at + np.uint64(LENGTH_AT), 4) + np.uint64(LOG_OVERHEAD)
    if length < np.uint64(HEADER_SIZE) or length > np.uint64(HELD_BYTES_MAX) or length > end - at:
        return np.uint64(0)
    attributes = data[at + np.uint64(ATTRIBUTES_AT + 1)]
    if data[at + np.uint64(MAGIC_AT)] != 2 or attributes & (COMPRESSION_BITS | CONTROL_BIT):
        return np.uint64(0)
    return length


@jit.kernel
def _records(data: Array, at: Any, length: Any) -> Any:
    """Return the count of the batch at `at`: 0 also if it is negative, -1 if there can be no such number in it."""
    count = _read(data, at + np.uint64(COUNT_AT), 4)
    if count >= np.uint64(2**31):
        return np.int64(0)
    if count * np.uint64(RECORD_BYTES_MIN) > length - np.uint64(HEADER_SIZE):
        return np.int64(-1)
    return np.int64(count)


@jit.kernel
def room_for(data: Array) -> Any:
    """Return how many bytes all batches of `data` that the loop may convert become at most (old and packed ones: 0)."""
    at, end, room = np.uint64(0), np.uint64(len(data)), np.int64(0)
    while end - at >= np.uint64(HEADER_SIZE):
        length = _length(data, at, end)
        if length:
            room += np.int64(length) + MESSAGE_BYTES * max(_records(data, at, length), np.int64(0))
        else:
            length = _read(data, at + np.uint64(LENGTH_AT), 4) + np.uint64(LOG_OVERHEAD)
            if length > end - at:
                break
        at += length
    return room


@jit.kernel
def _convert_batch(
    data: Array, at: Any, length: Any, count: Any, out: Array, to: Any, magic: int, first_offset: int, known: Array
) -> tuple[Any, bool]:
    """Convert one batch, for which there is room; return the position after its messages, and whether it is good."""
    base_offset = _read(data, at, 8)
    base_timestamp = np.int64(_read(data, at + np.uint64(BASE_TIMESTAMP_AT), 8))
    attributes = np.uint64(data[at + np.uint64(ATTRIBUTES_AT + 1)] & LOG_APPEND_TIME_BIT)
    latest = np.int64(_read(data, at + np.uint64(MAX_TIMESTAMP_AT), 8))
    if base_offset > _OFFSET_MAX:
        return to, False
    batch_end = at + length
    at += np.uint64(HEADER_SIZE)
    for _ in range(count):
        size, begin, is_good = number(data, at, batch_end, 28)
        if not is_good or size < 0 or np.uint64(size) > batch_end - begin:
            return to, False
        end = begin + np.uint64(size)
        delta, place, has_time = number(data, begin + _ONE, end, 63)  # after the attributes
        offset_delta, place, has_offset = number(data, place, end, 28)
        key_size, key_end, has_key = field(data, place, end, 1)
        value_size, value_end, has_value = field(data, key_end, end, 1)
        headers, place, has_headers = number(data, value_end, end, 28)
        is_good = has_time & has_offset & has_key & has_value & has_headers & (headers >= 0)
        if not is_good:
            return to, False
        for _ in range(headers):
            _, place, has_name = field(data, place, end, 0)
            _, place, has_content = field(data, place, end, 1)
            if not (has_name & has_content):
                return to, False
        if place != end:
            return to, False
        at = end
        offset = np.int64(base_offset) + offset_delta
        if offset < first_offset:
            continue
        start = to
        to = _put(out, to, 8, np.uint64(offset)) + np.uint64(8)  # length and checksum come last
        to = _put(out, to, 1, np.uint64(magic))
        if magic:
            to = _put(out, to, 1, attributes)
            to = _put(out, to, 8, np.uint64(latest if attributes else base_timestamp + delta))
        else:
            to = _put(out, to, 1, np.uint64(0))
        to = _put_field(out, to, data, key_end, key_size)
        to = _put_field(out, to, data, value_end, value_size)
        _put(out, start + np.uint64(8), 4, to - start - np.uint64(LOG_OVERHEAD))
        _put(out, start + np.uint64(12), 4, crc32(out, start + np.uint64(16), to, known))
    return to, at == batch_end or count == 0


@jit.kernel
def convert(
    data: Array, begin: int, stop: int, out: Array, to_begin: int, magic: int, first_offset: int, known: Array
) -> tuple[Any, Any]:
    """Convert the batches from data[begin] on (uint8) to messages from out[to_begin] on (uint8).

    It stops before the first batch that it does not accept, and before one that ends behind `stop`, unless it is the
    first. Records below `first_offset` are left out. Returns the positions that it has reached in both.
    """
    at, to, end, room = np.uint64(begin), np.uint64(to_begin), np.uint64(len(data)), np.uint64(len(out))
    while True:
        length = _length(data, at, end)
        if not length or (at + length > np.uint64(stop) and at != np.uint64(begin)):
            break
        count = _records(data, at, length)
        if count < 0 or length + np.uint64(MESSAGE_BYTES * count) > room - to:
            break
        reached, is_good = _convert_batch(data, at, length, count, out, to, magic, first_offset, known)
        if not is_good:
            break
        to = reached
        at += length
    return np.int64(at), np.int64(to)


class Conversion:
    """Converts the batches of one buffer, some at a time; the messages follow each other in memory of its own."""

    _known = crc_kernel.tables()

    def __init__(self, buf: memoryview, magic: int, first_offset: int) -> None:
        self._data = np.frombuffer(buf, np.uint8)
        self._magic, self._first_offset = magic, first_offset
        self._out = np.empty(room_for(self._data), np.uint8)  # not cleared: most of it may never be touched
        self._size = self._taken = 0

    @property
    def room(self) -> int:
        """How many bytes the messages may become."""
        return len(self._out)

    def go_on(self, pos: int, bytes_max: int) -> int:
        """Convert batches from `pos` on, `bytes_max` bytes of them or one; return where it stopped.

        That is `pos` itself before a batch that it does not accept.
        """
        stop, out = pos + bytes_max, self._out
        reached, self._size = convert(
            self._data, pos, stop, out, self._size, self._magic, self._first_offset, self._known
        )
        return int(reached)

    def take(self) -> memoryview:
        """Return the messages that were made since they were taken last."""
        begin, self._taken = self._taken, self._size
        return self._out.data[begin : self._size]


def compile_and_keep() -> None:
    """Compile the loop, and keep it where other processes of this user find it."""
    for loop, values in _CALLS:
        jit.compile_for(loop, *values)


def is_kept() -> bool:
    """Load the loop that another process has compiled; False if there is none. It is not compiled here."""
    return all(jit.load_kept(loop, *values) for loop, values in _CALLS)


_OUT, _KNOWN = np.zeros(1, np.uint8), np.zeros(1, np.uint32)
# What the loops are called with: bytes that may be written, and bytes that may not.
_CALLS = tuple(
    call
    for data in (np.frombuffer(bytearray(1), np.uint8), np.frombuffer(bytes(1), np.uint8))
    for call in ((room_for, (data,)), (convert, (data, 1, 1, _OUT, 1, 1, 1, _KNOWN)))
)
