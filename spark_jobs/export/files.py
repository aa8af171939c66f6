"""Writing one split's files, in a task: its rows to files of the table, records that do not fit their format to files
of the dead-letter table."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest import DATA, DEAD_LETTERS
from logyard.spark_jobs.export.partition_columns import PartitionColumn, directories
from logyard.spark_jobs.export.places.place import NewFile, RunFiles
from logyard.spark_jobs.export.schema.formats import BadRecord, Formats, good_rows
from logyard.spark_jobs.export.statistics import leaves, statistics_of, with_ids
from logyard.spark_jobs.segments.splits import Split, field_of, split_rows

ROW_GROUP_BYTES = 64 * 1024 * 1024
DIRECTORIES_MAX = 512
_CROWD = f"--partition-by makes more than {DIRECTORIES_MAX} directories of one file's records: choose a coarser pattern"
# A column gets a dictionary if at most half of the values in a sample this large are different.
SAMPLE_ROWS = 4096
SAMPLE_BYTES = 256 * 1024
DEAD_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DEAD_SCHEMA = pa.schema([*(field_of(c) for c in DEAD_COLUMNS), ("side", pa.string()), ("reason", pa.string())])
_RISING = ("offset", "timestamp", "sequence")
# Spark, Hive and others read no file whose name begins so, even if it is named to them.
_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Output:
    """The contents of the files: columns in order, formats of key and value, partition columns; `upsert`: only the
    latest row of each key. `ids`: for a table in a catalog its columns' ids, by names with dots (empty before the table
    is loaded); such files keep the columns by which they are partitioned."""

    columns: tuple[str, ...]
    formats: Formats = field(default_factory=Formats)
    partition_by: tuple[PartitionColumn, ...] = ()
    upsert: bool = False
    ids: Mapping[str, int] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema without partition columns (the names of directories hold those)."""
        named = {column.name for column in self.partition_by} if self.ids is None else ()
        return pa.schema([self.formats.field(c) or field_of(c) for c in self.columns if c not in named])

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The columns to decode: those written, and those that dead letters and names of directories need."""
        extra: tuple[str, ...] = ()
        sides = (self.formats.key, self.formats.value)
        if self.upsert or any(side.name != "binary" and side.side in self.columns for side in sides):
            extra = DEAD_COLUMNS
        elif self.partition_by:
            extra = ("timestamp",)
        return tuple(dict.fromkeys([*self.columns, *extra]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Output, (self.columns, self.formats, self.partition_by, self.upsert, self.ids)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file; `path` and `staged` are relative to the export's directory. `table` is DATA or DEAD_LETTERS, `stats`
    what a catalog's table keeps of the file (export/statistics.py)."""

    table: str
    path: str
    staged: str
    rows: int
    bytes: int
    digest: int
    stats: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        stats = {} if self.stats is None else {"stats": dict(self.stats)}
        return stats | {
            "table": self.table,
            "rows": self.rows,
            "bytes": self.bytes,
            "digest": self.digest,
            "path": self.path,
            "staged": self.staged,
        }


@dataclass(frozen=True, slots=True)
class WrittenSplit:
    """What a task wrote for one split: counts of rows and dead letters, the digest of all, and the files; `scattered`:
    an upsert's files that are merged into buckets next."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bad_rows: int
    digest: int
    files: tuple[WrittenFile, ...]
    scattered: tuple[WrittenFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the manifest's rows for its files."""
        owner = {"topic": self.topic, "partition": self.partition, "start": self.start, "end": self.end}
        return [owner | file.to_json() for file in self.files]


def write_split(split: Split, output: Output, files: RunFiles) -> WrittenSplit:
    """Write one split's files, which no reader sees yet; raises CorruptBatch if the log is damaged."""
    staged = Staged(files, output.ids)
    total = np.int64(0)
    try:
        for rows in read_split(split, output):
            total = added(total, rows.digest)
            staged.add_dead(split, rows)
            _spread(staged, split, output, rows.good, rows.hashes)
        made = staged.finish()
    finally:
        staged.close()
    return written(split, made, total)


