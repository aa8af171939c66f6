"""One topic: its partitions with offsets and bytes, settings, groups, open transactions, who may do what on it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import ConfigValue, GroupView, PartitionView, TopicView
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.clusters import PARTITIONS_MAX, Offsets
from logyard.plugins.logyard_ui.cluster.counts import wanted_replicas
from logyard.plugins.logyard_ui.cluster.lag import Lag, total
from logyard.plugins.logyard_ui.cluster.progress import Running
from logyard.plugins.logyard_ui.cluster.rights import TopicRights, rights_json
from logyard.plugins.logyard_ui.cluster.sizes import Sizes
from logyard.plugins.logyard_ui.cluster.state import ClusterState
from logyard.plugins.logyard_ui.cluster.transactions import TopicTransaction, TopicTransactions
from logyard.plugins.logyard_ui.dependencies import DETAIL_S, OPTIONAL_S, REQUIRED_S, RequestedCluster, TopicName
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

GROUPS_MAX = 500

router = APIRouter()


@dataclass(frozen=True, slots=True)
class TopicParts:
    """What is known of a topic beside the snapshot; None: not known."""

    running: Running | None = None
    offsets: Offsets | None = None
    configs: Mapping[str, ConfigValue] | None = None
    sizes: Sizes | None = None
    groups: list[GroupView] | None = None
    lag: Lag | None = None
    transactions: TopicTransactions | None = None
    rights: TopicRights | None = None


@router.get("/topic")
async def topic(request: Request, cluster: RequestedCluster, name: TopicName) -> Response:
    """One topic: partitions, offsets, bytes, settings, groups, open transactions, who may do what on it."""
    cached = await cluster.state(REQUIRED_S, [name])
    state = required(cached)
    if name not in state.snapshot.topics:
        raise HTTPException(404, f"there is no topic {name}")
    optional, snapshot = OptionalParts(), state.snapshot
    read = asyncio.gather(
        cluster.running(DETAIL_S),
        cluster.offsets(name, snapshot, OPTIONAL_S),
        cluster.topic_configs(name, OPTIONAL_S),
        cluster.sizes(snapshot, OPTIONAL_S),
        cluster.groups(OPTIONAL_S),
        cluster.transactions(name, snapshot, OPTIONAL_S),
    )
    all_read, rights = await asyncio.gather(read, cluster.rights(name, OPTIONAL_S))
    moving, offsets, configs, sizes, groups, transactions = all_read
    lag = None if groups.value is None else await cluster.lag(groups.value, snapshot, OPTIONAL_S)
    parts = TopicParts(
        running=moving.value,
        offsets=optional.take("offsets", offsets),
        configs=optional.take("configs", configs),
        sizes=optional.take("sizes", sizes),
        groups=optional.take("groups", groups),
        lag=None if lag is None else optional.take("groups", lag),
        transactions=optional.take("transactions", transactions),
        rights=optional.take("rights", rights),
    )
    if parts.offsets is not None and parts.offsets.problem is not None:
        optional.problems["offsets"] = parts.offsets.problem
    if parts.transactions is not None and parts.transactions.problem is not None:
        optional.problems["transactions"] = parts.transactions.problem
    rest = {"taken_at_ms": cached.taken_ms} | optional.as_json()
    return await respond_in_thread(request, lambda: topic_json(name, state, parts) | rest)


def topic_json(name: str, state: ClusterState, parts: TopicParts) -> dict[str, Any]:
    topic = state.snapshot.topics[name]
    entries = [_partition(topic, view, state, parts) for view in topic.partitions[:PARTITIONS_MAX]]
    sizes = [size for entry in entries for size in (entry["sizes"] or {}).values()]
    return {
        "name": name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": max(
            (
                wanted_replicas(v, (parts.running or {}).get(TopicPartition(name, v.partition)))
                for v in topic.partitions
            ),
            default=0,
        ),
        "partitions_total": len(topic.partitions),
        "partitions": entries,
        "configs": None if parts.configs is None else configs_json(parts.configs),
        "groups": _groups(name, parts),
        "transactions": None if parts.transactions is None else [_transaction(t) for t in parts.transactions.found],
        "rights": None if parts.rights is None else rights_json(parts.rights),
        "bytes": None if parts.sizes is None else sum(sizes),
        "records": None if parts.offsets is None else total(entry["records"] for entry in entries),
    }


def configs_json(configs: Mapping[str, ConfigValue]) -> list[dict[str, Any]]:
    """By name; a sensitive value is never shown, whatever the broker sent."""
    return [
        {
            "name": name,
            "value": None if entry.sensitive else entry.value,
            "source": entry.source,
            "override": entry.is_override,
            "sensitive": entry.sensitive,
            "read_only": entry.read_only,
        }
        for name, entry in sorted(configs.items())
    ]


def _partition(topic: TopicView, view: PartitionView, state: ClusterState, parts: TopicParts) -> dict[str, Any]:
    tp = TopicPartition(topic.name, view.partition)
    moving = (parts.running or {}).get(tp, Assignment(view.replicas))
    held = None if parts.sizes is None else parts.sizes.held.get(tp, {})
    start = end = None
    if parts.offsets is not None:
        start, end = parts.offsets.start.get(tp), parts.offsets.end.get(tp)
    return {
        "partition": view.partition,
        "leader": view.leader,
        "leader_epoch": view.leader_epoch,
        "preferred": view.preferred,
        "replicas": list(view.replicas),
        "isr": list(view.isr),
        "under_replicated": view.is_under_replicated(moving),
        "offline": view.leader not in state.snapshot.brokers,
        "adding": list(moving.adding),
        "removing": list(moving.removing),
        "start": start,
        "end": end,
        "records": None if start is None or end is None else max(end - start, 0),
        "sizes": None if held is None else {str(broker): held[broker].size for broker in sorted(held)},
        "behind": None
        if held is None
        else {str(broker): held[broker].offset_lag for broker in sorted(held) if broker != view.leader},
    }


def _transaction(found: TopicTransaction) -> dict[str, Any]:
    producer, coordinated = found.open.producer, found.coordinated
    return {
        "partition": found.open.tp.partition,
        "start": producer.start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_ms": producer.last_ms,
        "transactional_id": found.transactional_id,
        "state": None if coordinated is None else coordinated.state,
        "holds_back": found.holds_back,
        "hangs": found.hangs,
    }


def _groups(topic: str, parts: TopicParts) -> list[dict[str, Any]] | None:
    """The groups that read the topic: those with committed offsets or members; the largest lag first."""
    if parts.lag is None:
        return None
    states = {group.group_id: group for group in parts.groups or ()}
    found: list[dict[str, Any]] = []
    for group in sorted(parts.lag.committed):
        lags = {tp: lag for tp, lag in (parts.lag.of(group) or {}).items() if tp.topic == topic}
        unread = {tp: count for tp, count in parts.lag.unread(group).items() if tp.topic == topic}
        if lags or unread:
            view = states.get(group)
            found.append(
                {
                    "group": group,
                    "state": view.state if view is not None else None,
                    "members": view.members if view is not None else None,
                    "lag": total(lags.values()) if lags else 0,
                    "unread": total(unread.values()) if unread else 0,
                    "uncommitted": len(unread),
                    "partitions": {
                        str(tp.partition): {"committed": parts.lag.committed[group][tp], "lag": lag}
                        for tp, lag in list(lags.items())[:PARTITIONS_MAX]
                    },
                }
            )
    return sorted(found, key=lambda entry: -(entry["lag"] or 0))[:GROUPS_MAX]
