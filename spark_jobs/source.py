"""`spark.read.format("logyard")` and `spark.readStream.format("logyard")`: records of segments as a DataFrame, from a
live cluster under leases or from a directory.

    from logyard.spark_jobs import source
    source.register(spark)
    spark.read.format("logyard").option("subscribe", "flights").option("clusterFile", "…/cluster.json").load()
    spark.read.format("logyard").option("subscribe", "flights").load("/data/1")

Options: data_source/options.py. Columns have the names and types of Spark's Kafka source where it has them; a narrower
`.schema("offset long, key binary")`, or the option `columns`, reads only those. Filters on topic, partition, offset
and timestamp are pruned by the indexes before a record is read.

Spark plans in a process of its own that ends, so the plan's leases are kept alive by the driver (leases/keeper.py), and
by those who read, who take again what is gone (split_reader.py).
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.data_source.filters import Bounds, take
from logyard.spark_jobs.data_source.options import EARLIEST, LATEST, BadOption, Edge, Options, connection, parse
from logyard.spark_jobs.data_source.split_reader import SplitReader
from logyard.spark_jobs.leases.client import Lease, end_leases
from logyard.spark_jobs.leases.keeper import hand_over, keeper_of
from logyard.spark_jobs.segments.chunks import RECORD_SCHEMA
from logyard.spark_jobs.segments.indexes import offset_of_time
from logyard.spark_jobs.segments.replicas import Replica, of_leased, of_log_directory
from logyard.spark_jobs.segments.splits import OWNER_SCHEMA, Range, Split, plan_splits
from logyard.spark_jobs.segments.stable_offset import settled

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
# Spark's timestamps are microseconds.
_TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([f.with_type(_TIMESTAMP) if f.name == "timestamp" else f for f in (*OWNER_SCHEMA, *RECORD_SCHEMA)])


def register(spark: Any) -> None:
    """Make the format known to a session, with filters pushed down (Spark refuses them unless told so first)."""
    spark.conf.set(PUSH_DOWN, "true")
    keeper = keeper_of(spark)
    # A class of its own, which Spark ships by value: that is how the process that plans knows where the keeper is.
    known = {"mailbox": keeper.directory if keeper is not None else ""}
    spark.dataSource.register(type("PushingDataSource", (PushingDataSource,), known))


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """One split; None where there is nothing to read (Spark wants at least one partition)."""

    split: Split | None

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class LogyardDataSource(DataSource):  # type: ignore[misc]
    """The source for sessions in which filters may not be pushed down; Spark calls its methods.

    `mailbox`: where the driver's keeper takes in leases; "" where there is none.
    """

    mailbox = ""

    @classmethod
    def name(cls) -> str:
        return "logyard"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        asked = {key.lower(): value for key, value in self.options.items()}.get("columns")
        names = known_columns([c.strip() for c in asked.split(",")]) if asked else SCHEMA.names
        return from_arrow_schema(pa.schema([SCHEMA.field(name) for name in names]))

    def reader(self, schema: Any) -> "LogyardReader":
        return LogyardReader(list(schema.fieldNames()), dict(self.options), self.mailbox)

    def streamReader(self, schema: Any) -> Any:
        from logyard.spark_jobs.data_source.stream import LogyardStreamReader

        return LogyardStreamReader(list(schema.fieldNames()), dict(self.options))


class PushingDataSource(LogyardDataSource):
    """The source that `register` makes known."""

    def reader(self, schema: Any) -> "PushingReader":
        return PushingReader(list(schema.fieldNames()), dict(self.options), self.mailbox)


class LogyardReader(DataSourceReader):  # type: ignore[misc]
    """Plans splits once, reads each in a task."""

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
            end_leases(leases, "the read could not be planned")
            raise
        hand_over(self._mailbox, leases, self._options.lease_ttl_s * 1000)
        return [SplitPartition(s) for s in splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one split's rows."""
        yield from read_split(partition, self._columns)


class PushingReader(LogyardReader):
    """Spark refuses a reader with this method where filters are not enabled, so it has a class of its own."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what the plan can use; yield what Spark still has to check itself."""
        self._bounds, left = take(filters)
        yield from left


