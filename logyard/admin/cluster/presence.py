"""What is gone: the rule that all share who act on it.

One broker's word that something exists is enough, its silence is not: a broker that has just started, or that the
controller's updates reach late, knows nothing of a topic that exists. So what a snapshot lacks is asked of the
witnesses (`ports.ClusterClient.witnessed`), and it is gone only if they do not know it.
"""

from collections.abc import Iterable
from dataclasses import replace

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import ClusterClient
from logyard.broker.model import TopicPartition


def settled(client: ClusterClient, snapshot: ClusterSnapshot, expected: Iterable[TopicPartition]) -> ClusterSnapshot:
    """The snapshot, with the topics of expected partitions that it lacks as the witnesses know them.

    Topics that do not exist are in `missing`. Raises ClusterUnreachable, ApiError where that cannot be told now.
    """
    named = set(expected)
    known = {tp for tp, _ in snapshot.partitions(sorted({tp.topic for tp in named}))}
    lacking = sorted({tp.topic for tp in named - known})
    if not lacking:
        return snapshot
    told = client.witnessed(lacking)
    topics = {name: view for name, view in snapshot.topics.items() if name not in told.missing}
    missing = {*snapshot.missing, *told.missing} - set(told.topics)
    return replace(snapshot, topics=topics | dict(told.topics), missing=tuple(sorted(missing)))
