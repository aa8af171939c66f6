"""Export topics to Parquet, Delta Lake or Iceberg, every acknowledged record once: a run goes on where the last
committed one ended.

    spark-submit spark_jobs/export.py --cluster-file DIR/cluster.json --topic flights --destination exports/flights

The last line printed is the summary as JSON. Exit status: 0 done (also if there was nothing new), 1 not done.
"""

import argparse
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from logyard.broker.errors import CorruptData
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs import ddl, export_options, session
from logyard.spark_jobs.evolution import SchemaRefused, check_evolution
from logyard.spark_jobs.leases import Heartbeats, Lease, end_leases
from logyard.spark_jobs.manifest import DATA, Manifest, ManifestStore
from logyard.spark_jobs.outcome import run_job, say
from logyard.spark_jobs.plans import exporting, merging, upserting
from logyard.spark_jobs.plans.exporting import ExportRefused, Range, Split
from logyard.spark_jobs.plans.upserting import Bucket
from logyard.spark_jobs.plans.writing import File, Output, Written, write_split
from logyard.spark_jobs.replicas import Replica, of_leased, of_log_directory
from logyard.spark_jobs.session import SparkWorkers, Workers
from logyard.spark_jobs.stability import settled
from logyard.spark_jobs.staged import check_seen
from logyard.spark_jobs.tables.publishing import publisher, settings

MEBIBYTE = 1024 * 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run the export; returns the exit status."""
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__.split("\n\n")[0] if __doc__ else None)
    clusters.add_arguments(parser)
    export_options.add_arguments(parser)
    return run_job(parser, argv, export)


def export(arguments: argparse.Namespace, workers: Workers | None = None) -> tuple[int, dict[str, Any]]:
    """Do the export; returns the exit status and the summary. Without `workers`, Spark's are used."""
    began = time.monotonic()
    output = export_options.output_of(arguments)
    workers = workers or SparkWorkers("logyard export", settings(arguments.format))
    run = Export(arguments, output, workers)
    return 0, run.all() | {"seconds": round(time.monotonic() - began, 2)}


