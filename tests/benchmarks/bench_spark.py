"""EXPORT, the data source and COMPACT of many partitions: MB/s of the log, two tasks at a time, each beside its own
ceiling of this run.

The ceiling of EXPORT is what writes the same columns as the same Parquet when they are decoded already, by two
processes without Spark. That of the data source is what Spark takes of ready Arrow batches, with nothing read or
decoded. That of COMPACT are tasks that read, check and decompress the same bytes and write a quarter of them.
"""

import argparse
import io
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from logyard.broker.compiled.key_table import KeyTable
from logyard.spark_jobs import cluster, session, source
from logyard.spark_jobs.compact import survey as spark_survey
from logyard.spark_jobs.data_source.rows import SCHEMA
from logyard.spark_jobs.export import job, options
from logyard.spark_jobs.export.files import open_parquet
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import of_partition_directory
from logyard.spark_jobs.segments.splits import COLUMNS, Range, Split, plan_splits, split_rows
from tests.benchmarks import bench_compact
from tests.benchmarks.harness import MEGABYTE, Row

SIZE = 256 * MEGABYTE
DISTINCT = 64 * MEGABYTE
SEGMENT_BYTES = 64 * MEGABYTE
BATCH_BYTES = 16 * 1024
VALUES = {"100 B": 100, "1 KiB": 1024}
WANTED_EXPORT = {"100 B": 250, "1 KiB": 280}
WANTED_SOURCE = 300
WANTED_COMPACT = {"100 B": 350, "100 B lz4": 100, "1 KiB": 600}
PARTITIONS = 8
ROUNDS = 3
SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value")


def measure(directory: Path, size: int = SIZE) -> list[Row]:
    """Every row of this file; two or three minutes at full size."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    rows = []
    spark = _session()
    try:
        for name, value_bytes in VALUES.items():
            log = directory / str(value_bytes)
            written = _write_log(log, value_bytes, size)
            ceiling = max(_parquet_ceiling(log, directory) for _ in range(ROUNDS))
            pace = _best(written, lambda log=log: _export(log, directory / f"out-{time.monotonic_ns()}"))
            note = f"wanted: {WANTED_EXPORT[name]}; ceiling: Parquet of decoded columns"
            rows.append(Row(f"EXPORT, values of {name}, 2 tasks", pace, "MB/s", ceiling=ceiling, note=note))
            ceiling = _best(written, lambda log=log: _ready_batches(spark, log))
            pace = _best(written, lambda log=log: _read(spark, log))
            note = f"wanted: {WANTED_SOURCE}; ceiling: a source of ready Arrow batches"
            rows.append(Row(f"data source, 7 columns, values of {name}", pace, "MB/s", ceiling=ceiling, note=note))
        for name, value_bytes, codec in bench_compact.KINDS:
            rows.append(
                _compact_row(spark, name, directory / f"compact-{value_bytes}-{codec}", value_bytes, codec, size)
            )
    finally:
        spark.stop()
    return rows


def _session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    spark = (
        builder.config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config(source.PUSH_DOWN, "true")
        .getOrCreate()
    )
    source.register(spark)
    spark.dataSource.register(ReadySource)
    return spark


def _best(size: int, work: Any) -> float:
    """MB/s of the best of the rounds, the first (compilers, caches) left out."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return size / MEGABYTE / best


