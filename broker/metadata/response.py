"""The answer to Metadata, v0-v12, from the cache alone: pure, so that its encoding can be cached (facts §19).

Changes by version: v1 internal flag, controller, rack, null = all topics; v2 cluster id; v5 offline replicas; v6
LISTENER_NOT_FOUND for a live leader without the client's listener; v7 leader epochs; v10 topic ids; v12 by id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache, PartitionMetadata
from logyard.broker.model import INTERNAL_TOPICS, NO_LEADER, ZERO_TOPIC_ID, TopicId

NOT_ASKED = -(2**31)  # "no authorized operations were asked for"


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """One requested topic: by name, or since v12 by id alone."""

    name: str | None
    topic_id: TopicId = ZERO_TOPIC_ID


def queries(topics: Sequence[Any] | None, version: int) -> list[TopicQuery] | None:
    """Translate a request's topics; None means all (v0: an empty list, v1+: null).

    One that is named twice is answered once, as in Kafka: a few kilobytes that name a large topic again and again would
    have an answer of gigabytes.
    """
    if topics is None or (version == 0 and not topics):
        return None
    return list(dict.fromkeys(TopicQuery(t.name, getattr(t, "topic_id", None) or ZERO_TOPIC_ID) for t in topics))


def metadata_response(
    cache: MetadataCache,
    topics: Iterable[TopicQuery] | None,
    version: int,
    listener: str,
    *,
    cluster_id: str | None = None,
    refusals: Mapping[str, ErrorCode] | None = None,
    topic_operations: Mapping[str, int] | None = None,
    cluster_operations: int = NOT_ASKED,
    throttle_ms: int = 0,
) -> dict[str, Any]:
    """Return the response's fields for `codec.encode_response(3, version, …)`.

    `topics` None: all. `refusals` has the errors for named topics, instead of their partitions or of
    UNKNOWN_TOPIC_OR_PARTITION: TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE (being created)…
    """
    refused = refusals or {}
    operations = topic_operations or {}
    wanted = (TopicQuery(name) for name in cache.topics()) if topics is None else topics
    return {
        "throttle_time_ms": throttle_ms,
        "brokers": _brokers(cache, listener),
        "cluster_id": cluster_id,
        "controller_id": cache.controller_id if cache.is_alive(cache.controller_id) else NO_LEADER,
        "topics": [_topic(cache, query, version, listener, refused, operations) for query in wanted],
        "cluster_authorized_operations": cluster_operations,
    }


def _brokers(cache: MetadataCache, listener: str) -> list[dict[str, Any]]:
    reachable = []
    for broker in cache.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            reachable.append({"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack})
    return reachable


def _topic(
    cache: MetadataCache,
    query: TopicQuery,
    version: int,
    listener: str,
    refusals: Mapping[str, ErrorCode],
    operations: Mapping[str, int],
) -> dict[str, Any]:
    name = query.name
    if name is None:
        name = cache.topic_name(query.topic_id)
        if name is None:
            return _refused(None, query.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        if name in refusals:
            # A client that may not see a topic does not learn its name from its id.
            return _refused(None, query.topic_id, refusals[name])
    if name in refusals or name not in cache:
        refusal = refusals.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _refused(name, ZERO_TOPIC_ID, refusal, operations.get(name, NOT_ASKED))
    partitions = cache.partitions(name)
    return {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": cache.topic_id(name) or ZERO_TOPIC_ID,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [_partition(cache, n, p, version, listener) for n, p in partitions.items()],
        "topic_authorized_operations": operations.get(name, NOT_ASKED),
    }


def _refused(name: str | None, topic_id: TopicId, error: ErrorCode, operations: int = NOT_ASKED) -> dict[str, Any]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS and error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def _partition(
    cache: MetadataCache, number: int, partition: PartitionMetadata, version: int, listener: str
) -> dict[str, Any]:
    replicas: Sequence[int] = partition.replicas
    isr: Sequence[int] = partition.isr
    error = ErrorCode.NONE
    if version == 0:
        # v0 clients cannot recognise a dead replica, so it is left out, and the error says so.
        replicas = [r for r in replicas if _reachable(cache, r, listener)]
        isr = [r for r in isr if _reachable(cache, r, listener)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    leader = partition.leader
    if not _reachable(cache, leader, listener):
        unheard = cache.is_alive(leader) and version >= 6
        error = ErrorCode.LISTENER_NOT_FOUND if unheard else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    return {
        "error_code": error,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": partition.offline,
    }


def _reachable(cache: MetadataCache, broker_id: int, listener: str) -> bool:
    broker = cache.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener) is not None
