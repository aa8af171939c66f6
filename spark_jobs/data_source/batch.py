"""Batch reads of `spark.read.format("logyard")`: the driver plans splits once, a task reads each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from logyard.spark_jobs.data_source.bounds import Bounds
from logyard.spark_jobs.data_source.options import parse
from logyard.spark_jobs.data_source.ranges import (
    asked_range,
    plan,
    replicas,
)
from logyard.spark_jobs.data_source.rows import SplitPartition, known_columns, read_split
from logyard.spark_jobs.leases.client import end_run
from logyard.spark_jobs.leases.keeper import hand_over
from logyard.spark_jobs.segments.splits import Split


class LogyardReader(DataSourceReader):  # type: ignore[misc]  # pyspark has no types here
    """Plans splits on the driver; `read` runs in tasks."""

    def __init__(self, columns: Sequence[str], options: Mapping[str, str], mailbox: str = "") -> None:
        self._columns = known_columns(columns)
        self._options = parse(options)
        self._mailbox = mailbox
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Take leases and cut the ranges; raises BadOption and what the cluster raises."""
        splits: list[Split] = []
        found = replicas(self._options)
        leases = [r.lease for r in found if r.lease is not None]
        try:
            for replica in found:
                if self._bounds.allow(replica.tp):
                    span = self._bounds.clip(asked_range(replica, self._options))
                    narrowed = map(self._bounds.narrow, plan(span, self._options, self._columns))
                    splits += [split for split in narrowed if split is not None]
        except BaseException:
            end_run(leases, "the read could not be planned")
            raise
        hand_over(self._mailbox, leases, self._options.lease_ttl_s * 1000)
        return [SplitPartition(s) for s in splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one split's rows."""
        yield from read_split(partition, self._columns)


class PushingReader(LogyardReader):
    """A reader with `pushFilters`: Spark refuses that method unless push-down is enabled, so it is a subclass."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Keep the filters (of pyspark.sql.datasource) that the plan can use; yield those that Spark has to check."""
        from logyard.spark_jobs.data_source.filters import take

        self._bounds, left = take(filters)
        yield from left
