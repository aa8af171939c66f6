"""Reads the records of any v2 batch one after the other; a large batch is never in memory as a whole.

Rule 1: the header's count is the limit. Nothing after that many records is decompressed, and one byte too many makes
        the batch invalid, as in Kafka.
Rule 2: aiokafka's C code reads the records (0.1 µs each); in a large batch, as many at a time as are complete in a
        window. Python reads records larger than a window, and those that C refuses although Kafka accepts them (header
        names that are not UTF-8, attributes above 127).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.records import decompression_stream as piecewise
from logyard.broker.records.compression import NONE, BrokenStream, Buffer
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    COUNT_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    BatchHeader,
)
from logyard.broker.records.pauses import RECORDS, read_in_c
from logyard.broker.records.room import ROOM
from logyard.broker.records.stream import Stream, keyed, outline, record
from logyard.broker.submodule_import import without_package_init

with without_package_init("aiokafka"):
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords import DefaultRecordBatch

REFUSED_BY_C = (CorruptRecordException, ValueError, IndexError, OverflowError, SystemError)
"""The exceptions of the C code for records that it cannot read."""

WINDOW_BYTES = piecewise.PIECE_BYTES
# A record that is held is in the stream, by itself, and with who reads it, anew.
HELD_COPIES = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def outlines(batch: memoryview, header: BatchHeader) -> Iterator[Any]:
    """Yield an object with `offset`, `timestamp`, `key` and `value` for each record of the v2 batch.

    Only whether `key` and `value` are None is reliable: bytes larger than a window are not kept. Raises CorruptData if
    records cannot be parsed or their number is not the header's, ApiError if there is no such codec.
    """
    return _walked(batch, header, outline)


def whole_records(batch: memoryview, header: BatchHeader) -> Iterator[Any]:
    """Yield each record of the v2 batch with its bytes and `headers`. Raises as `outlines` does.

    A record may have at most HELD_BYTES_MAX bytes (decompression_stream.py).
    """
    return _small(batch, header) or _walked(batch, header, record)


def keyed_records(batch: memoryview, header: BatchHeader) -> Iterator[Any]:
    """Yield an object with `offset`, `key` and `value` for each record of the v2 batch. Raises as `outlines` does.

    Only whether `value` is None is reliable; a key may have at most HELD_BYTES_MAX bytes.
    """
    return _walked(batch, header, keyed)


def _small(batch: memoryview, header: BatchHeader) -> Iterator[Any] | None:
    """Read a batch that is not packed and fits a window in one step; None if it is another, or C refuses it."""
    if header.compression != NONE or header.length > WINDOW_BYTES or not 0 < header.count <= RECORDS:
        return None
    try:
        found = list(one_window(batch[: header.length], header))
    except REFUSED_BY_C:
        return None
    read_in_c(header.count)
    return iter(found)


def _walked(batch: memoryview, header: BatchHeader, one: Callable[[Stream, BatchHeader], Any]) -> Iterator[Any]:
    left = header.count
    if left <= 0:
        return
    stream = Stream(piecewise.pieces(header.compression, batch[HEADER_SIZE : header.length]))
    head = bytearray(batch[:HEADER_SIZE])
    _INT16.pack_into(head, ATTRIBUTES_AT, header.attributes & ~COMPRESSION_BITS)
    try:
        while left:
            count, size = stream.whole_records(min(left, RECORDS))
            if count:
                yield from _by_c(head, stream.take(size), count, header, one)
                left -= count
                read_in_c(count)
            elif stream.unread < WINDOW_BYTES:
                stream.more()
            else:
                held = 0 if one is outline else HELD_COPIES * stream.next_record_bytes()
                with ROOM.taken(held):
                    yield one(stream, header)
                left -= 1
        if not stream.is_at_end():
            raise CorruptData(f"there are bytes after its {header.count} records")
    except BrokenStream:
        raise
    except (CorruptData, *REFUSED_BY_C) as error:
        raise CorruptData(f"batch with base offset {header.base_offset}: {error}") from error


def one_window(batch: memoryview, header: BatchHeader, plain: Buffer = b"") -> Iterator[Any]:
    """Return an iterator over the records of a small v2 batch, read in C; `plain` has the decompressed records.

    The batch must fit a window. The iterator raises REFUSED_BY_C, also for header names that are not UTF-8.
    """
    if header.compression == NONE:
        return iter(DefaultRecordBatch(batch))
    head = bytearray(batch[:HEADER_SIZE])
    _INT16.pack_into(head, ATTRIBUTES_AT, header.attributes & ~COMPRESSION_BITS)
    _INT32.pack_into(head, LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD + len(plain))
    return iter(DefaultRecordBatch(head + plain))


def plain_window(batch: memoryview) -> Iterator[Any]:
    """As `one_window`, of a batch that is not packed."""
    return iter(DefaultRecordBatch(batch))


def _by_c(head: bytearray, window: bytes, count: int, header: BatchHeader, one: Any) -> Iterator[Any]:
    """Read whole records in C; if C refuses one because of a header name, read on in Python."""
    _INT32.pack_into(head, LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD + len(window))
    _INT32.pack_into(head, COUNT_AT, count)
    done = 0
    try:
        for found in DefaultRecordBatch(bytes(head) + window):
            done += 1
            yield found
    except REFUSED_BY_C:
        again = Stream(iter((window,)))
        again.more()
        for number in range(count):
            found = one(again, header)
            if number >= done:
                yield found
