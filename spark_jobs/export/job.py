"""Export topics to Parquet, Delta Lake or Iceberg, every acknowledged record once: a run continues where the last
commit ended.

    spark-submit spark_jobs/export.py --cluster-file DIR/cluster.json --topic flights --destination exports/flights

The last line printed is the summary as JSON. Exit status: 0 if all was exported (or nothing was new), 1 if the export
failed, or failed for the topics and partitions that the summary names under `topics_failed` and `failed`. An export
that fails after it has committed something prints the summary of that, with the reason as `error`.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.command import FAILED, run_job, say, told
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.executors import NEEDS, STORES
from logyard.spark_jobs.export import merges, offsets, options
from logyard.spark_jobs.export.account import Account
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.failures import FailedPartitions, PartitionsFailed, splits_or_failure
from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.following import clock, commit_next
from logyard.spark_jobs.export.leaders import Leaders
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.merging import Merging
from logyard.spark_jobs.export.modes import Appending, Upserting, Writing, WrittenPiece
from logyard.spark_jobs.export.pieces import Piece, Pieces
from logyard.spark_jobs.export.schema import ddl
from logyard.spark_jobs.export.schema.evolution import SchemaRefused, check_evolution
from logyard.spark_jobs.objects.store import StoreFailed
from logyard.spark_jobs.objects.urls import is_object_store
from logyard.spark_jobs.segments import splits
from logyard.spark_jobs.segments.replicas import Replica, check_topics, of_log_directory
from logyard.spark_jobs.segments.splits import Range, Split
from logyard.spark_jobs.segments.stable_offset import settled
from logyard.spark_jobs.session import SparkWorkers, Workers, need_rdds
from logyard.spark_jobs.tables.catalog import CatalogFailed, settings_of
from logyard.spark_jobs.tables.publisher import Publisher
from logyard.spark_jobs.tables.table_formats import in_catalog, publisher, settings

MEBIBYTE = 1024 * 1024
# Without --commit-mib, a version holds at least this much of the log, and this many splits per core of Spark.
COMMIT_MIB = 4096
SPLITS_PER_SLOT = 4


class LeasesGone(LogyardError):
    """A piece could not be committed because these leases were lost."""

    def __init__(self, lost: dict[TopicPartition, str]) -> None:
        super().__init__("; ".join(f"{tp}: {reason}" for tp, reason in lost.items()))
        self.lost = lost


def main(argv: Sequence[str] | None = None) -> int:
    """Run the export; returns the exit status."""
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__.split("\n\n")[0] if __doc__ else None)
    clusters.add_arguments(parser)
    options.add_arguments(parser)
    return run_job(parser, argv, export)


def export(arguments: argparse.Namespace, workers: Workers | None = None) -> tuple[int, dict[str, Any]]:
    """Export; returns the exit status and the summary, with `error` if it failed after something was committed. Raises
    what it failed by before that. Spark does the work unless `workers` are given."""
    began = time.monotonic()
    run = export_of(arguments, workers)
    try:
        summary = run.all()
    except Exception as problem:
        if not run.has_committed:
            raise
        summary = run.ended(problem)
    status = FAILED if summary["topics_failed"] or "error" in summary else 0
    return status, summary | {"seconds": round(time.monotonic() - began, 2)}


def export_of(arguments: argparse.Namespace, workers: Workers | None = None) -> "Export":
    """Return the run of an export that these options ask for. Spark does the work unless `workers` are given."""
    output = options.output_of(arguments)
    if workers is None:
        need_rdds("export")
        workers = (
            SparkWorkers("logyard export", needs=(*NEEDS, STORES))
            if is_object_store(arguments.destination)
            else SparkWorkers("logyard export", {} if arguments.catalog else settings(arguments.format))
        )
    return Export(arguments, output, workers)


class Export:
    """One run of an export."""

    def __init__(self, arguments: argparse.Namespace, output: Output, workers: Workers) -> None:
        self._arguments, self._output, self._workers = arguments, output, workers
        self._store = options.store_of(arguments)
        self._tables = self._publisher()
        self._writing = self._mode(output)
        self._run_id = clusters.run_id("export")
        self._leaders = Leaders(arguments, self._run_id, "export")
        self._committed_only = arguments.isolation == "read_committed"
        self._tries = 0
        self._failed = FailedPartitions(lambda text: say(f"export: {text}"))
        self._merging = Merging(self._store, workers, self._tables, self._run_id)
        self._account = Account(self._failed, self._merging)

    def _publisher(self) -> Publisher:
        arguments, objects = self._arguments, self._store.objects
        if arguments.catalog:
            return in_catalog(settings_of(arguments.catalog), arguments.table, self._output, objects)
        return publisher(arguments.format, self._workers, self._output, objects)

    def _mode(self, output: Output) -> Writing:
        if output.upsert:
            return Upserting(self._store, self._workers, output, self._arguments.bucket_mib * MEBIBYTE)
        return Appending(self._store, self._workers, output)

    def all(self) -> dict[str, Any]:
        """Publish what an earlier run left unpublished, export, merge small files; returns the summary."""
        self._tables.check()
        self._store.check()
        manifest = self._store.latest()
        layout = options.checked_layout(self._arguments, self._output, manifest)
        layout = {"id": uuid.uuid4().hex, **layout}
        layout, self._output = self._tables.begin(self._store, manifest, layout)
        self._writing = self._mode(self._output)
        self._clean()
        self._checkpoint()
        self._account.newest = manifest
        with self._leaders:
            self._account.ranges = ranges = self._ranges(manifest)
            self._failed.raise_if_none_left(r.replica.tp for r in ranges)
            manifest = self._export(ranges, manifest, layout)
            self._failed.raise_if_none_left(r.replica.tp for r in ranges)
        self._merge(manifest)
        return self._summary()

    @property
    def has_committed(self) -> bool:
        """Whether it has committed a version, published or not."""
        return self._account.has_committed

    def ended(self, problem: Exception) -> dict[str, Any]:
        """Return the summary of a run that failed: what it had committed, and `error`. Topics that were not done have
        failed."""
        error = told(problem)
        say(f"export: it ends here, and what is committed stays: {error}")
        self._failed.leave(self._account.unfinished(), error)
        return {**self._summary(), "error": error}

    def _summary(self) -> dict[str, Any]:
        return self._account.summary(mode=self._arguments.mode, kind=self._arguments.format)

    def _replicas(self) -> list[Replica]:
        """Return the leased leader replica of every partition, or the replicas of --log-dir."""
        arguments = self._arguments
        if arguments.log_dir:
            there = list(of_log_directory(arguments.log_dir, 0, arguments.topic))
            check_topics(f"--log-dir {arguments.log_dir}", there, arguments.topic)
            found = [self._failed.attempt(r.tp, partial(settled, r)) for r in there]
            return [replica for replica in found if replica is not None]
        if not arguments.topic:
            raise JobFailed("name the topics to export with --topic")
        return self._leaders.take(self._failed)

    def _export(self, ranges: Sequence[Range], manifest: Manifest, layout: dict[str, Any]) -> Manifest:
        """Export piece by piece, each as a version; returns the last version. If leases are lost on the way, they are
        taken again and the rest of their partitions is planned anew; the others go on as they are planned."""
        pieces, done = self._pieces(ranges), 0
        say(f"export: {pieces.offsets_left:,} offsets of {len(ranges)} partitions")
        while pieces.offsets_left:
            try:
                manifest, offsets_done = self._piece(pieces, manifest, layout)
            except PartitionsFailed as failed:
                self._give_up(failed.reasons)
                pieces.take_back(failed.reasons)
                continue
            except LeasesGone as gone:
                self._replan(pieces, gone, manifest)
                continue
            self._give_up(pieces.broken)
            if not offsets_done:
                continue
            done += offsets_done
            total = done + pieces.offsets_left
            say(
                f"export: version {manifest.version} is committed; {done:,} of {total:,} offsets"
                f" ({100 * done // total} %)"
            )
        return manifest

    def _pieces(self, ranges: Sequence[Range]) -> Pieces:
        """Return the pieces of all ranges but those whose log cannot be read."""
        while True:
            try:
                kept = [r for r in ranges if r.replica.tp not in self._failed.reasons]
                return Pieces(kept, splits_or_failure(self._splits))
            except PartitionsFailed as failed:
                self._give_up(failed.reasons)

    def _give_up(self, reasons: Mapping[TopicPartition, str]) -> None:
        for tp, reason in reasons.items():
            if tp not in self._failed.reasons:
                self._failed.give_up(tp, reason)

    def _replan(self, pieces: Pieces, gone: LeasesGone, manifest: Manifest) -> None:
        """Plan anew what is not committed of the partitions whose leases are lost, under new leases."""
        pieces.take_back()
        if lost := {tp: reason for tp, reason in gone.lost.items() if tp not in self._failed.reasons}:
            for replica in self._leaders.take_again(lost, self._failed):
                rest = pieces.rest(replica.tp)
                span = self._failed.attempt(replica.tp, partial(self._rest, replica, rest, manifest))
                if span is not None:
                    pieces.replan(span)
        pieces.take_back([tp for tp in gone.lost if tp in self._failed.reasons])

    def _rest(self, replica: Replica, rest: Range, manifest: Manifest) -> Range:
        """Return the range of a partition that is planned anew: up to the end of the first plan, since the next run
        exports what came since."""
        if replica.topic_id != rest.replica.topic_id:
            raise ExportRefused(
                f"topic {replica.topic} was deleted and created again while it was exported (id"
                f" {rest.replica.topic_id}, now {replica.topic_id}): run the export again"
            )
        found = self._range(replica, manifest)
        start = max(found.start, rest.start)
        return Range(replica, start, max(start, min(found.end, rest.end)))

    def _piece(self, pieces: Pieces, manifest: Manifest, layout: dict[str, Any]) -> tuple[Manifest, int]:
        """Write and commit the next piece; returns its version, and how many offsets it has (0: there is none left).
        Raises LeasesGone if a lost lease prevents it, PartitionsFailed if a log does."""
        self._tries += 1
        run_id, began = f"{self._run_id}-{self._tries}", clock()
        with self._store.working(run_id):
            try:
                piece = pieces.take(self._writing.piece_bytes(self._piece_bytes(), manifest))
                if piece is None:
                    return manifest, 0
                made = self._writing.write(piece, manifest, run_id)
            except Exception as error:
                # Spark wraps the errors of tasks, so the leases are checked, not the error's type.
                if lost := self._lost(pieces, failed=True):
                    raise LeasesGone(lost) from error
                raise
            if lost := self._lost(pieces):
                raise LeasesGone(lost)
            self._leaders.reset_attempts()
            return self._commit(manifest, layout, piece, made, run_id, began), piece.offsets

    def _lost(self, pieces: Pieces, *, failed: bool = False) -> dict[TopicPartition, str]:
        """Return the partitions whose leases are lost and still needed, and why."""
        lost = self._leaders.lost_leases(failed=failed)
        return {tp: reason for tp, reason in lost.items() if pieces.needs(tp)}

    def _piece_bytes(self) -> int:
        """Return how much of the log a version holds: at least enough splits to keep all executors busy."""
        arguments = self._arguments
        if arguments.commit_mib:
            return int(arguments.commit_mib) * MEBIBYTE
        return max(COMMIT_MIB, SPLITS_PER_SLOT * int(arguments.split_mib) * self._workers.slots()) * MEBIBYTE

    def _ranges(self, manifest: Manifest) -> list[Range]:
        """Return what is to be exported; partitions of which that cannot be told are given up."""
        planned = [self._planned(replica, manifest) for replica in self._replicas()]
        ranges = [span for span in planned if span is not None]
        mixed = offsets.made_again(ranges)
        for span in ranges:
            if (topic := span.replica.topic) in mixed:
                text = f"topic {topic} was deleted and created again while it was leased: run the export again"
                self._failed.give_up(span.replica.tp, ExportRefused(text))
        return [span for span in ranges if span.replica.topic not in mixed]

    def _planned(self, replica: Replica, manifest: Manifest) -> Range | None:
        """Return a partition's range; None if the partition is given up."""

        def plan() -> Range:
            self._check_schema(replica.topic, manifest)
            return self._range(replica, manifest)

        return self._failed.attempt(replica.tp, plan)

    def _range(self, replica: Replica, manifest: Manifest) -> Range:
        return offsets.plan_range(
            replica,
            manifest,
            committed_only=self._committed_only,
            allow_data_loss=self._arguments.allow_data_loss,
            accept_new_topic=self._arguments.accept_new_topic,
        )

    def _check_schema(self, topic: str, manifest: Manifest) -> None:
        """Raise SchemaRefused if this run's schema does not extend that of the topic's committed rows."""
        known = manifest.topics.get(topic)
        if known is None or not known.schema:
            return
        try:
            check_evolution(ddl.parse(known.schema), ddl.parse(ddl.render(self._output.schema)))
        except ddl.BadSchema as error:
            raise ExportRefused(f"the manifest's schema of {topic}: {error}") from error
        except SchemaRefused as error:
            raise SchemaRefused(f"{topic}: {error}") from None

    def _splits(self, span: Range) -> Iterator[Split]:
        return splits.plan_splits(
            span,
            committed_only=self._committed_only,
            columns=self._output.columns,
            split_bytes=self._arguments.split_mib * MEBIBYTE,
            words=options.words_of(self._output),
        )

    def _commit(
        self,
        manifest: Manifest,
        layout: dict[str, Any],
        piece: Piece,
        made: WrittenPiece,
        run_id: str,
        began: float,
    ) -> Manifest:
        known = [span.replica.cluster_id for span in piece.ranges if span.replica.cluster_id is not None]

        def following(newest: Manifest) -> Manifest | None:
            if newest is not manifest and (made.removed or newest.topics != manifest.topics):
                return None
            return newest.advanced(
                cluster_id=known[0] if known else None,
                run_id=run_id,
                topics=offsets.topic_offsets(piece.ranges, ddl.render(self._output.schema)),
                files=made.files,
                layout=layout,
                removed=made.removed,
            )

        def committed(version: Manifest) -> None:
            self._account.add(made, version)

        done = commit_next(self._store, self._tables, manifest, following, began, committed)
        self._checkpoint()
        return done

    def _clean(self) -> None:
        """Delete what dead runs left; in an object store a failure is only logged."""
        try:
            deleted = self._store.drop_stale_staging(lambda: self._tables.kept(self._store))
        except (StoreFailed, CatalogFailed) as error:
            say(f"export: what dead runs left is not deleted: {error}")
        else:
            if deleted:
                say(f"export: {deleted:,} objects that no version names are deleted")

    def _checkpoint(self) -> None:
        """Write a checkpoint of the manifests if one is due; a failure is only logged, since commits do not need it."""
        try:
            self._store.checkpoint()
        except (CorruptData, OSError, StoreFailed) as error:
            say(f"export: no checkpoint of the manifests was made: {error}")

    def _merge(self, manifest: Manifest) -> None:
        """Merge small files, in versions of their own."""
        arguments = self._arguments
        if arguments.format != "parquet" or self._output.upsert or not arguments.target_file_mib:
            return
        target = arguments.target_file_mib * MEBIBYTE
        plan = list(merges.plan_merges(self._store.live_files(), target, arguments.merge_files))
        self._merging.all(plan, manifest, self._piece_bytes() if plan else 0)
        self._checkpoint()


if __name__ == "__main__":
    sys.exit(main())
