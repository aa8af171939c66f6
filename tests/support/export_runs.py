"""Runs of the export over a log directory that grows between them, in this process."""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from logyard.spark_jobs import cluster
from logyard.spark_jobs.export import job, options
from logyard.spark_jobs.session import Workers
from tests.support.batches import Batch, Rec, batch
from tests.support.here_workers import HereWorkers
from tests.support.segment_files import write_partition


class Flights:
    """A log directory that grows between runs, and the export of it."""

    def __init__(self, root: Path, workers: Workers | None = None) -> None:
        self._workers = workers or HereWorkers()
        self.root, self.log, self.target = root, root / "log", root / "export"
        self.records: list[Rec] = []

    def grow(self, pairs: Sequence[tuple[bytes | None, bytes | None]], step_ms: int = 1) -> None:
        """Append records and write the partition anew, a batch for each four and a segment for each three batches."""
        at = len(self.records)
        self.records += [Rec(at + i, key, value, (at + i) * step_ms) for i, (key, value) in enumerate(pairs)]
        batches: list[Batch] = [batch(self.records[i : i + 4]) for i in range(0, len(self.records), 4)]
        shutil.rmtree(self.log, ignore_errors=True)
        write_partition(self.log, "t-0", [batches[i : i + 3] for i in range(0, len(batches), 3)])

    def again(self, other: "Flights") -> "Flights":
        """Be the same log and export as another, with these workers."""
        self.records = list(other.records)
        return self

    def run(self, *words: str) -> dict[str, Any]:
        """Export all; returns the summary. Raises what the export fails by, also after a commit."""
        summary = job.export_of(self.given(*words), self._workers).all()
        assert summary["topics_failed"] == {}
        told: dict[str, Any] = json.loads(json.dumps(summary))
        return told

    def given(self, *words: str) -> argparse.Namespace:
        """The export's options."""
        parser = argparse.ArgumentParser()
        cluster.add_arguments(parser)
        options.add_arguments(parser)
        given = ["--log-dir", str(self.log), "--destination", str(self.target), *words]
        return parser.parse_args(given)

    def rows(self, table: str = "data") -> list[dict[str, Any]]:
        paths = sorted((self.target / table).rglob("*.parquet"))
        rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
        return sorted(rows, key=lambda row: row["offset"])

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows()]


def pairs(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (i % 5), b"v%d" % i) for i in range(count)]
