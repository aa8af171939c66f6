"""What is gone: the rule that all share who act on it.

One broker's word that something exists is enough, its silence is not: a broker that has just started, or that the
controller's updates reach late, knows nothing of a topic that exists. So what a snapshot lacks is asked of the
witnesses (`ports.ClusterClient.witnessed`), and it is gone only if they do not know it. So it is with brokers: one that
is away is named by nobody. That a list is whole is not told by one broker either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import TopicPartition


class TopicClient(Protocol):
    """The calls that tell of topics."""

    def snapshot(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...
    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...


def settled(client: TopicClient, snapshot: ClusterSnapshot, expected: Iterable[TopicPartition]) -> ClusterSnapshot:
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


def told(client: TopicClient, topics: Sequence[str]) -> ClusterSnapshot:
    """A snapshot in which each of these topics is in `topics`, or in `missing` because it does not exist, `completed`.

    Raises ClusterUnreachable, ApiError where that cannot be told now.
    """
    snapshot = client.snapshot(topics)
    untold = _untold(snapshot, topics)
    if not untold:
        return completed(client, snapshot, topics) if topics else snapshot
    more = client.witnessed(topics)
    require_told(more, untold)
    return _joined(snapshot, more)


def completed(client: TopicClient, snapshot: ClusterSnapshot, topics: Sequence[str] | None) -> ClusterSnapshot:
    """The snapshot with these topics (None: all) as the witnesses know them: the broker that was asked may not have
    heard of new partitions, or of a new topic. As it is where it names no controller that lives, or they cannot tell.
    """
    if snapshot.controller not in snapshot.brokers:
        return snapshot  # nobody is waited for
    try:
        more = client.witnessed(topics)
    except LogyardError:
        return snapshot
    return _joined(replace(snapshot, topics={}) if topics is None else snapshot, more)


def _joined(snapshot: ClusterSnapshot, witnessed: ClusterSnapshot) -> ClusterSnapshot:
    known = {**snapshot.topics, **witnessed.topics}
    there = {name: view for name, view in known.items() if name not in witnessed.missing}
    missing = {*snapshot.missing, *witnessed.missing} - there.keys()
    return replace(snapshot, topics=there, missing=tuple(sorted(missing)))


def require_told(witnessed: ClusterSnapshot, topics: Iterable[str]) -> None:
    """Raise ApiError where the witnesses do not tell whether one of these topics exists."""
    if untold := _untold(witnessed, topics):
        text = f"topic {untold[0]} cannot be described: no broker tells this login whether it exists"
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)


def with_brokers(client: TopicClient, snapshot: ClusterSnapshot, expected: Iterable[int]) -> ClusterSnapshot:
    """The snapshot, with the brokers of `expected` that it lacks where the witnesses know them. The others are away.

    Raises ClusterUnreachable, ApiError where that cannot be told now.
    """
    if snapshot.brokers.keys() >= set(expected):
        return snapshot
    return with_all_brokers(client, snapshot)


def with_all_brokers(client: TopicClient, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same with every broker that the witnesses know: for who has to reach each that lives."""
    return replace(snapshot, brokers={**client.witnessed([]).brokers, **snapshot.brokers})


def with_holders(client: TopicClient, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same with the brokers that have replicas: who plans gives those of dead ones to others."""
    return with_brokers(client, snapshot, {b for _, view in snapshot.partitions() for b in view.replicas})


def _untold(snapshot: ClusterSnapshot, topics: Iterable[str]) -> list[str]:
    return sorted(set(topics) - set(snapshot.topics) - set(snapshot.missing))
