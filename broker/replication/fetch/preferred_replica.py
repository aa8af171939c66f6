"""The replica that a consumer should read from: one in its own rack (KIP-392, RackAwareReplicaSelector)."""

from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.replication.events import FetchParams
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.partition import Partition


def preferred_read_replica(
    hosted: Hosted, partition: Partition, log: PartitionLog, offset: int, params: FetchParams
) -> int | None:
    """Return the broker to read from instead of this leader, or None.

    Candidates have the consumer's rack and listener and hold `offset`. The leader wins if it is one of them, then the
    longest log, then the one that was last caught up most recently.
    """
    if not hosted.settings.rack_aware_reads:
        return None
    brokers = hosted.metadata.brokers
    me = brokers.get(hosted.settings.broker_id)
    if me is not None and me.rack == params.rack:
        return None
    best: tuple[int, int, int] | None = None
    for remote in partition.remotes.values():
        broker = brokers.get(remote.id)
        if broker is None or broker.rack != params.rack or broker.endpoint(params.listener) is None:
            continue
        if not remote.log_start_offset <= offset <= remote.log_end_offset:
            continue
        rank = (remote.log_end_offset, remote.last_caught_up_ms, remote.id)
        best = rank if best is None else max(best, rank)
    return best[2] if best is not None else None
