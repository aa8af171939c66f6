"""The latest row of each key of some Parquet files, in two passes over batches: the first keeps the last offset of each
key, the second takes the rows that have one. So what is held does not grow with what the files unpack to.

Rule 1: a batch has at most BATCH_ROWS rows, of one row group. A row group has about ROW_GROUP_BYTES, because what is
        written is cut to parts of PART_BYTES: else it would grow by a batch with each version.
Rule 2: keys are told apart by hashes of 128 bits with a random seed, as in a compaction: 40 bytes a key.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.segments.digests import key_entries

BATCH_ROWS = 4096
PART_BYTES = 16 * 1024 * 1024
# The hashes of so many keys take 640 MB; for more, pass 1 goes over the files several times.
KEYS_AT_ONCE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """A Parquet file: what a reader of it takes, its name in errors, and how many rows it has by what was committed."""

    opened: Any
    where: str
    rows: int


def batches_of(source: Source, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, of all columns unless some are named. Raises CorruptData if it has more or fewer than were
    committed, ExportRefused if it is gone meanwhile."""
    try:
        with pq.ParquetFile(source.opened) as file:
            rows = file.metadata.num_rows
            if rows != source.rows:
                raise CorruptData(f"{source.where}: it has {rows} rows, {source.rows} were committed")
            for group in range(file.num_row_groups):
                yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)
    except FileNotFoundError:
        raise ExportRefused(f"{source.where} is gone: another export of this directory is running") from None


def last_offsets(sources: Sequence[Source], wanted: Callable[[pa.Array], Array] | None = None) -> Array:
    """Pass 1: return the last offset of each key, ascending (int64). Keys are binary or text, none null.

    :param wanted: tells which keys of an array count (bool); all do without it.
    """
    rounds = max(-(-sum(source.rows for source in sources) // KEYS_AT_ONCE), 1)
    seed = secrets.token_bytes(16)
    found = []
    for number in range(rounds):
        table = KeyTable(seed)
        for source in sources:
            for batch in batches_of(source, ["key", "offset"]):
                entries = entries_of(batch, seed)
                if wanted is not None:
                    entries = entries[wanted(batch.column("key"))]
                table.merge(entries if rounds == 1 else entries[entries[:, 1] % np.uint64(rounds) == number])
        found.append(table.drain())
    offsets: Array = np.concatenate(found)
    offsets.sort()
    return offsets


def rows_at(sources: Sequence[Source], offsets: Array, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Pass 2: yield the rows that have these offsets (ascending) and a value, in the order of the files; the first of
    an offset, if two files should have it."""
    taken = np.zeros(len(offsets), np.bool_)
    for source in sources if len(offsets) else ():
        for batch in batches_of(source):
            mine = batch.column("offset").to_numpy(zero_copy_only=False)
            places = np.minimum(np.searchsorted(offsets, mine), len(offsets) - 1)
            last = (offsets[places] == mine) & ~taken[places]
            taken[places[last]] = True
            rows = batch.filter(pc.and_(pa.array(last), pc.is_valid(batch.column("value"))))
            if len(rows):
                yield from _in_parts(with_schema(pa.Table.from_batches([rows]), schema).to_batches())


def key_bytes(keys: pa.Array) -> tuple[Array, Array]:
    """Return all bytes of keys (binary or text, none null), and where each begins, and the last ends (int32); neither
    can be written to, so loops are compiled for one kind of them."""
    keys = keys.cast(pa.binary())
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    raw = np.frombuffer(keys.buffers()[2] or b"\0", np.uint8)
    raw.setflags(write=False)
    bounds.setflags(write=False)
    return raw, bounds


def entries_of(rows: pa.RecordBatch, seed: bytes) -> Array:
    """Return the entries of rows for a `KeyTable` with this seed (16 bytes)."""
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    offsets.setflags(write=False)
    return key_entries(*key_bytes(rows.column("key")), offsets, seed)


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of `schema`; columns and fields of structs that it lacks are null."""
    columns: Iterable[Any] = (
        _grown(table.column(f.name).combine_chunks(), f.type)
        if f.name in table.column_names
        else pa.nulls(table.num_rows, f.type)
        for f in schema
    )
    return pa.Table.from_arrays(list(columns), schema=schema)


def _in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        step = -(-len(batch) // max(-(-batch.nbytes // PART_BYTES), 1))
        for start in range(0, len(batch), step):
            yield batch.slice(start, step)


def _grown(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        parts = [
            _grown(column.field(f.name), f.type)
            if column.type.get_field_index(f.name) >= 0
            else pa.nulls(len(column), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    return column.cast(kind)
