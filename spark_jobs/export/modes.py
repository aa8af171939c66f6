"""The two modes of an export: `append` writes every record, `upsert` the latest of each key."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.export import options, upsert
from logyard.spark_jobs.export.failures import answers, guarded
from logyard.spark_jobs.export.files import Output, WrittenFile, WrittenSplit, write_split
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.pieces import Piece
from logyard.spark_jobs.export.upsert import Bucket
from logyard.spark_jobs.segments.splits import Split
from logyard.spark_jobs.session import Workers


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """What was written for a piece: results of its tasks, the manifest's rows of new files, and paths that these
    replace."""

    written: tuple[WrittenSplit, ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()
    removed: tuple[str, ...] = ()


class Writing(Protocol):
    """A mode."""

    def piece_bytes(self, wanted: int, manifest: Manifest) -> int:
        """Return how many bytes of the log a piece should have, if the option asks for `wanted`."""
        ...

    def write(self, piece: Piece, manifest: Manifest, run_id: str) -> WrittenPiece:
        """Write a piece's files into the run's staging directory; raises PartitionsFailed if a log is damaged."""
        ...


class Appending:
    """Every record, once."""

    def __init__(self, store: ManifestStore, workers: Workers, output: Output) -> None:
        self._store, self._workers, self._output = store, workers, output

    def piece_bytes(self, wanted: int, manifest: Manifest) -> int:
        return wanted

    def write(self, piece: Piece, manifest: Manifest, run_id: str) -> WrittenPiece:
        output, files = self._output, self._store.files(run_id)

        def write(split: Split) -> WrittenSplit:
            return write_split(split, output, files)

        written = answers(self._workers.each("export", piece.splits, _size, guarded(write)))
        return WrittenPiece(tuple(written), tuple(_rows(written, output)))


class Upserting:
    """The latest row of each key: new rows are scattered to buckets, and buckets with new rows are rewritten."""

    def __init__(self, store: ManifestStore, workers: Workers, output: Output, bucket_bytes: int) -> None:
        self._store, self._workers, self._output, self._bucket_bytes = store, workers, output, bucket_bytes

    def piece_bytes(self, wanted: int, manifest: Manifest) -> int:
        """Return at least the size of the table: each piece may rewrite all of it, so pieces of a constant size would
        rewrite it ever more often as it grows."""
        return max(wanted, sum(int(f["bytes"]) for f in self._store.live_files() if f["table"] == DATA))

    def write(self, piece: Piece, manifest: Manifest, run_id: str) -> WrittenPiece:
        output, files = self._output, self._store.files(run_id)
        live = self._live_by_partition(piece, manifest)
        counts = _bucket_counts(piece.splits, live, self._bucket_bytes)

        def scatter(split: Split) -> WrittenSplit:
            buckets = counts[TopicPartition(split.segment.topic, split.segment.partition)]
            return upsert.scatter(split, output, buckets, files)

        written = answers(self._workers.each("export", piece.splits, _size, guarded(scatter)))
        self._store.confirm([f.to_json() for w in written for f in w.scattered])
        plan = self._buckets(piece, live, counts, upsert.by_bucket(written), run_id)

        def write(bucket: Bucket) -> tuple[Bucket, tuple[WrittenFile, ...]]:
            return bucket, upsert.write_bucket(bucket, output, files)

        made = self._workers.each("upsert", plan, upsert.size_of, write)
        made.sort(key=lambda one: (one[0].topic, one[0].partition, one[0].bucket))
        rows = [upsert.to_json(bucket, file) for bucket, found in made for file in found]
        replaced = sorted({str(f["path"]) for bucket in plan for f in bucket.before})
        removed = (*replaced, *self._outdated(piece, manifest))
        return WrittenPiece(tuple(written), (*_rows(written, output), *rows), removed)

    def _buckets(
        self,
        piece: Piece,
        live: Mapping[TopicPartition, Sequence[Any]],
        counts: Mapping[TopicPartition, int],
        news: Mapping[tuple[str, int, int], Sequence[WrittenFile]],
        run_id: str,
    ) -> list[Bucket]:
        ends = {r.replica.tp: r.end for r in piece.ranges}
        plan: list[Bucket] = []
        for tp, count in sorted(counts.items()):
            plan += upsert.plan_buckets(*tp, count, ends[tp], live.get(tp, []), news, run_id)
        return plan

    def _live_by_partition(self, piece: Piece, manifest: Manifest) -> dict[TopicPartition, list[Any]]:
        """Return the committed files of the table by partition, without those of topics that were created again."""
        known = {r.replica.topic: manifest.topics.get(r.replica.topic) for r in piece.ranges}
        same = {
            r.replica.topic for r in piece.ranges if (k := known[r.replica.topic]) and k.topic_id == r.replica.topic_id
        }
        live: dict[TopicPartition, list[Any]] = defaultdict(list)
        for file in self._store.live_files():
            if file["table"] == DATA and file["topic"] in same:
                live[TopicPartition(str(file["topic"]), int(file["partition"]))].append(file)
        return live

    def _outdated(self, piece: Piece, manifest: Manifest) -> list[str]:
        """Return the paths of files of topics that were deleted and created again."""
        ids = {r.replica.topic: r.replica.topic_id for r in piece.ranges}
        gone = {name for name, known in manifest.topics.items() if name in ids and known.topic_id != ids[name]}
        return [str(f["path"]) for f in self._store.live_files() if f["table"] == DATA and f["topic"] in gone]


def _size(split: Split) -> int:
    return split.size


def _rows(written: Sequence[WrittenSplit], output: Output) -> list[dict[str, Any]]:
    """Return the manifest's rows of files, in an order that does not depend on which task ended first."""
    schema = options.schema_id(output)
    ordered = sorted(written, key=lambda w: (w.topic, w.partition, w.start))
    rows = [row for w in ordered for row in w.to_json()]
    return [row | {"schema": schema if row["table"] == DATA else ""} for row in rows]


def _bucket_counts(
    splits: Sequence[Split], live: Mapping[TopicPartition, Sequence[Any]], bucket_bytes: int
) -> dict[TopicPartition, int]:
    """Return how many buckets each partition with new rows has: by the bytes of its log and of its files."""
    news: dict[TopicPartition, int] = defaultdict(int)
    for split in splits:
        news[TopicPartition(split.segment.topic, split.segment.partition)] += split.size
    counts = {}
    for tp, size in news.items():
        files = live.get(tp, [])
        before = max((int(f["buckets"]) for f in files), default=1)
        counts[tp] = upsert.bucket_count(size + sum(int(f["bytes"]) for f in files), before, bucket_bytes)
    return counts