def known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; raises BadOption naming one that does not exist."""
    unknown = [c for c in columns if c not in SCHEMA.names]
    if unknown:
        raise BadOption(f"column {unknown[0]!r} does not exist: choose among {', '.join(SCHEMA.names)}")
    return tuple(columns)


def connect(options: Options, topics: Sequence[str] = ()) -> clusters.Cluster:
    """Look at the cluster that the options name; `topics` empty: at all of them."""
    return clusters.connect(
        argparse.Namespace(**connection(options.given, list(topics)), lease_ttl_s=options.lease_ttl_s)
    )


def replicas(options: Options) -> list[Replica]:
    """Return a replica of every partition asked for: the leader's, under a lease, or a directory's."""
    if options.path:
        there = [r for r in of_log_directory(options.path, 0) if options.wants(r.tp)]
        check_there(options, [r.tp for r in there])
        for replica in there:
            # Where nothing was ever written a broker may not have come to noting it.
            if replica.watermark_trouble and any(segment.size for segment in replica.segments):
                raise BadOption(f"{replica.tp}: {replica.watermark_trouble}")
        return [settled(r) for r in there]
    cluster = connect(options, options.names(()))
    wanted = [tp for tp, _ in cluster.partitions(options.names(cluster.metadata.topics)) if options.wants(tp)]
    check_there(options, wanted)
    if unknown := options.names(cluster.metadata.missing) if options.pattern is not None else []:
        raise BadOption(
            f"subscribePattern: the brokers have no answer for topic {unknown[0]} at the moment: read again"
        )
    run_id = clusters.run_id("read")
    leases: list[Lease] = []
    try:
        for tp in wanted:
            leases.append(cluster.lease_leader(tp, run_id, "export"))  # noqa: PERF401, those taken so far are ended
    except BaseException:
        end_leases(leases, "the read could not be planned")
        raise
    return [of_leased(lease) for lease in leases]


def check_there(options: Options, found: Sequence[TopicPartition]) -> None:
    """Raise BadOption where a topic or partition that was named is not there: no rows of it would pass for all."""
    topics = {tp.topic for tp in found}
    lacking: list[object] = [name for name in options.names(()) if name not in topics]
    lacking += [
        TopicPartition(topic, number)
        for topic, numbers in sorted(options.assigned.items())
        for number in sorted(numbers)
        if TopicPartition(topic, number) not in found
    ]
    if lacking:
        raise BadOption(f"{lacking[0]} was asked for, and is not there")


def visible_end(replica: Replica, options: Options) -> int:
    """The offset a consumer of this isolation level reads up to."""
    stable = options.committed_only and replica.last_stable_offset >= 0
    return min(replica.high_watermark, replica.last_stable_offset) if stable else replica.high_watermark


def asked_range(replica: Replica, options: Options) -> Range:
    """Return what the options ask of one partition; raises BadOption where it is not there and that is an error."""
    first, end = replica.log_start_offset, visible_end(replica, options)
    start = edge_offset(options.starting.of(replica.tp), replica, first, end, error=not options.latest_where_none)
    stop = edge_offset(options.ending.of(replica.tp), replica, first, end, error=False)
    return checked_range(replica, start, stop, first, end, options.fail_on_data_loss)


def checked_range(replica: Replica, start: int, stop: int, first: int, end: int, fail: bool) -> Range:
    """Return [start, stop) as far as it is there; raises BadOption for what is not, if `fail`."""
    if fail and (start < first or stop > end):
        raise BadOption(
            f"{replica.tp}: offsets {start} to {stop} were asked for, {first} to {end} are there"
            " (failOnDataLoss=false reads what is there)"
        )
    start, stop = max(start, first), min(stop, end)
    return Range(replica, start, max(start, stop))


def edge_offset(edge: Edge, replica: Replica, first: int, end: int, *, error: bool) -> int:
    """Return the offset of an edge; a time that nothing is as new as is the end, or BadOption with `error`."""
    if edge.timestamp_ms is None:
        return {EARLIEST: first, LATEST: end}.get(edge.offset, edge.offset)
    found = offset_of_time(replica, edge.timestamp_ms)
    if found is None and error:
        raise BadOption(
            f"{replica.tp}: no record is as new as {edge.timestamp_ms}"
            " (startingOffsetsByTimestampStrategy=latest begins at the end)"
        )
    return end if found is None else min(found, end)


def plan(span: Range, options: Options, columns: Sequence[str]) -> list[Split]:
    """Cut a range into what tasks read."""
    splits = plan_splits(span, committed_only=options.committed_only, columns=columns, split_bytes=options.split_bytes)
    return [replace(split, control=options.control) for split in splits]


def read_split(partition: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield one split's rows in the source's types."""
    split = getattr(partition, "split", None)  # Spark makes a bare InputPartition(None) of an empty plan
    if split is None:
        return
    schema = pa.schema([SCHEMA.field(c) for c in columns])
    for batch in SplitReader(split).rows():
        yield batch.cast(schema) if "timestamp" in columns else batch