def written(split: Split, files: Sequence[WrittenFile], total: Any) -> WrittenSplit:
    """Return what a task returns for a split."""
    owner = (split.segment.topic, split.segment.partition, split.start, split.end)
    counts = [sum(f.rows for f in files if f.table == table) for table in (DATA, DEAD_LETTERS)]
    return WrittenSplit(*owner, counts[0], counts[1], int(total), tuple(files))


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a split: those that fit their formats and their digests, dead letters and their digests."""

    good: pa.RecordBatch
    hashes: Any
    dead: pa.RecordBatch | None
    dead_hashes: Any

    @property
    def digest(self) -> Any:
        return added(added(np.int64(0), self.hashes), self.dead_hashes)


def read_split(split: Split, output: Output) -> Iterator[Rows]:
    """Yield a split's rows in the output's formats; of an upsert, a record without a key is a dead letter."""
    split = replace(split, columns=output.needed)
    for batch, hashes in split_rows(split, hashed=True):
        assert hashes is not None, "they were asked for"
        good, bad = output.formats.apply(batch, output.columns)
        if output.upsert:
            keyless = np.flatnonzero(batch.column("key").is_null().to_numpy(zero_copy_only=False)).tolist()
            bad += [BadRecord(row, "key", "it has none, and rows are told apart by it") for row in keyless]
        if not bad:
            yield Rows(good, hashes, None, hashes[:0])
            continue
        mask = good_rows(len(batch), bad)
        yield Rows(good.filter(pa.array(mask)), hashes[mask], dead_letters(batch, bad), hashes[~mask])


def added(total: Any, hashes: Any) -> Any:
    """Return a wrapping sum of digests (int64)."""
    with np.errstate(over="ignore"):
        return total + np.int64(np.sum(hashes))


def dead_letters(raw: pa.RecordBatch, bad: Sequence[BadRecord]) -> pa.RecordBatch:
    """Return the dead-letter rows of bad records, one for each record, as its bytes were, in order of offsets."""
    first = {one.row: one for one in reversed(bad)}
    rows = sorted(first)
    taken = raw.select(DEAD_COLUMNS).take(pa.array(rows, pa.int64()))
    sides = [pa.array([first[r].side for r in rows], pa.string()), pa.array([first[r].reason for r in rows])]
    return pa.RecordBatch.from_arrays([*taken.columns, *sides], schema=DEAD_SCHEMA)


def _spread(staged: "Staged", split: Split, output: Output, batch: pa.RecordBatch, hashes: Any) -> None:
    """Add the rows to the files of their directories."""
    if not len(batch):
        return
    topic, name = split.segment.topic, split.name
    plain = batch.select(output.schema.names)
    if not output.partition_by:
        staged.add(DATA, os.path.join(DATA, topic, str(split.segment.partition), name), plain, hashes)
        return
    # Several topics and partitions may share a directory: each has its own files there.
    name = f"{topic}-{split.segment.partition}-{name}"
    if name.startswith(_HIDDEN):
        name = f"p-{name}"
    # A record without a time (arrow.record_batch) goes where records with impossible times go.
    times = batch.column("timestamp").cast(pa.int64()).fill_null(2**62).to_numpy(zero_copy_only=False)
    found, rows = directories(output.partition_by, topic, times)
    for index, place in enumerate(found):
        mask = rows == index
        part = plain if len(found) == 1 else plain.filter(pa.array(mask))
        staged.add(DATA, os.path.join(DATA, place, name), part, hashes[mask])


class Staged:
    """The open files of a split: rows are held until a row group is full, then every file with rows writes one."""

    def __init__(self, files: RunFiles, ids: Mapping[str, int] | None = None, crowd: str = _CROWD) -> None:
        """:param ids: as in `Output`; dead letters have none.
        :param crowd: what is said if there are more than DIRECTORIES_MAX files.
        """
        self._files, self._ids, self._crowd = files, ids, crowd
        self._open: dict[tuple[str, str], OpenFile] = {}
        self._held = 0

    def add(self, table: str, path: str, batch: pa.RecordBatch, hashes: Any) -> None:
        """Add rows to one file; `hashes` are their digests or the sum of these."""
        if (table, path) not in self._open:
            if len(self._open) >= DIRECTORIES_MAX:
                raise ExportRefused(self._crowd)
            ids = self._ids if table == DATA else None
            self._open[table, path] = OpenFile(table, path, self._files, batch.schema, ids)
        self._open[table, path].add(batch, hashes)
        self._held += batch.nbytes
        if self._held >= ROW_GROUP_BYTES:
            for file in self._open.values():
                file.flush()
            self._held = 0

    def add_dead(self, split: Split, rows: Rows) -> None:
        """Add a split's dead letters."""
        if rows.dead is not None:
            path = os.path.join(DEAD_LETTERS, split.segment.topic, str(split.segment.partition), split.name)
            self.add(DEAD_LETTERS, path, rows.dead, rows.dead_hashes)

    def finish(self) -> list[WrittenFile]:
        """Finish the files."""
        return [file.finish() for _, file in sorted(self._open.items())]

    def close(self) -> None:
        """Remove what was not finished."""
        for file in self._open.values():
            file.drop()


