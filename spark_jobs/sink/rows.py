"""Arrow batches as records to send, and the digest that tells whether a rerun holds the same records.

Columns are those of Spark's Kafka sink (key, value, headers, topic, partition), and timestamp.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.sink.errors import CannotWrite

# Column → the types that it may have, as Spark names them.
COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
DIGEST_BYTES = 16
_MODULUS = 1 << (8 * DIGEST_BYTES)

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records, column by column, all of one length. Without a column each record has that column's default."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    topics: Sequence[str | None] | None = None
    partitions: Sequence[int | None] | None = None
    timestamps_ms: Sequence[int | None] | None = None
    headers: Sequence[Headers | None] | None = None

    def __len__(self) -> int:
        return len(self.values)


def check_schema(fields: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Raise BadOption if these columns (name, type as Spark names it) cannot be written."""
    names = [name for name, _ in fields]
    for name, kind in fields:
        if name not in COLUMNS:
            raise BadOption(f"column {name!r} cannot be written: select among {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise BadOption(f"column {name} is {kind}: {' or '.join(COLUMNS[name])} is expected")
    if "value" not in names:
        raise BadOption("there is no column value: select one (null values are tombstones)")
    if topic is None and "topic" not in names:
        raise BadOption("topic: give the option or a column of that name")


def rows_of(batch: pa.RecordBatch) -> Rows:
    """Return a batch's records. An option `topic` goes before a column of that name (the sender sees to it)."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    key, headers, timestamp = columns.get("key"), columns.get("headers"), columns.get("timestamp")
    return Rows(
        keys=[None] * batch.num_rows if key is None else key.cast(pa.binary()).to_pylist(),
        values=columns["value"].cast(pa.binary()).to_pylist(),
        topics=columns["topic"].to_pylist() if "topic" in columns else None,
        partitions=columns["partition"].to_pylist() if "partition" in columns else None,
        # Spark's timestamps are microseconds.
        timestamps_ms=None if timestamp is None else [_ms(us) for us in timestamp.cast(pa.int64()).to_pylist()],
        headers=None if headers is None else [_headers(one) for one in headers.to_pylist()],
    )


def _ms(microseconds: int | None) -> int | None:
    if microseconds is None:
        return None
    if microseconds < 0:
        raise CannotWrite("a timestamp lies before 1970: Kafka has no such times")
    return microseconds // 1000


def _headers(said: list[dict[str, Any]] | None) -> Headers | None:
    return None if said is None else [(one["key"], one["value"]) for one in said]


def digest(rows: Rows) -> int:
    """Return the sum of the records' hashes, so that order and batches do not matter; sum up batches with `add`.

    This is the largest part of a task's own work, so it goes through the records once, and adds up in numpy.
    """
    hashes = [
        blake2b(
            b"%d,%d,%b%b%b"
            % (-1 if key is None else len(key), -1 if value is None else len(value), key or b"", value or b"", more),
            digest_size=DIGEST_BYTES,
        ).digest()
        for key, value, more in zip(rows.keys, rows.values, _more(rows), strict=True)
    ]
    # In columns of 32 bits, so that no sum is larger than 64.
    columns = np.frombuffer(b"".join(hashes), "<u4").reshape(-1, DIGEST_BYTES // 4).sum(axis=0, dtype=np.uint64)
    return sum(int(column) << 32 * number for number, column in enumerate(columns)) % _MODULUS


def add(one: int, other: int) -> int:
    """Return the digest of two sets of records together."""
    return (one + other) % _MODULUS


def _more(rows: Rows) -> Iterable[bytes]:
    """What a record has beyond key and value, b"" where the rows have no such column."""
    columns = [column for column in (rows.topics, rows.partitions, rows.timestamps_ms, rows.headers) if column]
    if not columns:
        return repeat(b"", len(rows))
    return (repr(values).encode() for values in zip(*columns, strict=True))
