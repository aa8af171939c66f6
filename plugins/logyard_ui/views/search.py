"""A search over topics, groups and brokers, for the page's search box and for forms that suggest names."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import GroupView
from logyard.plugins.logyard_ui.cluster.search import best, best_brokers
from logyard.plugins.logyard_ui.cluster.state import ClusterState
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

LIMIT_MAX = 50

router = APIRouter()

Kind = Literal["topics", "groups", "brokers"]


@router.get("/search")
async def search(
    request: Request,
    cluster: RequestedCluster,
    q: Annotated[str, Query(max_length=250)] = "",
    kind: Annotated[list[Kind], Query(max_length=3)] = [],  # noqa: B006 (FastAPI copies it)
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 8,
) -> Response:
    """Topics, groups and brokers whose names hold every word, the best first."""
    cached, parts = await cluster.state(REQUIRED_S), OptionalParts()
    state = required(cached)
    kinds = frozenset(kind) or frozenset(("topics", "groups", "brokers"))
    groups: list[GroupView] | None = []
    if "groups" in kinds:
        groups = parts.take("groups", await cluster.groups(OPTIONAL_S))
    rest = parts.as_json()
    return await respond_in_thread(request, lambda: search_json(state, groups, q, kinds, limit) | rest)


def search_json(
    state: ClusterState, groups: list[GroupView] | None, wanted: str, kinds: frozenset[str], limit: int
) -> dict[str, Any]:
    topics = best(state.snapshot.topics, wanted) if "topics" in kinds else []
    named = {group.group_id: group for group in groups or ()}
    groups_found = best(named, wanted)
    brokers = best_brokers(state.snapshot.brokers, state.counts.columns, wanted) if "brokers" in kinds else []
    return {
        "topics_total": len(topics),
        "topics": [_topic(state, name) for name in topics[:limit]],
        "groups_total": None if groups is None else len(groups_found),
        "groups": None if groups is None else [_group(named[name]) for name in groups_found[:limit]],
        "brokers_total": len(brokers),
        "brokers": [_broker(state, broker) for broker in brokers[:limit]],
    }


def _topic(state: ClusterState, name: str) -> dict[str, Any]:
    topic = state.snapshot.topics[name]
    return {"name": name, "partitions": len(topic.partitions), "internal": topic.internal}


def _group(group: GroupView) -> dict[str, Any]:
    return {"group": group.group_id, "state": group.state, "members": group.members}


def _broker(state: ClusterState, broker: int) -> dict[str, Any]:
    node = state.snapshot.brokers.get(broker)
    return {
        "id": broker,
        "host": None if node is None else node.host,
        "rack": None if node is None else node.rack,
        "alive": node is not None,
    }