def _write_log(root: Path, value_bytes: int, size: int) -> int:
    """Write `events-0` and return its bytes: batches of 16 KiB, keys of 16 bytes, random values, one tombstone in 97.

    After DISTINCT bytes the same batches come again at later offsets (a base offset is in no checksum).
    """
    home = root / "events-0"
    home.mkdir(parents=True)
    batches = [_batch(n, value_bytes) for n in range(min(size, DISTINCT) // BATCH_BYTES)]
    offset, total, turn = 0, 0, 0
    while total < size:
        base = offset
        with (home / f"{base:020d}.log").open("wb") as file:
            while file.tell() < SEGMENT_BYTES and total < size:
                data, count = batches[turn % len(batches)]
                file.write(offset.to_bytes(8, "big") + data[8:])
                offset, total, turn = offset + count, total + len(data), turn + 1
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nevents 0 {offset}\n")
    return total


def _batch(number: int, value_bytes: int) -> tuple[bytes, int]:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_BYTES,
    )
    at = 0
    noise = os.urandom(BATCH_BYTES)
    while True:
        place = at * value_bytes % (BATCH_BYTES - value_bytes)
        value = None if (number + at) % 97 == 0 else noise[place : place + value_bytes]
        key = b"key-%012d" % ((number * 7919 + at * 31) % 500_000)
        if builder.append(at, timestamp=1_700_000_000_000 + number * 10 + at, key=key, value=value, headers=[]) is None:
            return bytes(builder.build()), at
        at += 1


def _export(log: Path, target: Path) -> None:
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    options.add_arguments(parser)
    with redirect_stderr(io.StringIO()):  # its progress is not for this table
        job.export(parser.parse_args(["--log-dir", str(log), "--destination", str(target)]))


def _read(spark: Any, log: Path) -> None:
    """Seven columns: Spark prunes none itself, so they are asked for (docs/spark.md, `columns`)."""
    frame = spark.read.format("logyard").option("subscribe", "events").option("columns", ",".join(SOURCE_COLUMNS))
    frame.load(str(log)).write.format("noop").mode("overwrite").save()


def _compact_row(spark: Any, name: str, home: Path, value_bytes: int, codec: int, size: int) -> Row:
    """Both passes over each of the partitions, a task each, as the job does it between lease and commit."""
    home.mkdir()
    each = size // PARTITIONS
    logs = [bench_compact.write_topic(home / f"t-{n}", value_bytes, codec, each) for n in range(PARTITIONS)]
    written = sum(file.size for files in logs for file in files)
    work, bare = (partial(task, aside=home) for task in (_compact, _bare))
    ceiling = _best(written, lambda: session.run_each(spark.sparkContext, logs, bare))
    pace = _best(written, lambda: session.run_each(spark.sparkContext, logs, work))
    note = f"wanted: {WANTED_COMPACT[name]}; ceiling: read, check, open, write a quarter"
    return Row(f"COMPACT {name}, {PARTITIONS} partitions, 2 tasks", pace, "MB/s", ceiling=ceiling, note=note)


def _compact(files: list[SegmentFile], aside: Path) -> None:
    decision = spark_survey.survey_segments(files, bench_compact.survey_of(files), KeyTable())
    bench_compact.rewrite(files, decision, _own(aside, files))


def _bare(files: list[SegmentFile], aside: Path) -> None:
    bench_compact.bare(files, opens=True)
    bench_compact.write_again(files, _own(aside, files))


def _own(aside: Path, files: list[SegmentFile]) -> Path:
    """A place for one partition's parts."""
    place = aside / f"parts-{Path(files[0].name).parent.name}"
    place.mkdir(exist_ok=True)
    return place


def _splits(log: Path, columns: tuple[str, ...]) -> list[Split]:
    replica = of_partition_directory(str(log / "events-0"))
    return list(plan_splits(Range(replica, 0, replica.high_watermark), committed_only=True, columns=columns))


class ReadySource(DataSource):  # type: ignore[misc]  # mypy is not shown pyspark
    """Yields the one batch of an IPC file again and again: what a source costs that has nothing to read or decode."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> Any:
        return from_arrow_schema(pa.schema([SCHEMA.field(c) for c in SOURCE_COLUMNS]))

    def reader(self, schema: Any) -> "ReadyReader":
        return ReadyReader(self.options["path"], int(self.options["tasks"]), int(self.options["turns"]))


class ReadyReader(DataSourceReader):  # type: ignore[misc]  # mypy is not shown pyspark
    def __init__(self, path: str, tasks: int, turns: int) -> None:
        self._path, self._tasks, self._turns = path, tasks, turns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self._path) as stream:
            batch = stream.read_next_batch()
        for _ in range(self._turns):
            yield batch


def _ready_batches(spark: Any, log: Path) -> None:
    """Hand Spark about as many rows as the log has, in batches of the same size, cut into the same tasks."""
    splits = _splits(log, SOURCE_COLUMNS)
    path = log / "ready.arrow"
    if not path.exists():  # once: the decoder is no part of a ceiling
        schema = pa.schema([SCHEMA.field(c) for c in SOURCE_COLUMNS])
        batch = next(split_rows(splits[0]))[0].cast(schema)
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, schema) as stream:
            stream.write_batch(batch)
    with pa.ipc.open_stream(str(path)) as stream:
        rows = len(stream.read_next_batch())
    frame = spark.read.format("ready").option("tasks", len(splits))
    frame = frame.option("turns", max(splits[-1].end // len(splits) // rows, 1)).load(str(path))
    frame.write.format("noop").mode("overwrite").save()


def _parquet_ceiling(log: Path, directory: Path) -> float:
    """MB/s at which two processes write decoded splits."""
    splits = _splits(log, COLUMNS)[:2]
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(splits))
    took = context.Queue()
    running = [context.Process(target=_write_ready, args=(s, str(directory), ready, took)) for s in splits]
    for process in running:
        process.start()
    slowest = max(took.get(timeout=120) for _ in running)
    for process in running:
        process.join()
    return sum(s.position_end - s.position for s in splits) / MEGABYTE / float(slowest)


def _write_ready(split: Split, directory: str, ready: Any, took: Any) -> None:
    batches = [batch for batch, _ in split_rows(split)]
    table = pa.Table.from_batches(batches)
    path = os.path.join(directory, f"ceiling-{os.getpid()}.parquet")
    ready.wait(120)
    begun = time.perf_counter()
    with open_parquet(path, table) as writer:
        writer.write_table(table)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    took.put(time.perf_counter() - begun)
    os.unlink(path)
