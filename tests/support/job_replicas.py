"""A model's log as a replica that a Spark job reads: `replica_of_log(tmp_path, log)`, fields replaced by keyword."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.compaction_model import Log
from tests.support.segment_files import write_partition


def replica_of_log(tmp_path: Path, log: Log, cuts: int = 4, **fields: Any) -> Replica:
    """Write a model's log as a partition's directory of about `cuts` segments; returns it as a job's replica."""
    step = max(len(log.batches) // cuts, 1)
    segments = [log.batches[i : i + step] for i in range(0, len(log.batches), step)]
    directory = write_partition(tmp_path / "log", "t-0", segments)
    aborted = tuple(AbortedTransaction(*row) for row in log.aborted_index())
    return replace(of_partition_directory(str(directory)), aborted=aborted, **fields)
