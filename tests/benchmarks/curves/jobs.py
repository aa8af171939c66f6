"""What an export's driver does alone, and what Airflow does to read our DAGs."""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.pieces import Pieces
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import Range, Split
from tests.benchmarks.curves.points import Curve
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition

ROOT = Path(__file__).resolve().parents[3]
SEGMENTS_OF_A_PARTITION, SEGMENT_BYTES, PIECE_BYTES = 10, 64 << 20, 8 << 30
FILES_OF_A_VERSION = 4
LAST = 20  # versions whose commits are timed
PARSED = """
import importlib.util, json, sys, time
import airflow.sdk, airflow.triggers.base, airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.hitl
begun = time.process_time()
for number, path in enumerate(sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(f"dag_{number}", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
print(json.dumps(time.process_time() - begun))
"""


def segments(sizes: Sequence[int]) -> Curve:
    """Plan the pieces of an export of so many segments, ten a partition."""
    curve = Curve("segments-of-an-export", "segments")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        folder = write_partition(Path(directory), "t-0", [[batch([Rec(0, b"k", b"v")])]])
        replica = of_partition_directory(str(folder))
        for size in sizes:
            curve.add(size, {"pieces planned, CPU ms": _cpu_ms(partial(_plan, replica, size))})
    return curve


def _plan(replica: Replica, size: int) -> None:
    spans = [
        Range(replace(replica, partition=number), 0, SEGMENTS_OF_A_PARTITION)
        for number in range(size // SEGMENTS_OF_A_PARTITION)
    ]

    def splits_of(span: Range) -> Iterator[Split]:
        segment = SegmentFile("t", span.replica.partition, 0, 0, SEGMENT_BYTES, {}, "")
        return (Split(segment, 0, SEGMENT_BYTES, n, n + 1, (), True, (), "hash") for n in range(span.start, span.end))

    pieces, taken = Pieces(spans, splits_of), 0
    while (piece := pieces.take(PIECE_BYTES)) is not None:
        taken += len(piece.splits)
    assert taken == size, f"{taken} of {size} segments planned"


def versions(sizes: Sequence[int]) -> Curve:
    """A manifest with so many versions: what the next commits cost, and reading which files live."""
    curve = Curve("versions-of-a-manifest", "versions")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            curve.add(size, _versions(directory, size))
    return curve


def _versions(directory: str, size: int) -> Mapping[str, float]:
    parquet = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), parquet)

    def commit(store: ManifestStore, first: int, count: int) -> None:
        for version in range(first, first + count):
            paths = [f"data/t/part-{version:08}-{n}.parquet" for n in range(FILES_OF_A_VERSION)]
            for path in paths:
                file = Path(directory, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(parquet.getvalue())
            files = tuple({"path": path, "staged": path, "rows": 1, "bytes": parquet.tell()} for path in paths)
            store.commit(Manifest(version, "c", f"run-{version}", files=files))
            store.checkpoint()

    commit(ManifestStore(directory), 1, size)
    used = _cpu_ms(lambda: commit(ManifestStore(directory), size + 1, LAST))
    read = _cpu_ms(lambda: _check_live(directory, (size + LAST) * FILES_OF_A_VERSION))
    # Trimmed versions are names of one file.
    found = {status.st_ino: status.st_blocks * 512 for status in map(os.stat, Path(directory, "_manifest").iterdir())}
    kept = sum(found.values())
    return {
        "a commit, CPU ms": used / LAST,
        "live files read, CPU ms": read,
        "manifest on disk, kB": kept / 1000,
    }


def _check_live(directory: str, wanted: int) -> None:
    found = len(ManifestStore(directory).live_files())
    assert found == wanted, f"{found} of {wanted} files"


def dags(sizes: Sequence[int]) -> Curve:
    """So many of our DAG files read by one process, as Airflow's processor reads them."""
    curve = Curve("dags", "DAGs")
    found = sorted(str(path) for path in (ROOT / "dags").glob("logyard_*.py"))
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        environment = {**os.environ, "AIRFLOW_HOME": home}
        for size in sizes:
            command = [sys.executable, "-c", PARSED, *found[:size]]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            took = float(json.loads(done.stdout.splitlines()[-1]))
            curve.add(
                min(size, len(found)), {"parsed, CPU s": took, "each, CPU ms": took / min(size, len(found)) * 1e3}
            )
    return curve


def _cpu_ms(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000
