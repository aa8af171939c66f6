"""Export topics to Parquet, every acknowledged record once: a run goes on where the last committed one ended.

    spark-submit spark_jobs/export.py --cluster-file DIR/cluster.json --topic flights --destination exports/flights

The last line printed is the summary as JSON. Exit status: 0 done (also if there was nothing new), 1 not done.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs import session
from logyard.spark_jobs.leases import Heartbeats, Lease, LeaseError, end_leases
from logyard.spark_jobs.manifest import Manifest, ManifestStore, TopicProgress
from logyard.spark_jobs.outcome import run_job, say
from logyard.spark_jobs.plans import exporting
from logyard.spark_jobs.plans.exporting import Range, Split, Written
from logyard.spark_jobs.replicas import Replica, of_leased, of_log_directory


def main(argv: Sequence[str] | None = None) -> int:
    """Run the export; returns the exit status."""
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__.split("\n")[0] if __doc__ else None)
    clusters.add_arguments(parser)
    parser.add_argument(
        "--destination", required=True, metavar="DIR", help="where the export lives; executors must see it too"
    )
    parser.add_argument("--log-dir", metavar="PATH", help="export a directory of a stopped broker instead of a cluster")
    parser.add_argument("--columns", default=",".join(exporting.COLUMNS), metavar="A,B,…", help="columns to write")
    parser.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_committed")
    parser.add_argument("--split-mib", type=int, default=64, metavar="MIB", help="log bytes per file (64)")
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="go on behind offsets deleted before they were exported"
    )
    parser.add_argument(
        "--accept-new-topic", action="store_true", help="export a topic that was made again from its start"
    )
    return run_job(parser, argv, export)


def export(arguments: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Do the export; returns the exit status and the summary."""
    began = time.monotonic()
    columns = exporting.check_columns(arguments.columns.split(","))
    store = ManifestStore(arguments.destination)
    manifest = store.latest()
    store.finish_moves(manifest)
    store.drop_stale_staging()
    run_id = clusters.run_id("export")
    with ExitStack() as stack:
        leases: list[Lease] = []
        beats = stack.enter_context(Heartbeats(leases, arguments.lease_ttl_s * 1000))
        stack.callback(end_leases, leases, "the export is over")
        replicas = _replicas(arguments, run_id, leases)
        ranges = _ranges(arguments, replicas, manifest)
        splits = _splits(arguments, ranges, columns)
        stack.callback(store.drop_staging, run_id)
        say(f"export: {sum(s.end - s.start for s in splits):,} offsets in {len(splits)} files to write")
        written = _write(splits, store, run_id)
        beats.beat()
        if beats.lost:
            raise session.JobFailed(f"a lease was lost, nothing was committed: {next(iter(beats.lost.values()))}")
        if any(r.start < r.end for r in ranges):
            manifest = _commit(store, manifest, run_id, ranges, written)
    return 0, _summary(manifest, ranges, written, time.monotonic() - began)


def _replicas(arguments: argparse.Namespace, run_id: str, leases: list[Lease]) -> list[Replica]:
    """Return the leader's replica of every partition, leased."""
    if arguments.log_dir:
        replicas = list(of_log_directory(arguments.log_dir, 0, arguments.topic))
        if not replicas:
            raise session.JobFailed(f"--log-dir {arguments.log_dir}: no partition directory was found")
        return replicas
    if not arguments.topic:
        raise session.JobFailed("name the topics to export with --topic")
    cluster = clusters.connect(arguments)
    for tp, place in cluster.partitions(arguments.topic):
        try:
            lease = cluster.lease(place.leader, tp, run_id, "export")
        except LeaseError as error:
            raise session.JobFailed(f"{tp}: no lease on its leader: {error}") from error
        leases.append(lease)
        if not lease.is_leader:
            raise session.JobFailed(f"{tp}: broker {place.leader} no longer leads it; run the export again")
    return [of_leased(lease) for lease in leases]


def _ranges(arguments: argparse.Namespace, replicas: Sequence[Replica], manifest: Manifest) -> list[Range]:
    return [
        exporting.plan_range(
            replica,
            manifest,
            committed_only=arguments.isolation == "read_committed",
            allow_data_loss=arguments.allow_data_loss,
            accept_new_topic=arguments.accept_new_topic,
        )
        for replica in replicas
    ]


def _splits(arguments: argparse.Namespace, ranges: Sequence[Range], columns: tuple[str, ...]) -> list[Split]:
    return [
        split
        for span in ranges
        if span.start < span.end
        for split in exporting.plan_splits(
            span,
            committed_only=arguments.isolation == "read_committed",
            columns=columns,
            split_bytes=arguments.split_mib * 1024 * 1024,
        )
    ]


def _write(splits: Sequence[Split], store: ManifestStore, run_id: str) -> list[Written]:
    """Write the files in Spark; no session is started where there is nothing to write."""
    if not splits:
        return []
    spark = session.start("logyard export")
    session.check_executors(spark)
    directory, staging = store.directory, store.staging(run_id)

    def work(part: list[Split]) -> list[Written]:
        return [exporting.write_split(split, directory, staging) for split in part]

    bins = session.bins_by_size(splits, lambda s: s.position_end - s.position, session.task_count(spark))
    return [w for answer in session.run_each(spark, bins, work) for w in answer]


def _commit(
    store: ManifestStore, manifest: Manifest, run_id: str, ranges: Sequence[Range], written: Sequence[Written]
) -> Manifest:
    offsets: dict[str, dict[int, int]] = defaultdict(dict)
    for span in ranges:
        offsets[span.replica.topic][span.replica.partition] = span.end
    ids = {span.replica.topic: span.replica.topic_id for span in ranges}
    files = [w.to_json() for w in sorted(written, key=lambda w: (w.topic, w.partition, w.start)) if w.path is not None]
    known = [span.replica.cluster_id for span in ranges if span.replica.cluster_id is not None]
    following = manifest.advanced(
        cluster_id=known[0] if known else manifest.cluster_id,
        run_id=run_id,
        topics={name: TopicProgress(ids[name], partitions) for name, partitions in offsets.items()},
        files=files,
    )
    store.commit(following)
    store.finish_moves(following)
    return following


def _summary(manifest: Manifest, ranges: Sequence[Range], written: Sequence[Written], seconds: float) -> dict[str, Any]:
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
        "topics": sorted({span.replica.topic for span in ranges}),
        "manifest_version": manifest.version,
        "rows": sum(w.rows for w in written),
        "bytes": sum(w.bytes for w in written),
        "files": sum(w.path is not None for w in written),
        "offsets": partitions,
        "checksum": f"{int(digest) & (2**64 - 1):016x}",
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
