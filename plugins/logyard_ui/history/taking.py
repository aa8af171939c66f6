"""A sample of a cluster, read from its brokers."""

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.errors import ApiError
from logyard.admin.ports import EARLIEST, ClusterUnreachable, DescribingClient
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cluster.lag import read_ends
from logyard.plugins.logyard_ui.cluster.sizes import read_sizes
from logyard.plugins.logyard_ui.history.sample import GROUPS_MAX, GroupPoint, Sample, TopicPoint

# After so many groups without an answer the others are left out, too.
UNANSWERED_MAX = 3


def take(client: DescribingClient) -> Sample:
    """Read offsets, bytes and groups. Raises ApiError, ClusterUnreachable.

    Topics are left out of which a partition has no leader or gives no answer, groups that cannot be read.
    """
    snapshot = client.snapshot()
    partitions = [tp for tp, _ in snapshot.partitions()]
    silent: set[int] = set()
    starts = read_ends(client, partitions, snapshot, silent, EARLIEST)
    ends = read_ends(client, partitions, snapshot, silent)
    sizes = read_sizes(client, sorted(snapshot.brokers))
    topics: dict[str, TopicPoint] = {}
    for name, topic in snapshot.topics.items():
        tps = [TopicPartition(name, view.partition) for view in topic.partitions]
        if all(tp in starts and tp in ends for tp in tps):
            of = {view.partition: sizes.held.get(TopicPartition(name, view.partition), {}) for view in topic.partitions}
            led = [of[v.partition][v.leader].size for v in topic.partitions if v.leader in of[v.partition]]
            every = sum(replica.size for replicas in of.values() for replica in replicas.values())
            records = sum(max(ends[tp] - starts[tp], 0) for tp in tps)
            topics[name] = TopicPoint(sum(ends[tp] for tp in tps), records, sum(led), every)
    disks: dict[int, dict[str, tuple[int, int]]] = {}
    for one in sizes.directories:
        if one.total is not None and one.usable is not None and one.is_online:
            disks.setdefault(one.broker, {})[one.path] = (one.total, one.usable)
    held = sum(sizes.brokers.values())
    return Sample(topics, _groups(client, snapshot, ends), dict(sizes.brokers), held, disks, snapshot.cluster_id)


def _groups(
    client: DescribingClient, snapshot: ClusterSnapshot, ends: dict[TopicPartition, int]
) -> dict[str, GroupPoint]:
    found = {}
    unanswered = 0
    for view in client.groups()[: 2 * GROUPS_MAX]:
        try:
            committed = client.group_offsets(view.group_id)
        except ApiError:
            continue
        except ClusterUnreachable:
            unanswered += 1  # each takes as long as a request may
            if unanswered == UNANSWERED_MAX:
                break
            continue
        topics: dict[str, tuple[int, int]] = {}
        lost = {tp.topic for tp in committed if tp not in ends}
        for tp, offset in committed.items():
            if tp.topic not in lost and tp.topic in snapshot.topics:
                done, lag = topics.get(tp.topic, (0, 0))
                topics[tp.topic] = (done + offset, lag + max(ends[tp] - offset, 0))
        if topics:
            found[view.group_id] = GroupPoint(topics)
    return found
