"""The range of offsets that an export reads next: by the manifest, the leader epochs and the log's bounds."""

from collections import defaultdict
from collections.abc import Sequence

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest import Manifest, TopicOffsets
from logyard.spark_jobs.segments.epochs import UNKNOWN, kept_until
from logyard.spark_jobs.segments.replicas import Replica
from logyard.spark_jobs.segments.splits import Range


def plan_range(
    replica: Replica, manifest: Manifest, *, committed_only: bool, allow_data_loss: bool, accept_new_topic: bool
) -> Range:
    """Return the range to export of one partition.

    Raises ExportRefused if the high watermark is not known, the cluster or topic differs from before, or the log lost
    records since the last run.
    """
    if replica.watermark_trouble:
        raise ExportRefused(f"{replica.tp}: {replica.watermark_trouble}")
    if manifest.cluster_id is not None and replica.cluster_id is not None and manifest.cluster_id != replica.cluster_id:
        raise ExportRefused(
            f"this directory holds an export of cluster {manifest.cluster_id}, not of {replica.cluster_id}:"
            " use another --destination"
        )
    known = manifest.topics.get(replica.topic)
    if known is not None and known.topic_id != replica.topic_id:
        if not accept_new_topic:
            raise ExportRefused(
                f"topic {replica.topic} was deleted and created again since it was exported (id {known.topic_id}, now"
                f" {replica.topic_id}): --accept-new-topic exports the new one from its start"
            )
        known = None
    start = None if known is None else known.next_offsets.get(replica.partition)
    if known is not None and start is not None:
        _check_kept(replica, start, known.epochs.get(replica.partition, UNKNOWN), allow_data_loss=allow_data_loss)
    if start is None:
        start = 0 if _is_added(replica, known) else replica.log_start_offset
    if start < replica.log_start_offset:
        if not allow_data_loss:
            raise ExportRefused(
                f"{replica.tp}: offsets {start} to {replica.log_start_offset - 1} were deleted before they were"
                " exported: --allow-data-loss continues after them"
            )
        start = replica.log_start_offset
    end = replica.high_watermark
    if committed_only and replica.last_stable_offset >= 0:
        end = min(end, replica.last_stable_offset)
    # Right after a failover the new leader's high watermark may be below the exported offset: then the range is empty.
    return Range(replica, start, max(start, end))


def _is_added(replica: Replica, known: TopicOffsets | None) -> bool:
    """Whether a topic has got a partition since it was exported. One with a lower number was given up in earlier runs,
    and a directory may have any of a topic's partitions: what was deleted of them before is not known."""
    return known is not None and replica.lease is not None and replica.partition > max(known.next_offsets, default=-1)


def made_again(ranges: Sequence[Range]) -> frozenset[str]:
    """Return the topics of which some partitions are a former topic's, by their ids: it was deleted and created again
    between two leases. A version knows one id for each topic, so offsets of the one would pass for the other's."""
    ids: dict[str, set[str | None]] = defaultdict(set)
    for span in ranges:
        ids[span.replica.topic].add(span.replica.topic_id)
    return frozenset(topic for topic, found in ids.items() if len(found - {None}) > 1)


def topic_offsets(ranges: Sequence[Range], schema: str) -> dict[str, TopicOffsets]:
    """Return the offsets, by topic, that are exported once these ranges are."""
    offsets: dict[str, dict[int, int]] = defaultdict(dict)
    epochs: dict[str, dict[int, int]] = defaultdict(dict)
    for span in ranges:
        offsets[span.replica.topic][span.replica.partition] = span.end
        if span.epoch != UNKNOWN:
            epochs[span.replica.topic][span.replica.partition] = span.epoch
    ids = {span.replica.topic: span.replica.topic_id for span in ranges}
    return {name: TopicOffsets(ids[name], offsets[name], schema, epochs[name]) for name in offsets}


def _check_kept(replica: Replica, start: int, epoch: int, *, allow_data_loss: bool) -> None:
    """Raise ExportRefused if the log no longer holds the records that were exported up to `start` (the last one with
    leader epoch `epoch`), or if the replica's leader epoch is too old to tell."""
    if 0 <= replica.leader_epoch < epoch:
        raise ExportRefused(
            f"{replica.tp}: broker {replica.broker_id} leads it in epoch {replica.leader_epoch}, and epoch {epoch} was"
            " exported: another leads it by now; run the export again"
        )
    log_end = replica.log_end_offset if replica.log_end_offset >= 0 else replica.high_watermark
    kept = kept_until(replica.leader_epochs, log_end, start, epoch)
    if kept < start and not allow_data_loss:
        raise ExportRefused(
            f"{replica.tp}: it was exported up to {start}, and from {kept} on the log has lost these records, others"
            f" may stand there (an unclean election?): --allow-data-loss continues at {start}"
        )
