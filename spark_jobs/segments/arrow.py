"""The records of a chunk as Arrow columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import Chunk, CorruptBatch
from logyard.broker.compiled.kernels import Array

# The years 1 to 9999.
TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADER_TYPE),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("sequence", pa.int32()),
        ("isControl", pa.bool_()),
        ("isTransactional", pa.bool_()),
    ]
)


def record_batch(
    chunk: Chunk, records: Array, columns: Sequence[str] = RECORD_SCHEMA.names, where: str = ""
) -> pa.RecordBatch:
    """Return the records as Arrow columns (of RECORD_SCHEMA, in the given order). Binary columns copy once, from `raw`.

    Bytes of a header's key that are not UTF-8 become U+FFFD, as in Java's client; a time before the year 1 or after the
    year 9999, which Spark and others cannot hold, is null. Raises CorruptBatch, naming `where`.
    """
    builders = {
        "offset": lambda: pa.array(records[:, k.OFFSET]),
        "timestamp": lambda: _times(records[:, k.TIMESTAMP]),
        "key": lambda: slices(chunk.raw, records[:, k.KEY_AT], records[:, k.KEY_SIZE]),
        "value": lambda: slices(chunk.raw, records[:, k.VALUE_AT], records[:, k.VALUE_SIZE]),
        "headers": lambda: _header_lists(chunk, records, where),
    }
    arrays = [builders[c]() if c in builders else _batch_column(chunk, records, c) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([RECORD_SCHEMA.field(c) for c in columns]))


def slices(raw: Array, at: Array, size: Array) -> pa.Array:
    """Return raw[at : at + size] of each row as binary, null if the size is negative; `at` must not decrease."""
    count = len(at)
    bounds = np.empty(2 * count + 1, np.int32)
    k.slice_bounds(np.ascontiguousarray(at), np.ascontiguousarray(size), bounds)
    gaps_and_values = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(raw)])
    odd = pa.array(np.arange(1, 2 * count, 2, dtype=np.int32), mask=size < 0)
    return gaps_and_values.take(odd)


def _times(milliseconds: Array) -> pa.Array:
    beyond = (milliseconds < TIME_MS_MIN) | (milliseconds > TIME_MS_MAX)
    return pa.array(milliseconds, mask=beyond if beyond.any() else None).cast(pa.timestamp("ms", tz="UTC"))


def _header_lists(chunk: Chunk, records: Array, where: str) -> pa.Array:
    raw = chunk.raw
    counts = records[:, k.HEADERS]
    bounds = np.zeros(len(records) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    places = np.empty((int(bounds[-1]), 4), np.int64)
    damaged = k.walk_headers(raw, np.ascontiguousarray(records), places)
    if damaged >= 0:
        reason = f"the headers of the record at offset {int(records[damaged, k.OFFSET])} do not fill it"
        raise CorruptBatch(chunk.damage(int(records[damaged, k.BATCH]), reason), where)
    keys = slices(raw, places[:, 0], places[:, 1])
    values = slices(raw, places[:, 2], places[:, 3])
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:
        keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), entries).cast(HEADER_TYPE)


def _batch_column(chunk: Chunk, records: Array, name: str) -> pa.Array:
    row_batch = records[:, k.BATCH]
    headers = chunk.headers
    attributes = headers[:, k.ATTRIBUTES]
    if name == "sequence":
        base = headers[:, k.BASE_SEQUENCE][row_batch]
        delta = records[:, k.OFFSET] - headers[:, k.BASE_OFFSET][row_batch]
        # Sequences wrap from 2**31 - 1 to 0.
        return pa.array(np.where(base < 0, -1, (base + delta) & 0x7FFFFFFF).astype(np.int32))
    per_batch = {
        # v0 has no timestamp type, which Java's client gives as -1.
        "timestampType": np.where(headers[:, k.MAGIC] == 0, -1, attributes & 0x08 != 0).astype(np.int32),
        "leaderEpoch": headers[:, k.LEADER_EPOCH].astype(np.int32),
        "producerId": headers[:, k.PRODUCER_ID],
        "producerEpoch": headers[:, k.PRODUCER_EPOCH].astype(np.int16),
        "isControl": attributes & 0x20 != 0,
        "isTransactional": attributes & 0x10 != 0,
    }
    return pa.array(per_batch[name][row_batch])
