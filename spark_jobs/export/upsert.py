"""A table of the latest row of each key: new rows are scattered to buckets by key, then every bucket with new rows is
rewritten. A tombstone removes its key's row.

Rule 1: a key's bucket is its hash modulo a power of two, so when a partition grows, buckets split in halves.
Rule 2: within a partition the larger offset wins; a bad record (schema/formats.py) never replaces a good one.
Rule 3: a partition's rows never replace those of another partition, as in the log itself.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.kernels import Array
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.files import (
    DIRECTORIES_MAX,
    OpenFile,
    Output,
    Staged,
    WrittenFile,
    WrittenSplit,
    added,
    read_split,
    written,
)
from logyard.spark_jobs.export.latest_rows import Source, key_bytes, last_offsets, rows_at
from logyard.spark_jobs.export.manifest import DATA
from logyard.spark_jobs.export.places.bucket import SCATTERED
from logyard.spark_jobs.export.places.place import RunFiles
from logyard.spark_jobs.export.staged_files import NotShared
from logyard.spark_jobs.segments.digests import key_hashes
from logyard.spark_jobs.segments.splits import Split

BUCKET_BYTES = 128 * 1024 * 1024
# How many bytes of unpacked rows a task holds before it writes the latest of each key and goes on. With these, the part
# of the log that is read, and what waits for its row group, it stays below 1 GB, however well batches are compressed.
HELD_BYTES = 64 * 1024 * 1024
NEEDED = ("offset", "key", "value")
_CROWD = f"the rows of one task go to more than {DIRECTORIES_MAX} buckets: give --bucket-mib more"


def bucket_count(total_bytes: int, before: int, bucket_bytes: int = BUCKET_BYTES) -> int:
    """Return how many buckets a partition has: a power of two, never fewer than `before`."""
    count = max(before, 1)
    while count * bucket_bytes < total_bytes:
        count *= 2
    return count


def buckets_of(keys: pa.Array, count: int) -> Array:
    """Return each key's bucket (int64). Keys are binary or text, none null."""
    if count == 1 or not len(keys):
        return np.zeros(len(keys), np.int64)
    raw, bounds = key_bytes(keys)
    places = np.zeros((len(keys), k.RECORD_COLUMNS), np.int64)
    places[:, k.KEY_AT], places[:, k.KEY_SIZE] = bounds[:-1], np.diff(bounds)
    # Shifted: the lowest bit of a key's digest is always set.
    return (key_hashes(raw, places) >> 1) & (count - 1)


def latest(rows: pa.Table) -> pa.Table:
    """Return each key's row with the largest offset, in order of offsets."""
    last = rows.select(["key", "offset"]).group_by("key").aggregate([("offset", "max")]).column("offset_max")
    kept = rows.filter(pc.is_in(rows.column("offset"), value_set=last))
    offsets = np.from_dlpack(kept.column("offset").combine_chunks())
    return kept if (offsets[1:] > offsets[:-1]).all() else kept.sort_by("offset")  # no copy of what is in order


def scatter(split: Split, output: Output, buckets: int, files: RunFiles) -> WrittenSplit:
    """Write the latest rows of a split to a file for each bucket; dead letters go to their table.

    A file has several rows of a key if the split has more rows than are held at once: whoever reads it takes the last.
    """
    staged = Staged(files, crowd=_CROWD)
    total, count, size = np.int64(0), 0, 0
    held: list[pa.RecordBatch] = []
    try:
        for rows in read_split(split, output):
            total = added(total, rows.digest)
            staged.add_dead(split, rows)
            held.append(rows.good.select(output.schema.names))
            count += len(rows.good)
            size += held[-1].nbytes
            if size >= HELD_BYTES:
                _scatter_latest(held, staged, split, output, buckets)
                size = 0
        _scatter_latest(held, staged, split, output, buckets)
        done = staged.finish()
    finally:
        staged.close()
    made = written(split, [file for file in done if file.table != DATA], total)
    return replace(made, rows=count, scattered=tuple(file for file in done if file.table == DATA))


def _scatter_latest(held: list[pa.RecordBatch], staged: Staged, split: Split, output: Output, buckets: int) -> None:
    """Add the latest of some rows to the files of their buckets; `held` is empty then."""
    home = scattered(split.segment.topic, split.segment.partition)
    kept = latest(pa.Table.from_batches(held, output.schema))
    held.clear()
    for batch in kept.to_batches():
        mine = buckets_of(batch.column("key"), buckets)
        for bucket in np.unique(mine).tolist():
            part = batch.filter(pa.array(mine == bucket))
            staged.add(DATA, os.path.join(home, str(bucket), split.name), part, np.int64(0))


