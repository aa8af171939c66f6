"""Keep an export's table in an Iceberg catalog small: rewrite small files, expire snapshots, delete what nobody names.

    spark-submit spark_jobs/maintenance.py --destination exports/flights --catalog catalog.json --table lake.flights

Exports and other programs may write to the table meanwhile. The last line printed is the summary as JSON. Exit status:
0 if all was done, 1 if the job failed, or could not delete the files that the summary names under `not_deleted`. A
job that fails after it has changed something prints the summary of that, with the reason as `error`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.cluster import run_id
from logyard.spark_jobs.command import FAILED, natural, positive, run_job, say, told
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.executors import NEEDS, STORES
from logyard.spark_jobs.export import merges, options, partition_columns
from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest import DATA, Manifest
from logyard.spark_jobs.export.merging import Merging
from logyard.spark_jobs.maintenance.expiry import Expiry
from logyard.spark_jobs.objects.store import StoreFailed
from logyard.spark_jobs.objects.urls import is_object_store
from logyard.spark_jobs.session import SparkWorkers, Workers, need_rdds
from logyard.spark_jobs.tables.catalog import CatalogFailed, CatalogTable, IcebergCatalog, settings_of
from logyard.spark_jobs.tables.catalog_table import CatalogPublisher, url_of

MEBIBYTE = 1024 * 1024
HOUR_MS = 3_600_000
# A version holds at least this much of merged files, and this many files for each of Spark's cores.
COMMIT_BYTES, MERGES_PER_SLOT = 4096 * MEBIBYTE, 4
FAILURES_TOLD = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maintenance.py", description=__doc__.split("\n\n")[0] if __doc__ else None)
    add_arguments(parser)
    return run_job(parser, argv, maintain)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's options."""
    options.add_destination(parser)
    options.add_merging(parser)
    add = parser.add_argument
    add(
        "--older-than-hours",
        type=natural,
        metavar="H",
        help="expire snapshots this long after the next one took their place (the table's setting, or 120)",
    )
    add("--keep", type=positive, metavar="N", help="keep this many snapshots (the table's setting, or 1)")
    add("--output", metavar="FILE", help="write the JSON summary there too")


def maintain(arguments: argparse.Namespace, workers: Workers | None = None) -> tuple[int, dict[str, Any]]:
    """Do it; returns the exit status and the summary. Spark does the work unless `workers` are given."""
    began = time.monotonic()
    if not (arguments.catalog and arguments.table):
        raise JobFailed("maintenance is of a table in an Iceberg catalog: give --catalog and --table")
    if workers is None:
        need_rdds("maintenance")
        needs = (*NEEDS, STORES) if is_object_store(arguments.destination) else NEEDS
        workers = SparkWorkers("logyard maintenance", needs=needs)
    summary = Maintenance(arguments, workers).all()
    status = FAILED if "error" in summary else 0
    return status, summary | {"seconds": round(time.monotonic() - began, 2)}


class Maintenance:
    """One run."""

    def __init__(self, arguments: argparse.Namespace, workers: Workers) -> None:
        self._arguments, self._workers = arguments, workers
        self._store = options.store_of(arguments)
        catalog = IcebergCatalog(
            settings_of(arguments.catalog), {} if self._store.objects is None else self._store.objects.settings
        )
        self._publisher = CatalogPublisher(catalog, arguments.table, _partitioned(self._store.latest()))

    def all(self) -> dict[str, Any]:
        """Rewrite, expire, clean; returns the summary, with `error` if it failed after something was changed."""
        self._store.check()
        table, manifest = self._publisher.caught_up(self._store)
        arguments = self._arguments
        merging = Merging(self._store, self._workers, self._publisher, run_id("maintenance"), table.ids)
        age = None if arguments.older_than_hours is None else arguments.older_than_hours * HOUR_MS
        expiry = Expiry(self._publisher, self._store, age, arguments.keep)
        reason, error = "", ""
        version = manifest.version
        try:
            reason = self._rewrite(table, manifest, merging)
            expiry.all()
            self._clean()
            version = self._store.latest().version
        except Exception as problem:
            if not (merging.merged or expiry.forgotten or expiry.deleted):
                raise
            error = told(problem)
            say(f"maintenance: it ends here, and what is done stays: {error}")
        failed = sorted(expiry.not_deleted.items())
        if failed and not error:
            error = f"{len(failed):,} files could not be deleted: {': '.join(failed[0])}"
        return {
            "job": "maintenance",
            "table": arguments.table,
            "destination": self._store.directory,
            "manifest_version": max(version, merging.version),
            "files_merged": merging.merged,
            "files_made": merging.made,
            "bytes_before": merging.bytes_before,
            "bytes_after": merging.bytes_after,
            "merges_overtaken": merging.overtaken,
            "not_rewritten": reason,
            "snapshots_expired": expiry.forgotten,
            "snapshots_left": expiry.left,
            "not_expired": expiry.refused,
            "files_deleted": expiry.deleted,
            "not_deleted": len(failed),
            "first_not_deleted": dict(failed[:FAILURES_TOLD]),
            **({"error": error} if error else {}),
        }

    def _rewrite(self, table: CatalogTable, manifest: Manifest, merging: Merging) -> str:
        """Merge small files; returns why that was not possible, "" if it was."""
        if manifest.layout.get("mode") == "upsert":
            return "an upsert writes its files anew itself"
        if not self._arguments.target_file_mib:
            return "--target-file-mib is 0"
        there = table.history(lambda history: history.files())
        if there is None:
            return "another program deleted rows by delete files: rewrite the table with that program"
        home = url_of(self._store.directory)
        # What another program rewrote is no more in the table, and its rows must not come back.
        files = [f for f in self._store.live_files() if f["table"] != DATA or f"{home}/{f['path']}" in there]
        target = self._arguments.target_file_mib * MEBIBYTE
        plan = list(merges.plan_merges(files, target, self._arguments.merge_files))
        if plan:
            merging.all(plan, manifest, max(COMMIT_BYTES, MERGES_PER_SLOT * target * self._workers.slots()))
        return ""

    def _clean(self) -> None:
        """Delete what dead runs left, and write a checkpoint of the manifests; a failure is only logged."""
        try:
            self._store.drop_stale_staging(lambda: self._publisher.kept(self._store))
            self._store.checkpoint()
        except (StoreFailed, CatalogFailed, CorruptData, OSError) as error:
            say(f"maintenance: what dead runs left is not deleted, or no checkpoint was made: {error}")


def _partitioned(manifest: Manifest) -> Output:
    """Return what the publisher has to know of the export's files."""
    text = str(manifest.layout.get("partition_by", ""))
    return Output((), partition_by=partition_columns.parse(text.split(",")) if text else ())


if __name__ == "__main__":
    sys.exit(main())