class OpenFile:
    """One Parquet file, which nobody sees until it is complete."""

    def __init__(
        self, table: str, path: str, files: RunFiles, schema: pa.Schema, ids: Mapping[str, int] | None = None
    ) -> None:
        self._table, self._path, self._files, self._schema, self._ids = table, path, files, schema, ids
        self._footers: list[pq.FileMetaData] = []
        self._new: NewFile | None = None
        self._pending: list[pa.RecordBatch] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows, self._held, self._digest = 0, 0, np.int64(0)

    def add(self, batch: pa.RecordBatch, hashes: Any) -> None:
        """Add rows; `hashes` are their digests or the sum of these."""
        self._pending.append(batch)
        self._rows += len(batch)
        self._held += batch.nbytes
        self._digest = added(self._digest, hashes)

    def flush_full(self) -> None:
        """Write a row group if there is enough for one."""
        if self._held >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows held so far as a row group."""
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        if self._writer is None:
            self._new = self._files.create(self._path)
            self._writer = open_parquet(self._new.target, table, self._ids, self._footers)
        self._writer.write_table(table)
        self._pending, self._held = [], 0

    def finish(self) -> WrittenFile:
        """Close the file and put it where the run keeps its files."""
        self.flush()
        assert self._writer is not None, "a file is opened with its first rows"
        assert self._new is not None, "its writer has a target"
        self._writer.close()
        self._writer = None
        made = self._new.finish()
        self._new = None
        stats = None if self._ids is None else statistics_of(self._footers[0], self._schema, self._ids)
        return WrittenFile(self._table, made.path, made.staged, self._rows, made.bytes, int(self._digest), stats)

    def drop(self) -> None:
        """Remove what was not finished."""
        new, self._new = self._new, None
        try:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        finally:
            if new is not None:
                new.drop()


def open_parquet(
    path: Any,
    sample: pa.Table,
    ids: Mapping[str, int] | None = None,
    footers: list[pq.FileMetaData] | None = None,
) -> pq.ParquetWriter:
    """Open a file (a path or an open file) for tables like `sample`.

    Columns are encoded by what the sample shows: rising numbers as deltas, repeating values by dictionary, and values
    that hardly shrink uncompressed. Values and headers get no statistics, since no query compares them.

    :param ids: of an Iceberg table's columns: the file has them, and times in microseconds, as Iceberg's readers want.
    :param footers: gets the file's metadata when it is closed.
    """
    found = [leaf.path for leaf in leaves(sample.schema)]
    sides = [name for name in ("key", "value") if name in found]
    rising = [name for name in _RISING if name in found]
    plain = {*rising, *(name for name in sides if not _repeats(sample.column(name)))}
    dense = {name for name in sides if name in plain and not _shrinks(sample.column(name))}
    return pq.ParquetWriter(
        path,
        sample.schema if ids is None else with_ids(sample.schema, ids),
        compression={leaf: "none" if leaf in dense else "zstd" for leaf in found},
        use_dictionary=[leaf for leaf in found if leaf not in plain],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[leaf for leaf in found if leaf != "value" and not leaf.startswith("headers.")],
        coerce_timestamps=None if ids is None else "us",
        metadata_collector=footers,
    )


def _repeats(column: pa.ChunkedArray) -> bool:
    few = column.slice(0, SAMPLE_ROWS)
    return len(pc.unique(few)) * 2 <= len(few)


def _shrinks(column: pa.ChunkedArray) -> bool:
    """Whether compression takes a tenth or more off text or bytes."""
    data = b"".join(v for v in column.slice(0, SAMPLE_ROWS).cast(pa.binary()).to_pylist() if v)[:SAMPLE_BYTES]
    return not data or len(pa.compress(data, "zstd", asbytes=True)) * 10 <= len(data) * 9
