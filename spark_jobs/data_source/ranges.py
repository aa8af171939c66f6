"""The replicas and offsets that a read covers: the options' beginning and end, limited to what the log has."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.data_source.options import EARLIEST, LATEST, BadOption, Edge, Options, connection
from logyard.spark_jobs.leases.client import Lease, end_run
from logyard.spark_jobs.segments.indexes import offset_of_time
from logyard.spark_jobs.segments.replicas import Replica, of_leased, of_log_directory
from logyard.spark_jobs.segments.splits import Range, Split, plan_splits
from logyard.spark_jobs.segments.stable_offset import settled


def connect(options: Options, topics: Sequence[str] = ()) -> clusters.Cluster:
    """Return the cluster that the options name, with metadata of `topics` (all if empty)."""
    return clusters.connect(arguments_of(options, topics))


def arguments_of(options: Options, topics: Sequence[str] = ()) -> argparse.Namespace:
    """Return the options as the arguments that a job would have."""
    return argparse.Namespace(**connection(options.given, list(topics)), lease_ttl_s=options.lease_ttl_s)


def replicas(options: Options) -> list[Replica]:
    """Return a replica of every selected partition: the leader's, under a lease, or a directory's."""
    if options.path:
        there = [r for r in of_log_directory(options.path, 0) if options.wants(r.tp)]
        check_there(options, [r.tp for r in there])
        for replica in there:
            check_watermark(replica)
        return [settled(r) for r in there]
    cluster = connect(options, options.names(()))
    if options.pattern is None:
        _learn_named(cluster, options)
    else:
        learn_pattern(cluster, options)
    wanted = _wanted(cluster, options)
    check_there(options, wanted)
    run_id = clusters.run_id("read")
    leases: list[Lease] = []
    try:
        for tp in wanted:
            leases.append(cluster.lease_leader(tp, run_id, "export"))  # noqa: PERF401, those taken so far are ended
        return [of_leased(lease) for lease in leases]
    except BaseException:
        end_run(leases, "the read could not be planned")
        raise


def learn_pattern(cluster: clusters.Cluster, options: Options) -> None:
    """Have the controller list the topics of a pattern. Raises JobFailed where it cannot be told now which there are,
    and BadOption where nobody has an answer for one of them."""
    cluster.learn_all()
    if silent := options.names(cluster.metadata.missing):
        raise BadOption(f"subscribePattern: the brokers have no answer for topic {silent[0]} at the moment: read again")


def _learn_named(cluster: clusters.Cluster, options: Options) -> None:
    """Have the controller asked about the partitions that the options name and the metadata lacks."""
    wanted = _wanted(cluster, options)
    named = [*_assigned(options), *options.starting.single, *options.ending.single]
    if unknown := sorted({tp.topic for tp in named if options.wants(tp) and tp not in wanted}):
        cluster.learn(unknown)


def _wanted(cluster: clusters.Cluster, options: Options) -> list[TopicPartition]:
    names = options.names(cluster.metadata.topics)
    return [tp for tp, _ in cluster.partitions(names) if options.wants(tp)]


def _assigned(options: Options) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, number) for topic, numbers in options.assigned.items() for number in numbers)


def check_watermark(replica: Replica) -> None:
    """Raise BadOption if a directory does not tell which of its records are committed: none of them would be read."""
    # The broker may not have written its checkpoint yet, if the log is empty.
    if replica.watermark_trouble and any(segment.size for segment in replica.segments):
        raise BadOption(f"{replica.tp}: {replica.watermark_trouble}")


def check_there(options: Options, found: Sequence[TopicPartition]) -> None:
    """Raise BadOption if a named topic or partition does not exist: an empty result would look complete, and offsets
    that are given for another partition would not be obeyed."""
    topics = {tp.topic for tp in found}
    lacking: list[object] = [name for name in options.names(()) if name not in topics]
    lacking += [tp for tp in _assigned(options) if tp not in found]
    if lacking:
        raise BadOption(f"{lacking[0]} was asked for and does not exist")
    for side, edges in (("starting", options.starting), ("ending", options.ending)):
        for tp in sorted(set(edges.single) - set(found))[:1]:
            name = f"{side}Offsets" if edges.single[tp].timestamp_ms is None else f"{side}OffsetsByTimestamp"
            raise BadOption(f"{name}: {tp} is none of the partitions that are read")


def visible_end(replica: Replica, options: Options) -> int:
    """Return the offset below which a consumer of this isolation level reads."""
    stable = options.committed_only and replica.last_stable_offset >= 0
    return min(replica.high_watermark, replica.last_stable_offset) if stable else replica.high_watermark


def asked_range(replica: Replica, options: Options) -> Range:
    """Return the range of one partition that the options ask for; raises BadOption if it is not in the log and
    failOnDataLoss is true."""
    first, end = replica.log_start_offset, visible_end(replica, options)
    start = edge_offset(options.starting.of(replica.tp), replica, first, end, error=not options.latest_where_none)
    stop = edge_offset(options.ending.of(replica.tp), replica, first, end, error=False)
    return checked_range(replica, start, stop, first, end, options.fail_on_data_loss)


def checked_range(replica: Replica, start: int, stop: int, first: int, end: int, fail: bool) -> Range:
    """Return the part of [start, stop) that is in the log; raises BadOption if that is not all, with `fail`."""
    if fail and (start < first or stop > end):
        raise BadOption(
            f"{replica.tp}: offsets {start} to {stop} were asked for, {first} to {end} are there"
            " (failOnDataLoss=false reads what is there)"
        )
    start, stop = max(start, first), min(stop, end)
    return Range(replica, start, max(start, stop))


def edge_offset(edge: Edge, replica: Replica, first: int, end: int, *, error: bool) -> int:
    """Return the offset of an edge. For a time after the last record that is `end`, or BadOption with `error`."""
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
    """Return the splits of a range, one per task."""
    splits = plan_splits(span, committed_only=options.committed_only, columns=columns, split_bytes=options.split_bytes)
    return [replace(split, control=options.control) for split in splits]
