"""`spark.readStream.format("logyard")`: micro-batches up to the high watermark, offsets in Spark's checkpoint.

Offsets (positions.py) never go back: a leader's high watermark does, after a failover.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.command import say
from logyard.spark_jobs.data_source.options import BadOption, Options, parse
from logyard.spark_jobs.data_source.positions import Position, offset_of, positions
from logyard.spark_jobs.data_source.ranges import (
    check_watermark,
    checked_range,
    connect,
    edge_offset,
    learn_pattern,
    plan,
    replicas,
    visible_end,
)
from logyard.spark_jobs.data_source.rows import SplitPartition, known_columns, read_split
from logyard.spark_jobs.data_source.witness import gone_partitions, gone_topics
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BAD_ANSWER, LeaseError
from logyard.spark_jobs.leases.client import Lease, end_run, partition_status
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.metadata import PartitionMetadata
from logyard.spark_jobs.segments.epochs import Epochs, epoch_before, kept_until
from logyard.spark_jobs.segments.replicas import Replica, of_leased, of_log_directory
from logyard.spark_jobs.segments.splits import Range
from logyard.spark_jobs.segments.stable_offset import settled

# Of batch reads: a stream would pass over them, and read on.
ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class Head:
    """The current state of one partition: its topic's id, first offset, the offset below which a consumer reads, the
    log's end (UNKNOWN for a directory), the leader epochs of its records, and the epoch of its leader."""

    topic_id: str | None
    first: int
    end: int
    log_end: int
    epochs: Epochs
    leader_epoch: int

    def at(self, offset: int) -> Position:
        return Position(self.topic_id, offset, epoch_before(self.epochs, offset))

    def end_after(self, known: Position | None) -> Position:
        """Return where the next micro-batch ends: never before `known`."""
        is_same = known is not None and known.topic_id == self.topic_id
        return known if known is not None and is_same and self.end <= known.offset else self.at(self.end)


class Look(NamedTuple):
    """A look at the selected partitions: the state of those of which one was told, and all that there are, as far as
    the broker that was asked knows, or the directory shows; and why of some none was told."""

    heads: Mapping[TopicPartition, Head]
    there: frozenset[TopicPartition]
    waiting: tuple[str, ...] = ()


class LogyardStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark has no types here
    """A stream's reader: Spark keeps one on the driver while the query lives; `read` runs in tasks."""

    def __init__(self, columns: Sequence[str], options: Mapping[str, str]) -> None:
        self._columns = known_columns(columns)
        self._options = parse(options)
        for name in ENDINGS:
            if name.lower() in self._options.given:
                raise BadOption(f"{name}: a stream has no end, leave it out (the trigger availableNow stops at now's)")
        self._leases: list[Lease] = []
        self._beats: Heartbeats | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._told: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, without the leases, which the driver renews."""
        return {**self.__dict__, "_leases": [], "_beats": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts (`startingOffsets`, `startingTimestamp` and so on)."""
        found = replicas(self._options)
        try:
            return offset_of({r.tp: self._begin(r) for r in found})
        finally:
            end_run([r.lease for r in found if r.lease is not None], "the stream's beginning is known")

    def _begin(self, replica: Replica) -> Position:
        first, end = replica.log_start_offset, visible_end(replica, self._options)
        edge = self._options.starting.of(replica.tp)
        offset = edge_offset(edge, replica, first, end, error=not self._options.latest_where_none)
        end = max(end, replica.log_end_offset)
        if self._options.fail_on_data_loss and offset > end:
            raise BadOption(
                f"{replica.tp}: offset {offset} was asked for, {first} to {end} are there"
                " (failOnDataLoss=false waits for it)"
            )
        return Position(replica.topic_id, offset, epoch_before(replica.leader_epochs, offset))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {tp: head.end for tp, head in look(self._options, whole=True).heads.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: at the end of each log, or after `limit` offsets, shared among
        partitions in proportion to what each has."""
        begun = positions(start)
        seen = look(self._options, expected=self._target or ())
        self._tell(seen.waiting)
        gone = self._gone(seen, begun)
        current = self._sound(seen.heads, begun)
        if self._target is not None:
            final = self._target = {tp: end for tp, end in self._target.items() if tp not in gone}
            self._check_rest(current, begun, gone)
            current = {tp: replace(h, end=min(h.end, final[tp])) for tp, h in current.items() if tp in final}
        ends = {tp: head.end_after(begun.get(tp)) for tp, head in current.items()}
        ids = {tp.topic: end.topic_id for tp, end in ends.items()}
        for tp, known in begun.items():
            # The partition has no leader now, so it waits. If its topic was created again, it is read from its start.
            if tp not in gone and ids.get(tp.topic, known.topic_id) == known.topic_id:
                ends.setdefault(tp, known)
        if isinstance(limit, ReadMaxRows):
            ends = _share(begun, ends, current, limit.max_rows)
        return offset_of(ends)

    def _tell(self, waiting: tuple[str, ...]) -> None:
        """Tell what the query waits for, once: it would stand still without a word, for want of a right, say."""
        for why in waiting:
            if why not in self._told:
                say(f"logyard: the stream waits for {why}")
        self._told = waiting

    def _gone(self, seen: Look, begun: Mapping[TopicPartition, Position]) -> frozenset[TopicPartition]:
        """Return the partitions that were read and are to be forgotten, because they were deleted; raises BadOption for
        them with failOnDataLoss, as Spark's Kafka source does. A log that waits for its high watermark is there."""
        options = self._options
        away = [tp for tp in begun if tp not in seen.there and options.wants(tp)]
        gone = away if options.path else sorted(gone_partitions(options, away))
        what = "has no directory any more" if options.path else "was deleted since"
        for tp in sorted(gone):
            text = f"{tp}: it was read up to offset {begun[tp].offset}, and {what}"
            if options.fail_on_data_loss:
                raise BadOption(f"{text} (failOnDataLoss=false goes on without it)")
            if not options.path:
                say(f"logyard: {text}: what was not read of it is lost")
        # A directory may be moved away and back.
        return frozenset() if options.path else frozenset(gone)

    def _check_rest(
        self,
        current: Mapping[TopicPartition, Head],
        begun: Mapping[TopicPartition, Position],
        gone: frozenset[TopicPartition],
    ) -> None:
        """Raise JobFailed if a partition is away that is not read to its target: the query would end without it."""
        target = self._target or {}
        for tp, end in target.items():
            if tp not in current and (begun[tp].offset if tp in begun else 0) < end:
                what = "its high watermark is not known" if self._options.path else "its leader is away"
                raise JobFailed(f"{tp}: {what}, and offsets below {end} are to be read: start it again")
        for tp in [] if self._options.path else sorted(set(begun) - set(target) - gone):
            if self._options.wants(tp):
                raise JobFailed(f"{tp}: a broker did not know it, nor what there is to read of it: start it again")

    def _sound(
        self, current: Mapping[TopicPartition, Head], begun: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, Head]:
        """Return the partitions whose broker still leads; raises BadOption if a log lost records that were read."""
        sound = {}
        for tp, head in current.items():
            known = begun.get(tp)
            if known is not None and known.topic_id == head.topic_id:
                if 0 <= head.leader_epoch < known.epoch:
                    continue
                self._check_kept(tp, known, head.epochs, head.log_end)
            sound[tp] = head
        return sound

    def _check_kept(self, tp: TopicPartition, known: Position, epochs: Epochs, log_end: int) -> None:
        kept = kept_until(epochs, log_end, known.offset, known.epoch)
        if kept < known.offset and self._options.fail_on_data_loss:
            raise BadOption(
                f"{tp}: what was read from offset {kept} to {known.offset - 1} is no longer in the log, other records"
                f" may stand there (an unclean election?): failOnDataLoss=false continues at {known.offset}"
            )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offset_of({tp: head.at(head.end) for tp, head in look(self._options).heads.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Lease the partitions with new records and plan their splits; raises BadOption for records that are gone."""
        self._release("the next micro-batch is planned")
        begun = positions(start)
        splits = []
        moved = {tp: to for tp, to in positions(end).items() if begun.get(tp) != to}
        try:
            for replica in self._replicas(list(moved)):
                span = self._range(replica, begun.get(replica.tp), moved[replica.tp])
                splits += plan(span, self._options, self._columns)
        except BaseException:
            self._release("the micro-batch could not be planned")
            raise
        return [SplitPartition(split) for split in splits]

    def _replicas(self, tps: Sequence[TopicPartition]) -> list[Replica]:
        options = self._options
        if options.path:
            return [settled(r) for r in of_log_directory(options.path, 0) if r.tp in tps]
        if not tps:
            return []
        cluster = connect(options, sorted({tp.topic for tp in tps}))
        run_id = clusters.run_id("stream")
        if self._beats is None:
            self._beats = Heartbeats(self._leases, options.lease_ttl_s * 1000)
            self._beats.__enter__()
        for tp in tps:
            self._leases.append(cluster.lease_leader(tp, run_id, "export"))
        return [of_leased(lease) for lease in self._leases]

    def _range(self, replica: Replica, begun: Position | None, to: Position) -> Range:
        first, fail = replica.log_start_offset, self._options.fail_on_data_loss
        if begun is None and first > 0 and fail:
            raise BadOption(
                f"{replica.tp}: it was added since, and its offsets below {first} were deleted before they were read"
                " (failOnDataLoss=false reads what is there)"
            )
        if begun is not None and begun.topic_id != replica.topic_id:
            if fail:
                raise BadOption(
                    f"topic {replica.topic} was deleted and created again since it was read (id {begun.topic_id}, now"
                    f" {replica.topic_id}): failOnDataLoss=false reads the new one from its start"
                )
            begun = None
        if 0 <= replica.leader_epoch < to.epoch:
            raise JobFailed(f"{replica.tp}: broker {replica.broker_id} no longer leads it: start the query again")
        if begun is not None:
            self._check_kept(replica.tp, begun, replica.leader_epochs, replica.log_end_offset)
        start = first if begun is None else begun.offset
        end = visible_end(replica, self._options)
        if to.topic_id == replica.topic_id:
            # It was committed when the batch was planned; a leader elected since may have a lower high watermark.
            kept = kept_until(replica.leader_epochs, replica.log_end_offset, to.offset, to.epoch)
            is_whole = kept == to.offset <= replica.log_end_offset
            end = max(end, kept) if is_whole else min(end, kept) if fail else end
        return checked_range(replica, start, to.offset, first, end, fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_split(partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._release("the micro-batch is done")

    def stop(self) -> None:
        self._release("the stream is stopped")
        if self._beats is not None:
            self._beats.__exit__()
            self._beats = None

    def _release(self, reason: str) -> None:
        leases = list(self._leases)
        self._leases.clear()
        end_run(leases, reason)


def look(options: Options, *, whole: bool = False, expected: Collection[TopicPartition] = ()) -> Look:
    """Return the current state of every selected partition, without leases; partitions whose leader does not answer, or
    whose high watermark is not known, have no head.

    With `whole` the topics of a pattern are those that the controller knows: a query that ends would leave out one that
    the broker that is asked has not heard of. It is asked too about those `expected` that this broker does not know.

    Raises JobFailed if a named topic does not exist, or the controller is asked and does not tell; with `whole` also if
    the leader of a partition does not answer, and BadOption if its high watermark is not known.
    """
    if options.path:
        wanted = [r for r in of_log_directory(options.path, 0) if options.wants(r.tp)]
        for replica in wanted if whole else ():
            check_watermark(replica)
        known = {r.tp: _head_of(settled(r), options) for r in wanted if not r.watermark_trouble}
        why = tuple(f"{r.tp}: {r.watermark_trouble}" for r in wanted if r.watermark_trouble)
        return Look(known, frozenset(r.tp for r in wanted), why)
    cluster = connect(options, options.names(()))
    _check_named(cluster, options, whole)
    if whole and options.pattern is not None:
        learn_pattern(cluster, options)
    places = _places(cluster, options)
    if lacking := sorted({tp.topic for tp in set(expected) - {tp for tp, _ in places}}):
        cluster.learn(lacking)
        places = _places(cluster, options)
    found, waiting = _heads(cluster, places, options)
    away = [tp for tp, _ in places if tp not in found] if whole else []
    if away:
        said = f" ({waiting[0]})" if waiting else ""
        raise JobFailed(f"{away[0]}: its leader does not answer, so it is not known what there is to read{said}")
    return Look(found, frozenset(tp for tp, _ in places), waiting)


def _heads(
    cluster: clusters.Cluster, places: Sequence[tuple[TopicPartition, PartitionMetadata]], options: Options
) -> tuple[dict[TopicPartition, Head], tuple[str, ...]]:
    """Return the state of the partitions whose leader tells it, and of each broker that does not why, by one of its
    partitions."""
    found: dict[TopicPartition, Head] = {}
    why: dict[int, str] = {}
    silent: set[int] = set()
    for tp, place in places:
        broker = cluster.brokers.get(place.leader)
        if broker is None:
            unknown = "nobody leads it" if place.leader < 0 else f"the address of broker {place.leader} is not known"
            why.setdefault(place.leader, f"{tp}: {cluster.unreachable.get(place.leader, unknown)}")
            continue
        if place.leader in silent:
            continue
        try:
            status = partition_status(broker, tp.topic, tp.partition)
        except LeaseError as error:
            if error.code == BAD_ANSWER:
                raise  # asking again helps as little as waiting
            if error.code == "unreachable":
                silent.add(place.leader)  # it is waited for once, not for each of its partitions
            why.setdefault(place.leader, f"{tp}: {error}")
            continue
        if status["is_leader"]:
            found[tp] = _head_told(status, options)
    return found, tuple(why.values())


def _places(cluster: clusters.Cluster, options: Options) -> list[tuple[TopicPartition, PartitionMetadata]]:
    names = options.names(cluster.metadata.topics)
    return [place for place in cluster.metadata.partitions(names) if options.wants(place[0])]


def _check_named(cluster: clusters.Cluster, options: Options, whole: bool) -> None:
    """Raise JobFailed if a topic of `subscribe` or `assign` does not exist; with `whole` also if the broker that was
    asked does not know it."""
    lacking = [name for name in options.names(()) if name not in cluster.metadata.topics]
    if gone := gone_topics(options, lacking):
        raise JobFailed(f"topic {gone[0]} does not exist on {cluster.metadata.cluster_id}")
    if lacking and whole:
        raise JobFailed(f"topic {lacking[0]}: a broker does not know it, so it is not known what there is to read")


def _head_told(status: Mapping[str, Any], options: Options) -> Head:
    return Head(
        topic_id=status.get("topic_id"),
        first=int(status["log_start_offset"]),
        end=int(status["last_stable_offset"] if options.committed_only else status["high_watermark"]),
        log_end=int(status["log_end_offset"]),
        epochs=[(int(epoch), int(first)) for epoch, first in status["leader_epochs"]],
        leader_epoch=int(status["leader_epoch"]),
    )


def _head_of(replica: Replica, options: Options) -> Head:
    end, first = visible_end(replica, options), replica.log_start_offset
    return Head(replica.topic_id, first, end, replica.log_end_offset, replica.leader_epochs, replica.leader_epoch)


def _share(
    begun: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, Position],
    heads_now: Mapping[TopicPartition, Head],
    limit: int,
) -> dict[TopicPartition, Position]:
    """Return ends that leave about `limit` offsets, each partition in proportion, and at least one offset of each."""
    froms = {}
    for tp, end in ends.items():
        known = begun.get(tp)
        same = known is not None and known.topic_id == end.topic_id
        first = heads_now[tp].first if tp in heads_now else 0
        # Offsets that were deleted meanwhile take no part of the limit.
        froms[tp] = max(known.offset, first) if known is not None and same else first
    waiting = {tp: max(end.offset - froms[tp], 0) for tp, end in ends.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    shares = {tp: min(waiting[tp], max(limit * waiting[tp] // total, 1)) for tp in ends}
    return {
        tp: end if shares[tp] == waiting[tp] else heads_now[tp].at(froms[tp] + shares[tp]) for tp, end in ends.items()
    }