def scattered(topic: str, partition: int) -> str:
    """Return the path of a partition's scattered rows in the staging directory, which has a directory per bucket."""
    return os.path.join(SCATTERED, topic, str(partition))


def by_bucket(made: Iterable[WrittenSplit]) -> dict[tuple[str, int, int], list[WrittenFile]]:
    """Return the scattered files by (topic, partition, bucket)."""
    found: dict[tuple[str, int, int], list[WrittenFile]] = defaultdict(list)
    for one in made:
        for file in one.scattered:
            found[one.topic, one.partition, int(os.path.basename(os.path.dirname(file.path)))].append(file)
    return found


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket to rewrite. `before`: the manifest's rows of committed files that may hold rows of it; `news`: the
    files that this run scattered. `run_id` makes the new file's name one that no file had before."""

    topic: str
    partition: int
    bucket: int
    buckets: int
    end: int
    before: tuple[Mapping[str, Any], ...]
    news: tuple[WrittenFile, ...]
    run_id: str = ""


def plan_buckets(
    topic: str,
    partition: int,
    buckets: int,
    end: int,
    live: Sequence[Mapping[str, Any]],
    news: Mapping[tuple[str, int, int], Sequence[WrittenFile]],
    run_id: str = "",
) -> list[Bucket]:
    """Return the buckets with new rows, and those whose file splits. `live`: the partition's committed files."""
    plan = []
    held: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    for file in live:
        held[int(file["buckets"]), int(file["bucket"])].append(file)
    counts = sorted({count for count, _ in held})
    for bucket in range(buckets):
        before = tuple(f for count in counts for f in held.get((count, bucket % count), ()))
        fresh = tuple(sorted(news.get((topic, partition, bucket), ()), key=attrgetter("path")))
        if fresh or any(int(f["buckets"]) != buckets for f in before):
            plan.append(Bucket(topic, partition, bucket, buckets, end, before, fresh, run_id))
    return plan


def write_bucket(bucket: Bucket, output: Output, files: RunFiles) -> tuple[WrittenFile, ...]:
    """Rewrite a bucket; returns no file if no row is left. Raises ExportRefused, NotShared, CorruptData."""
    sources = [_committed(files, f) for f in bucket.before] + [_scattered(files, file) for file in bucket.news]
    # Files of fewer buckets have rows of others, too.
    splits = any(int(f["buckets"]) != bucket.buckets for f in bucket.before)
    last = last_offsets(sources, (lambda keys: buckets_of(keys, bucket.buckets) == bucket.bucket) if splits else None)
    path = os.path.join(DATA, bucket.topic, str(bucket.partition), _name(bucket))
    file = OpenFile(DATA, path, files, output.schema, output.ids)
    is_empty = True
    try:
        for batch in rows_at(sources, last, output.schema):
            file.add(batch, np.int64(0))
            file.flush_full()
            is_empty = False
        return () if is_empty else (file.finish(),)
    finally:
        file.drop()


def to_json(bucket: Bucket, file: WrittenFile) -> dict[str, Any]:
    """Return the manifest's row for a bucket's file."""
    return file.to_json() | {
        "topic": bucket.topic,
        "partition": bucket.partition,
        "start": 0,
        "end": bucket.end,
        "digest": 0,
        "bucket": bucket.bucket,
        "buckets": bucket.buckets,
    }


def size_of(bucket: Bucket) -> int:
    """Return approximately how many bytes a bucket has to read."""
    return sum(int(f["bytes"]) for f in bucket.before) + 1


def _name(bucket: Bucket) -> str:
    words = "\n".join([bucket.run_id, *sorted(str(f["path"]) for f in bucket.before)])
    digest = hashlib.sha256(words.encode()).hexdigest()[:12]
    return f"b-{bucket.bucket:05d}-of-{bucket.buckets:05d}-{bucket.end:020d}-{digest}.parquet"


def _committed(files: RunFiles, file: Mapping[str, Any]) -> Source:
    path = str(file["path"])
    try:
        return Source(files.open(path), files.where(path), int(file["rows"]))
    except FileNotFoundError:
        raise ExportRefused(f"{files.where(path)} is gone: another export of this directory is running") from None


def _scattered(files: RunFiles, file: WrittenFile) -> Source:
    try:
        return Source(files.open(file.staged), files.where(file.staged), file.rows)
    except FileNotFoundError:
        raise NotShared(
            f"another executor wrote {files.where(file.staged)}, and this one does not see it: executors do not share"
            f" {files.place}:"
            " nothing was committed; give a --destination that is one directory for all of them"
        ) from None
