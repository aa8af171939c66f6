"""`spark.read.format("logyard")`: records of segments as a DataFrame, from a live cluster under leases or from a
directory.

    from logyard.spark_jobs.source import LogyardDataSource
    spark.dataSource.register(LogyardDataSource)
    spark.read.format("logyard").option("subscribe", "flights").option("clusterFile", "…/cluster.json").load()
    spark.read.format("logyard").option("subscribe", "flights").load("/data/1")

Options: `subscribe` (topics, by commas); a path (a log directory), or `kafka.bootstrap.servers` or `clusterFile`, with
`tokenFile` or `tokens`; `startingOffsets` and `endingOffsets` (`earliest`, `latest` or JSON {"topic": {"0": 42}}, -2
for the earliest, -1 for the latest), `isolationLevel` (`read_committed`), `failOnDataLoss` (true), `splitMib` (64).
Columns have the names and types of Spark's Kafka source where it has them; a narrower
`.schema("offset long, key binary")` reads only those.

Spark plans in a process of its own that ends, so leases are kept alive by those who read, and run out by themselves.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.decode import RECORD_SCHEMA
from logyard.spark_jobs.plans.exporting import OWNER_SCHEMA, Range, Split, plan_splits, split_rows
from logyard.spark_jobs.replicas import Replica, of_leased, of_log_directory

LEASE_TTL_S = 600
BEAT_S = 60.0
EARLIEST, LATEST = -2, -1
# Spark's timestamps are microseconds.
_TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([f.with_type(_TIMESTAMP) if f.name == "timestamp" else f for f in (*OWNER_SCHEMA, *RECORD_SCHEMA)])


class BadOption(LogyardError):
    """An option is missing or makes no sense; the text names it and what is allowed."""


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """One split; None where there is nothing to read (Spark wants at least one partition)."""

    split: Split | None

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class LogyardDataSource(DataSource):  # type: ignore[misc]
    """The registered source; Spark calls its methods."""

    @classmethod
    def name(cls) -> str:
        return "logyard"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(SCHEMA)

    def reader(self, schema: Any) -> "LogyardReader":
        return LogyardReader(list(schema.fieldNames()), dict(self.options))


class LogyardReader(DataSourceReader):  # type: ignore[misc]
    """Plans splits once, reads each in a task."""

    def __init__(self, columns: Sequence[str], options: Mapping[str, str]) -> None:
        unknown = [c for c in columns if c not in SCHEMA.names]
        if unknown:
            raise BadOption(f"column {unknown[0]!r} does not exist: choose among {', '.join(SCHEMA.names)}")
        self._columns = tuple(columns)
        # Spark folds the names of options to lower case.
        self._options = {key.lower(): value for key, value in options.items()}

    def partitions(self) -> list[InputPartition]:
        """Take leases and cut the ranges; raises BadOption and what the cluster raises."""
        committed_only = self._committed_only()
        topics = [t.strip() for t in self._options.get("subscribe", "").split(",") if t.strip()]
        replicas = self._replicas(topics)
        splits = [
            split
            for replica in replicas
            for split in plan_splits(
                self._range(replica, committed_only),
                committed_only=committed_only,
                columns=self._columns,
                split_bytes=int(self._options.get("splitmib", "64")) * 1024 * 1024,
            )
        ]
        return [SplitPartition(s) for s in splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one split's rows."""
        split = partition.split
        if split is None:
            return
        schema = pa.schema([SCHEMA.field(c) for c in self._columns])
        beaten = 0.0
        for batch, _digest in split_rows(split):
            if split.segment.lease is not None and time.monotonic() - beaten > BEAT_S:
                split.segment.lease.heartbeat()
                beaten = time.monotonic()
            yield batch.cast(schema) if "timestamp" in self._columns else batch

    def _committed_only(self) -> bool:
        isolation = self._options.get("isolationlevel", "read_committed")
        if isolation not in ("read_committed", "read_uncommitted"):
            raise BadOption(f"isolationLevel {isolation!r}: read_committed or read_uncommitted is expected")
        return isolation == "read_committed"

    def _replicas(self, topics: Sequence[str]) -> list[Replica]:
        path = self._options.get("path")
        if path:
            return list(of_log_directory(path, 0, topics))
        if not topics:
            raise BadOption("subscribe: name the topics to read, with commas between them")
        cluster = clusters.connect(
            argparse.Namespace(
                bootstrap_server=self._options.get("kafka.bootstrap.servers"),
                topic=list(topics),
                cluster_file=self._options.get("clusterfile"),
                token_file=self._options.get("tokenfile"),
                tokens=self._options.get("tokens"),
                security=self._options.get("security"),
                lease_ttl_s=LEASE_TTL_S,
            )
        )
        run_id = clusters.run_id("read")
        return [
            of_leased(cluster.lease(place.leader, tp, run_id, "export")) for tp, place in cluster.partitions(topics)
        ]

    def _range(self, replica: Replica, committed_only: bool) -> Range:
        end = replica.high_watermark
        if committed_only and replica.last_stable_offset >= 0:
            end = min(end, replica.last_stable_offset)
        first = replica.log_start_offset
        start = self._offset("startingoffsets", "earliest", replica.tp, first, end)
        stop = self._offset("endingoffsets", "latest", replica.tp, first, end)
        lost = start < first or stop > end
        if lost and self._options.get("failondataloss", "true").lower() != "false":
            raise BadOption(
                f"{replica.tp}: offsets {start} to {stop} were asked for, {first} to {end} are there"
                " (failOnDataLoss=false reads what is there)"
            )
        start, stop = max(start, first), min(stop, end)
        return Range(replica, start, max(start, stop))

    def _offset(self, option: str, default: str, tp: TopicPartition, earliest: int, latest: int) -> int:
        given = self._options.get(option, default)
        if given == "earliest":
            return earliest
        if given == "latest":
            return latest
        try:
            named = int(
                json.loads(given).get(tp.topic, {}).get(str(tp.partition), EARLIEST if "start" in option else LATEST)
            )
        except (ValueError, AttributeError, TypeError):
            raise BadOption(f'{option}: earliest, latest or JSON {{"topic": {{"0": 42}}}} is expected') from None
        return {EARLIEST: earliest, LATEST: latest}.get(named, named)
