"""`spark.readStream.format("logyard")`: micro-batches up to the high watermark, offsets in Spark's checkpoint.

An offset is `{"topics": {"flights": {"id": topic id, "next": {"0": 42}}}}`, its keys sorted (Spark compares texts). The
topic id tells a topic that was deleted and made again: that is data loss, as an offset that is gone is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.leases import Lease, LeaseError, end_leases, partition_status
from logyard.spark_jobs.plans.exporting import Range
from logyard.spark_jobs.replicas import Replica, of_leased, of_log_directory
from logyard.spark_jobs.source import (
    SplitPartition,
    checked_range,
    connect,
    edge_offset,
    known_columns,
    plan,
    read_split,
    replicas,
    visible_end,
)
from logyard.spark_jobs.source_options import BadOption, Options, parse


@dataclass(frozen=True, slots=True)
class Head:
    """One partition now: its topic's id, the first offset it has and the one a consumer reads up to."""

    topic_id: str | None
    first: int
    end: int


class LogyardStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark keeps one on the driver for a query's life; `read` runs in tasks."""

    def __init__(self, columns: Sequence[str], options: Mapping[str, str]) -> None:
        self._columns = known_columns(columns)
        self._options = parse(options)
        self._leases: list[Lease] = []
        self._target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins (`startingOffsets` and its kin)."""
        found = replicas(self._options)
        try:
            return offset_of({r.tp: (r.topic_id, self._begin(r)) for r in found})
        finally:
            end_leases([r.lease for r in found if r.lease is not None], "the stream's beginning is known")

    def _begin(self, replica: Replica) -> int:
        first, end = replica.log_start_offset, visible_end(replica, self._options)
        edge = self._options.starting.of(replica.tp)
        return edge_offset(edge, replica, first, end, error=not self._options.latest_where_none)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = offset_of({tp: (h.topic_id, h.end) for tp, h in heads(self._options).items()})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends: at what can be read, or `limit` offsets shared by how much each has."""
        current = heads(self._options)
        ends = {tp: (head.topic_id, head.end) for tp, head in current.items()}
        if self._target is not None:
            final = positions(self._target)
            ends = {tp: (i, min(end, final[tp][1])) for tp, (i, end) in ends.items() if tp in final}
        begun = positions(start)
        for tp, known in begun.items():
            ends.setdefault(tp, known)  # its leader is away: it waits
        if isinstance(limit, ReadMaxRows):
            ends = _share(begun, ends, {tp: h.first for tp, h in current.items()}, limit.max_rows)
        return offset_of(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offset_of({tp: (h.topic_id, h.end) for tp, h in heads(self._options).items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Take leases on what has news and cut it; raises BadOption for what is gone."""
        self._release("the next micro-batch is planned")
        begun = positions(start)
        splits = []
        moved = {tp: to for tp, to in positions(end).items() if begun.get(tp) != to}
        for replica in self._replicas(list(moved)):
            span = self._range(replica, begun.get(replica.tp), moved[replica.tp])
            splits += plan(span, self._options, self._columns)
        return [SplitPartition(split) for split in splits]

    def _replicas(self, tps: Sequence[TopicPartition]) -> list[Replica]:
        options = self._options
        if options.path:
            return [r for r in of_log_directory(options.path, 0) if r.tp in tps]
        if not tps:
            return []
        cluster = connect(options, sorted({tp.topic for tp in tps}))
        run_id = clusters.run_id("stream")
        for tp in tps:
            self._leases.append(
                cluster.lease(cluster.metadata.topics[tp.topic][tp.partition].leader, tp, run_id, "export")
            )
        return [of_leased(lease) for lease in self._leases]

    def _range(self, replica: Replica, begun: tuple[str | None, int] | None, to: tuple[str | None, int]) -> Range:
        first, fail = replica.log_start_offset, self._options.fail_on_data_loss
        if begun is not None and begun[0] != replica.topic_id:
            if fail:
                raise BadOption(
                    f"topic {replica.topic} was deleted and made again since it was read (id {begun[0]}, now"
                    f" {replica.topic_id}): failOnDataLoss=false reads the new one from its start"
                )
            begun = None
        start = first if begun is None else begun[1]
        return checked_range(replica, start, to[1], first, visible_end(replica, self._options), fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_split(partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._release("the micro-batch is done")

    def stop(self) -> None:
        self._release("the stream is stopped")

    def _release(self, reason: str) -> None:
        leases, self._leases = self._leases, []
        end_leases(leases, reason)


def heads(options: Options) -> dict[TopicPartition, Head]:
    """Look at every partition asked for, without leases; one whose leader does not answer is left out."""
    if options.path:
        wanted = (r for r in of_log_directory(options.path, 0) if options.wants(r.tp))
        return {r.tp: Head(r.topic_id, r.log_start_offset, visible_end(r, options)) for r in wanted}
    cluster = connect(options, options.names(()))
    found = {}
    for tp, place in cluster.partitions(options.names(cluster.metadata.topics)):
        broker = cluster.brokers.get(place.leader)
        if broker is None or not options.wants(tp):
            continue
        try:
            status = partition_status(broker, tp.topic, tp.partition)
        except LeaseError:
            continue
        end = int(status["last_stable_offset"] if options.committed_only else status["high_watermark"])
        found[tp] = Head(status.get("topic_id"), int(status["log_start_offset"]), end)
    return found


def offset_of(ends: Mapping[TopicPartition, tuple[str | None, int]]) -> dict[str, Any]:
    """Return Spark's form of (topic id, next offset) by partition."""
    topics: dict[str, Any] = {}
    for tp, (topic_id, offset) in sorted(ends.items()):
        topic = topics.setdefault(tp.topic, {"id": topic_id or "", "next": {}})
        topic["next"][str(tp.partition)] = offset
    return {"topics": topics}


def positions(offset: Mapping[str, Any]) -> dict[TopicPartition, tuple[str | None, int]]:
    """The inverse of offset_of."""
    return {
        TopicPartition(topic, int(partition)): (known["id"] or None, int(at))
        for topic, known in offset.get("topics", {}).items()
        for partition, at in known["next"].items()
    }


def _share(
    begun: Mapping[TopicPartition, tuple[str | None, int]],
    ends: Mapping[TopicPartition, tuple[str | None, int]],
    firsts: Mapping[TopicPartition, int],
    limit: int,
) -> dict[TopicPartition, tuple[str | None, int]]:
    """Cut the ends so that about `limit` offsets are left, each partition by its share, at least one of each."""
    froms = {tp: begun[tp][1] if tp in begun else firsts.get(tp, 0) for tp in ends}
    waiting = {tp: max(end - froms[tp], 0) for tp, (_, end) in ends.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    shares = {tp: min(waiting[tp], max(limit * waiting[tp] // total, 1)) for tp in ends}
    return {tp: (topic_id, froms[tp] + shares[tp]) for tp, (topic_id, _) in ends.items()}
