"""Pass 1 of a partition whose keys do not fit one task: a task per segment hashes keys and deals them into buckets, a
task per bucket finds the last offset of its keys. The decision equals that of a single task.

The list of aborted transactions alone tells whether a data batch is aborted, so a task can begin at any segment. One
more task reads what needs all batches in order (markers, the last batches of producers) from the headers.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunk_survey import flags_of, offset_set, wanted_batches
from logyard.broker.compiled.chunks import Chunk
from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.key_table import H1, NEXT, KeyTable
from logyard.broker.errors import LogyardError
from logyard.spark_jobs.compact.survey import feed, judged_chunks
from logyard.spark_jobs.segments.files import SegmentFile

# A hashing task emits its keys whenever it holds this many: about 20 MB.
DEAL_KEYS = 1 << 19
BUCKETS_MAX = 4096
_U32 = np.uint64(32)


class HashedKeys(NamedTuple):
    """What a hashing task sends to a bucket: keys (n, 3: uint64, as KeyTable.entries), tombstones (n, 3: int64: offset,
    attributes, base timestamp of its batch), sums, or why it failed."""

    keys: bytes = b""
    tombstones: bytes = b""
    records: int = 0
    keyless: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """Result of one bucket: the last offsets of its keys (OffsetSet.encode), and which of them are tombstones."""

    offsets: bytes
    tombstones: bytes
    keys: int
    records: int
    keyless: int
    failure: str


def bucket_count(segments: Sequence[SegmentFile], range_end: int, keys_max: int) -> int:
    """Return how many buckets are needed so that each has at most `keys_max` keys, even if every record has its own."""
    span = range_end - segments[0].base_offset if segments else 0
    return min(max(-(-span * 5 // (4 * keys_max)), 2), BUCKETS_MAX)


def survey_in_order(segments: Iterable[SegmentFile], survey: Survey) -> Survey:
    """Feed the survey the batches that it has to see in order; raises CorruptBatch."""
    for segment in segments:
        for chunk in segment.chunks():
            wanted_batches(chunk, survey)
    return survey


def hash_segment(segment: SegmentFile, survey: Survey, seed: bytes, buckets: int) -> Iterator[tuple[int, HashedKeys]]:
    """Yield (bucket, keys) for all keys of the segment; `survey` cannot be used again."""
    table, tombstones = KeyTable(seed), [np.empty((0, 4), np.int64)]
    records = keyless = 0
    try:
        for chunk, wanted in judged_chunks(segment, survey):
            tombstones.append(_with_header(chunk, feed(table, chunk, wanted, segment.where)))
            if table.count >= DEAL_KEYS:
                records, keyless = records + table.records, keyless + table.keyless
                yield from _deal(table, np.concatenate(tombstones), buckets)
                table, tombstones = KeyTable(seed), tombstones[:1]
        yield from _deal(table, np.concatenate(tombstones), buckets)
    except (LogyardError, OSError) as error:
        yield 0, HashedKeys(failure=str(error))
        return
    yield 0, HashedKeys(b"", b"", records + table.records, keyless + table.keyless)


def _with_header(chunk: Chunk, tombstones: Array) -> Array:
    """Return tombstones as rows (offset, attributes, base timestamp, half of the key's hash)."""
    rows = chunk.headers[tombstones[:, 1]]
    return np.stack([tombstones[:, 0], flags_of(rows), rows[:, k.BASE_TIMESTAMP], tombstones[:, 2]], axis=1)


def _deal(table: KeyTable, tombstones: Array, buckets: int) -> Iterator[tuple[int, HashedKeys]]:
    entries = table.entries()
    # Tombstones that were superseded in this segment are not needed.
    tombstones = tombstones[np.isin(tombstones[:, 0], entries[:, NEXT].astype(np.int64) - 1)]
    keys_of = _bucket_of(entries[:, H1], buckets)
    tombstones_of = _bucket_of(tombstones[:, 3].astype(np.uint64), buckets)
    entries = entries[np.argsort(keys_of, kind="stable")]
    tombstones = tombstones[np.argsort(tombstones_of, kind="stable"), :3]
    key_ends = np.bincount(keys_of, minlength=buckets).cumsum().tolist()
    tombstone_ends = np.bincount(tombstones_of, minlength=buckets).cumsum().tolist()
    key_start = tombstone_start = 0
    for bucket, (key_end, tombstone_end) in enumerate(zip(key_ends, tombstone_ends, strict=True)):
        if key_end > key_start:
            keys = entries[key_start:key_end].tobytes()
            yield bucket, HashedKeys(keys, tombstones[tombstone_start:tombstone_end].tobytes())
        key_start, tombstone_start = key_end, tombstone_end


def _bucket_of(half: Array, buckets: int) -> Array:
    return (((half >> _U32) * np.uint64(buckets)) >> _U32).astype(np.int64)


def merge_bucket(pieces: Iterable[HashedKeys], seed: bytes) -> BucketKeys:
    """Find the last offset of every key of one bucket."""
    table, tombstones, failure = KeyTable(seed), [np.empty((0, 3), np.int64)], ""
    records = keyless = 0
    for piece in pieces:
        failure = failure or piece.failure
        records, keyless = records + piece.records, keyless + piece.keyless
        table.merge(np.frombuffer(piece.keys, np.uint64).reshape(-1, 3))
        tombstones.append(np.frombuffer(piece.tombstones, np.int64).reshape(-1, 3))
    offsets = table.drain()
    found = np.concatenate(tombstones)
    found = found[np.isin(found[:, 0], offsets)]
    packed = offset_set(offsets).encode()
    return BucketKeys(packed, found.tobytes(), table.count, records, keyless, failure)


def decide(survey: Survey, buckets: Sequence[BucketKeys]) -> Decision:
    """Return the decision from the survey in order and all buckets. Raises LogyardError with a failed task's text."""
    for bucket in buckets:
        if bucket.failure:
            raise LogyardError(bucket.failure)
    tombstones = np.concatenate([np.frombuffer(b.tombstones, np.int64).reshape(-1, 3) for b in buckets])
    for row in tombstones[np.argsort(tombstones[:, 0])].tolist():
        survey.tombstone(*row)
    survey.keyless = sum(b.keyless for b in buckets)
    offsets = np.concatenate([np.frombuffer(OffsetSet.decode(b.offsets).values, np.int64) for b in buckets])
    offsets.sort()
    return survey.decide_offsets(offset_set(offsets))


def survey_shuffled(
    context: Any, segments: Sequence[SegmentFile], new_survey: Callable[[], Survey], keys_max: int
) -> tuple[Decision, list[BucketKeys]]:
    """Run pass 1 over Spark: a task a segment, a task a bucket. Raises LogyardError."""
    count = bucket_count(segments, new_survey().range_end, keys_max)
    seed = secrets.token_bytes(16)

    def deal(segment: SegmentFile) -> Iterator[tuple[int, HashedKeys]]:
        return hash_segment(segment, new_survey(), seed, count)

    def merge(pieces: Iterator[tuple[int, HashedKeys]]) -> Iterator[BucketKeys]:
        yield merge_bucket((piece for _, piece in pieces), seed)

    def in_order(all_segments: list[SegmentFile]) -> tuple[Survey | None, str]:
        try:
            return survey_in_order(all_segments, new_survey()), ""
        except (LogyardError, OSError) as error:
            return None, str(error)

    dealt = context.parallelize(list(segments), max(len(segments), 1)).flatMap(deal)
    buckets = dealt.partitionBy(count, int).mapPartitions(merge).collect()
    survey, failure = context.parallelize([list(segments)], 1).map(in_order).collect()[0]
    if survey is None:
        raise LogyardError(failure)
    return decide(survey, buckets), buckets
