"""EXPORT and the data source: MB/s of the log, two tasks at a time, each beside its own ceiling of this run.

The ceiling of EXPORT is what writes the same columns as the same Parquet when they are decoded already, by two
processes without Spark. That of the data source is what Spark takes of ready Arrow batches, with nothing read or
decoded.
"""

import argparse
import io
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from logyard.spark_jobs import cluster, export, export_options, source
from logyard.spark_jobs.plans.exporting import COLUMNS, Range, Split, plan_splits, split_rows
from logyard.spark_jobs.plans.writing import open_parquet
from logyard.spark_jobs.replicas import of_partition_directory
from tests.benchmarks.harness import MEGABYTE, Row

SIZE = 256 * MEGABYTE
DISTINCT = 64 * MEGABYTE
SEGMENT_BYTES = 64 * MEGABYTE
BATCH_BYTES = 16 * 1024
VALUES = {"100 B": 100, "1 KiB": 1024}
WANTED_EXPORT = {"100 B": 250, "1 KiB": 280}
WANTED_SOURCE = 300
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
            note = f"wanted: {WANTED_SOURCE}; ceiling: ready Arrow batches into Spark"
            rows.append(Row(f"data source, 7 columns, values of {name}", pace, "MB/s", ceiling=ceiling, note=note))
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
    export_options.add_arguments(parser)
    with redirect_stderr(io.StringIO()):  # its progress is not for this table
        export.export(parser.parse_args(["--log-dir", str(log), "--destination", str(target)]))


def _read(spark: Any, log: Path) -> None:
    """Seven columns: Spark prunes none itself, so they are asked for (docs/spark.md, `columns`)."""
    frame = spark.read.format("logyard").option("subscribe", "events").option("columns", ",".join(SOURCE_COLUMNS))
    frame.load(str(log)).write.format("noop").mode("overwrite").save()


def _splits(log: Path, columns: tuple[str, ...]) -> list[Split]:
    replica = of_partition_directory(str(log / "events-0"))
    return list(plan_splits(Range(replica, 0, replica.high_watermark), committed_only=True, columns=columns))


def _ready_batches(spark: Any, log: Path) -> None:
    """Hand Spark as many rows as the log has, each task the same batch again and again."""
    splits = _splits(log, SOURCE_COLUMNS)
    wanted = splits[-1].end
    first = splits[0]
    schema = pa.schema([source.SCHEMA.field(c) for c in SOURCE_COLUMNS])
    # Decoded here: compiling the decoder in a worker is no part of a ceiling.
    with pa.BufferOutputStream() as out:
        with pa.ipc.new_stream(out, schema) as stream:
            stream.write_batch(next(split_rows(first))[0].cast(schema))
        ready = out.getvalue().to_pybytes()

    def feed(_: Any) -> Iterator[pa.RecordBatch]:
        batch = pa.ipc.open_stream(ready).read_next_batch()
        for _turn in range(max(wanted // len(splits) // len(batch), 1)):
            yield batch

    from pyspark.sql.pandas.types import from_arrow_schema

    frame = spark.range(0, len(splits), 1, len(splits)).mapInArrow(feed, from_arrow_schema(schema))
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
