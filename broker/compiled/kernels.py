"""Compiled loops over the headers and records of batches (message format v2).

Rule 1: kernels check lengths and positions before they use them, and return a fault as a number (FAULT_*); they never
        raise.
Rule 2: the caller allocates arrays; a kernel only fills them.
Rule 3: all integers are int64, except hashes (uint64): numba converts a mix of both to floats.
"""

from typing import Any

import numpy as np

from logyard.broker.compiled.jit import kernel

Array = Any  # numpy arrays, of the dtype that each docstring names

# Columns of the header matrix (int64, a row per batch).
POSITION, BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES = 0, 1, 2, 3, 4, 5, 6
LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, COUNT = 7, 8, 9, 10, 11, 12, 13
HEADER_COLUMNS = 14

# Columns of the record matrix (int64, one row a record); positions are into the raw payload buffer, a length of -1
# is null.
OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = 0, 1, 2, 3, 4, 5
HEADERS_AT, HEADERS, START, END, BATCH = 6, 7, 8, 9, 10
RECORD_COLUMNS = 11

FAULT_NONE, FAULT_LENGTH, FAULT_VARINT, FAULT_RECORD, FAULT_LEFTOVER, FAULT_OFFSETS = 0, 1, 2, 3, 4, 5
FAULT_TEXT = {
    FAULT_LENGTH: "its length is not that of a batch",
    FAULT_VARINT: "a varint in it does not end",
    FAULT_RECORD: "a record runs over its end",
    FAULT_LEFTOVER: "bytes are left after its last record",
    FAULT_OFFSETS: "its records' offsets do not ascend, or are not its own",
}
HEADER_SIZE = 61


@kernel
def _int_be(buffer: Array, at: int, size: int) -> Any:
    value = np.int64(buffer[at])
    if value > 127:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | np.int64(buffer[at + i])
    return value


@kernel
def _put_be(buffer: Array, at: int, size: int, value: int) -> None:
    for i in range(size):
        buffer[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 255)


@kernel
def count_batches(buffer: Array, end: int) -> tuple[int, int, int]:
    """Return the number of whole batches in buffer[:end], their size in bytes, and FAULT_LENGTH if what follows cannot
    be a batch."""
    at = 0
    count = 0
    while at + 17 <= end:
        length = _int_be(buffer, at + 8, 4) + 12
        if length < 26 or (length < HEADER_SIZE and buffer[at + 16] >= 2):
            return count, at, FAULT_LENGTH
        if at + length > end:
            break
        at += length
        count += 1
    return count, at, FAULT_NONE


@kernel
def read_headers(buffer: Array, out: Array) -> None:
    """Fill `out` (n, HEADER_COLUMNS) with the first n batches; of other formats only position, offset, length
    and magic."""
    at = 0
    for i in range(out.shape[0]):
        length = _int_be(buffer, at + 8, 4) + 12
        out[i, POSITION] = at
        out[i, BASE_OFFSET] = _int_be(buffer, at, 8)
        out[i, LENGTH] = length
        out[i, MAGIC] = _int_be(buffer, at + 16, 1)
        if out[i, MAGIC] == 2:
            out[i, LEADER_EPOCH] = _int_be(buffer, at + 12, 4)
            out[i, CRC] = _int_be(buffer, at + 17, 4) & 0xFFFFFFFF
            out[i, ATTRIBUTES] = _int_be(buffer, at + 21, 2)
            out[i, LAST_DELTA] = _int_be(buffer, at + 23, 4)
            out[i, BASE_TIMESTAMP] = _int_be(buffer, at + 27, 8)
            out[i, MAX_TIMESTAMP] = _int_be(buffer, at + 35, 8)
            out[i, PRODUCER_ID] = _int_be(buffer, at + 43, 8)
            out[i, PRODUCER_EPOCH] = _int_be(buffer, at + 51, 2)
            out[i, BASE_SEQUENCE] = _int_be(buffer, at + 53, 4)
            out[i, COUNT] = _int_be(buffer, at + 57, 4)
        at += length