class Export:
    """One run, step by step."""

    def __init__(self, arguments: argparse.Namespace, output: Output, workers: Workers) -> None:
        self._arguments, self._output, self._workers = arguments, output, workers
        self._store = ManifestStore(export_options.directory_of(arguments.destination))
        self._tables = publisher(arguments.format, workers, output)
        self._run_id = clusters.run_id("export")
        self._committed_only = arguments.isolation == "read_committed"

    def all(self) -> dict[str, Any]:
        """Finish what was left undone, export, merge; returns the summary."""
        self._tables.check()
        manifest = self._store.latest()
        layout = export_options.checked_layout(self._arguments, self._output, manifest)
        if self._store.is_unpublished(manifest):
            self._tables.publish(self._store, manifest)
        self._store.drop_stale_staging()
        self._tend()
        with ExitStack() as stack:
            leases: list[Lease] = []
            beats = stack.enter_context(Heartbeats(leases, self._arguments.lease_ttl_s * 1000))
            stack.callback(end_leases, leases, "the export is over")
            replicas = self._replicas(leases)
            ranges = [self._range(replica, manifest) for replica in replicas]
            for topic in sorted({r.replica.topic for r in ranges}):
                self._check_schema(topic, ranges, manifest)
            stack.enter_context(self._store.working(self._run_id))
            written, files, removed = self._write(ranges, manifest)
            beats.beat()
            if beats.lost:
                raise session.JobFailed(f"a lease was lost, nothing was committed: {next(iter(beats.lost.values()))}")
            if any(r.start < r.end for r in ranges):
                manifest = self._commit(manifest, layout, ranges, files, removed)
        merged, manifest = self._merge(manifest)
        return {**self._summary(manifest, ranges, written, files), "merged_files": merged}

    def _replicas(self, leases: list[Lease]) -> list[Replica]:
        """Return the leader's replica of every partition, leased."""
        arguments = self._arguments
        if arguments.log_dir:
            replicas = [settled(r) for r in of_log_directory(arguments.log_dir, 0, arguments.topic)]
            if not replicas:
                raise session.JobFailed(f"--log-dir {arguments.log_dir}: no partition directory was found")
            return replicas
        if not arguments.topic:
            raise session.JobFailed("name the topics to export with --topic")
        cluster = clusters.connect(arguments)
        for tp, _ in cluster.partitions(arguments.topic):
            leases.append(cluster.lease_leader(tp, self._run_id, "export"))
        return [of_leased(lease) for lease in leases]

    def _range(self, replica: Replica, manifest: Manifest) -> Range:
        return exporting.plan_range(
            replica,
            manifest,
            committed_only=self._committed_only,
            allow_data_loss=self._arguments.allow_data_loss,
            accept_new_topic=self._arguments.accept_new_topic,
        )

    def _check_schema(self, topic: str, ranges: Sequence[Range], manifest: Manifest) -> None:
        """Raise SchemaRefused where the topic's committed rows have a schema that this run's do not fit."""
        known = manifest.topics.get(topic)
        if known is None or not known.schema:
            return
        try:
            check_evolution(ddl.parse(known.schema), ddl.parse(ddl.render(self._output.schema)))
        except ddl.BadSchema as error:
            raise ExportRefused(f"the manifest's schema of {topic}: {error}") from error
        except SchemaRefused as error:
            raise SchemaRefused(f"{topic}: {error}") from None

    def _write(
        self, ranges: Sequence[Range], manifest: Manifest
    ) -> tuple[list[Written], list[dict[str, Any]], list[str]]:
        """Write the files; returns what tasks said, what the manifest is to say of files, and paths to take out."""
        splits = [split for span in ranges if span.start < span.end for split in self._splits(span)]
        say(f"export: {sum(s.end - s.start for s in splits):,} offsets in {len(splits)} files to write")
        output, directory, staging = self._output, self._store.directory, self._store.staging(self._run_id)
        if not output.upsert:

            def write(split: Split) -> Written:
                return write_split(split, output, directory, staging)

            written = self._workers.each("export", splits, _split_size, write)
            return written, self._rows(written), []

        live = self._live_by_partition(ranges, manifest)
        counts = _bucket_counts(splits, live, self._arguments.bucket_mib * MEBIBYTE)

        def scatter(split: Split) -> Written:
            buckets = counts[split.segment.topic, split.segment.partition]
            return upserting.scatter(split, output, buckets, directory, staging)

        written = self._workers.each("export", splits, _split_size, scatter)
        check_seen(directory, (f.to_json() for w in written for f in w.scattered))
        files, removed = self._buckets(ranges, live, counts, upserting.by_bucket(written))
        return written, self._rows(written) + files, removed + self._outdated(ranges, manifest)

    def _splits(self, span: Range) -> list[Split]:
        return list(
            exporting.plan_splits(
                span,
                committed_only=self._committed_only,
                columns=self._output.columns,
                split_bytes=self._arguments.split_mib * MEBIBYTE,
                words=export_options.words_of(self._output),
            )
        )

    def _rows(self, written: Sequence[Written]) -> list[dict[str, Any]]:
        """What the manifest says of files, in one order whoever wrote them first."""
        schema = export_options.schema_id(self._output)
        ordered = sorted(written, key=lambda w: (w.topic, w.partition, w.start))
        rows = [row for w in ordered for row in w.to_json()]
        return [row | {"schema": schema if row["table"] == DATA else ""} for row in rows]

    def _live_by_partition(self, ranges: Sequence[Range], manifest: Manifest) -> dict[tuple[str, int], list[Any]]:
        """The committed files of the latest rows, of topics that are still the same."""
        known = {r.replica.topic: manifest.topics.get(r.replica.topic) for r in ranges}
        same = {r.replica.topic for r in ranges if (k := known[r.replica.topic]) and k.topic_id == r.replica.topic_id}
        live: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for file in self._store.live_files():
            if file["table"] == DATA and file["topic"] in same:
                live[str(file["topic"]), int(file["partition"])].append(file)
        return live

    def _outdated(self, ranges: Sequence[Range], manifest: Manifest) -> list[str]:
        """The latest rows of topics that were deleted and made again."""
        ids = {r.replica.topic: r.replica.topic_id for r in ranges}
        gone = {name for name, known in manifest.topics.items() if name in ids and known.topic_id != ids[name]}
        return [str(f["path"]) for f in self._store.live_files() if f["table"] == DATA and f["topic"] in gone]

    def _buckets(
        self,
        ranges: Sequence[Range],
        live: dict[tuple[str, int], list[Any]],
        counts: dict[tuple[str, int], int],
        news: dict[tuple[str, int, int], list[File]],
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Write the buckets that have news; returns their files and the paths of those that they replace."""
        output, directory, staging = self._output, self._store.directory, self._store.staging(self._run_id)
        ends = {(r.replica.topic, r.replica.partition): r.end for r in ranges}
        plan: list[Bucket] = []
        for place, count in sorted(counts.items()):
            plan += upserting.plan_buckets(*place, count, ends[place], live.get(place, []), news)

        def write(bucket: Bucket) -> tuple[Bucket, Any]:
            return bucket, upserting.write_bucket(bucket, output, directory, staging)

        made = self._workers.each("upsert", plan, upserting.size_of, write)
        made.sort(key=lambda one: (one[0].topic, one[0].partition, one[0].bucket))
        files = [upserting.to_json(bucket, file) for bucket, found in made for file in found]
        return files, sorted({str(f["path"]) for bucket in plan for f in bucket.before})

    def _commit(
        self,
        manifest: Manifest,
        layout: dict[str, Any],
        ranges: Sequence[Range],
        files: Sequence[dict[str, Any]],
        removed: Sequence[str],
    ) -> Manifest:
        known = [span.replica.cluster_id for span in ranges if span.replica.cluster_id is not None]
        following = manifest.advanced(
            cluster_id=known[0] if known else None,
            run_id=self._run_id,
            topics=exporting.progress(ranges, ddl.render(self._output.schema)),
            files=files,
            layout={"id": uuid.uuid4().hex, **layout},
            removed=removed,
        )
        self._store.commit(following)
        self._tables.publish(self._store, following)
        self._tend()
        return following

    def _tend(self) -> None:
        """Keep the manifests short; what is committed is committed, whether that works or not."""
        try:
            self._store.tend()
        except (CorruptData, OSError) as error:
            say(f"export: no checkpoint of the manifests was made: {error}")

    def _merge(self, manifest: Manifest) -> tuple[int, Manifest]:
        """Merge small files in a version of its own; returns how many went, and the newest version."""
        arguments = self._arguments
        if arguments.format != "parquet" or self._output.upsert or not arguments.target_file_mib:
            return 0, manifest
        target = arguments.target_file_mib * MEBIBYTE
        plan = list(merging.plan_merges(self._store.live_files(), target, arguments.merge_files))
        if not plan:
            return 0, manifest
        run_id = f"{self._run_id}-merge"
        directory, staging = self._store.directory, self._store.staging(run_id)

        def write(merge: merging.Merge) -> dict[str, Any]:
            return merging.write_merge(merge, directory, staging)

        with self._store.working(run_id):
            files = self._workers.each("merge", plan, lambda m: m.bytes, write)
            files.sort(key=lambda row: str(row["path"]))
            removed = [str(f["path"]) for m in plan for f in m.files]
            following = manifest.advanced(run_id=run_id, files=files, removed=removed)
            self._store.commit(following)
            self._store.finish_moves(following)
            self._tend()
        return len(removed), following

    def _summary(
        self,
        manifest: Manifest,
        ranges: Sequence[Range],
        written: Sequence[Written],
        files: Sequence[dict[str, Any]],
    ) -> dict[str, Any]:
        with np.errstate(over="ignore"):
            digest = np.array([w.digest for w in written], np.int64).sum() if written else np.int64(0)
        partitions = {
            str(span.replica.tp): {
                "start": span.start,
                "end": span.end,
                "rows": sum(w.rows for w in written if (w.topic, w.partition) == span.replica.tp),
            }
            for span in ranges
        }
        return {
            "job": "export",
            "mode": self._arguments.mode,
            "format": self._arguments.format,
            "topics": sorted({span.replica.topic for span in ranges}),
            "manifest_version": manifest.version,
            "rows": sum(w.rows for w in written),
            "dead_letters": sum(w.bad_rows for w in written),
            "bytes": sum(int(f["bytes"]) for f in files),
            "files": len(files),
            "offsets": partitions,
            "checksum": f"{int(digest) & (2**64 - 1):016x}",
        }


def _split_size(split: Split) -> int:
    return split.position_end - split.position


def _bucket_counts(
    splits: Sequence[Split], live: dict[tuple[str, int], list[Any]], bucket_bytes: int
) -> dict[tuple[str, int], int]:
    """Into how many buckets each partition with news goes: by the log's bytes and those of its files."""
    news: dict[tuple[str, int], int] = defaultdict(int)
    for split in splits:
        news[split.segment.topic, split.segment.partition] += _split_size(split)
    counts = {}
    for place, size in news.items():
        files = live.get(place, [])
        before = max((int(f["buckets"]) for f in files), default=1)
        counts[place] = upserting.bucket_count(size + sum(int(f["bytes"]) for f in files), before, bucket_bytes)
    return counts


if __name__ == "__main__":
    sys.exit(main())