@kernel
def _varint(buffer: Array, at: int, end: int) -> tuple[Any, Any]:
    """Return a zigzag varint and the position after it, -1 if it does not end before `end` or within 10 bytes."""
    value = np.int64(0)
    shift = np.int64(0)
    while at < end and shift < 70:
        byte = np.int64(buffer[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel
def _sized(raw: Array, at: int, end: int, row: Array, column: int) -> Any:
    """Read a length and skip as many bytes: fill the row's position and size; return the position after them, or minus
    the fault."""
    size, at = _varint(raw, at, end)
    if at < 0:
        return -FAULT_VARINT
    if size > end - at:
        return -FAULT_RECORD
    row[column] = at
    row[column + 1] = size
    return at + size if size > 0 else at


@kernel
def _headers(raw: Array, at: int, end: int, count: int) -> Any:
    """Return the fault of a record's headers, which end with it."""
    if count < 0 or count > end - at:
        return FAULT_RECORD
    for _ in range(count):
        for is_value in range(2):
            size, at = _varint(raw, at, end)
            if at < 0:
                return FAULT_VARINT
            if size > end - at or (size < 0 and not is_value):
                return FAULT_RECORD
            at += max(size, 0)
    return FAULT_NONE if at == end else FAULT_RECORD


@kernel
def _record(raw: Array, at: int, end: int, row: Array) -> Any:
    """Read one record at `at`: fill the row's deltas (in OFFSET and TIMESTAMP) and positions; return a fault."""
    row[START] = at
    length, at = _varint(raw, at, end)
    if at < 0:
        return FAULT_VARINT
    if length < 1 or length > end - at:
        return FAULT_RECORD
    end = at + length
    row[END] = end
    row[TIMESTAMP], at = _varint(raw, at + 1, end)
    if at < 0:
        return FAULT_VARINT
    row[OFFSET], at = _varint(raw, at, end)
    if at < 0:
        return FAULT_VARINT
    for column in (KEY_AT, VALUE_AT):
        at = _sized(raw, at, end, row, column)
        if at < 0:
            return -at
    row[HEADERS], at = _varint(raw, at, end)
    if at < 0:
        return FAULT_VARINT
    row[HEADERS_AT] = at
    return _headers(raw, at, end, row[HEADERS])


@kernel
def walk_records(raw: Array, payloads: Array, headers: Array, out: Array) -> tuple[int, int]:
    """Fill `out` (sum of counts, RECORD_COLUMNS) with every record of every batch.

    `payloads` (n, 2): where each batch's decompressed records start and end in `raw`. Returns the index of the first
    damaged batch and its fault, or (-1, FAULT_NONE).
    """
    j = 0
    for i in range(headers.shape[0]):
        at = payloads[i, 0]
        end = payloads[i, 1]
        append_time = (headers[i, ATTRIBUTES] & 8) != 0
        for _ in range(headers[i, COUNT]):
            row = out[j]
            fault = _record(raw, at, end, row)
            if fault != FAULT_NONE:
                return i, fault
            row[OFFSET] += headers[i, BASE_OFFSET]
            row[TIMESTAMP] = headers[i, MAX_TIMESTAMP] if append_time else row[TIMESTAMP] + headers[i, BASE_TIMESTAMP]
            row[BATCH] = i
            at = row[END]
            j += 1
        if at != end:
            return i, FAULT_LEFTOVER
    return -1, FAULT_NONE


@kernel
def walk_headers(raw: Array, records: Array, out: Array) -> int:
    """Fill `out` (sum of header counts, 4: key at, key size, value at, value size); return the first damaged record or
    -1."""
    j = 0
    for i in range(records.shape[0]):
        at = records[i, HEADERS_AT]
        end = records[i, END]
        for _ in range(records[i, HEADERS]):
            for column in (0, 2):
                size, at = _varint(raw, at, end)
                if at < 0 or size > end - at or (size < 0 and column == 0):
                    return i
                out[j, column] = at
                out[j, column + 1] = size
                if size > 0:
                    at += size
            j += 1
        if at != end:
            return i
    return -1


@kernel
def slice_bounds(at: Array, size: Array, bounds: Array) -> None:
    """Fill `bounds` (2n + 1, int32): slot 2i is the gap before value i, slot 2i + 1 the value itself."""
    last = np.int64(0)
    bounds[0] = 0
    for i in range(at.shape[0]):
        if size[i] >= 0:
            bounds[2 * i + 1] = at[i]
            last = at[i] + size[i]
        else:
            bounds[2 * i + 1] = last
        bounds[2 * i + 2] = last
