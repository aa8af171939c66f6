"""What an operator may want to mend in a cluster: each kind of finding with the topics and brokers that it is about."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import GroupView
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.cluster.gathering import SEARCHED_MAX, SETTINGS_MAX, Gathered
from logyard.plugins.logyard_ui.cluster.lag import Lag
from logyard.plugins.logyard_ui.cluster.old_groups import OldGroups
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, ConnId, RequestedCluster, services_of
from logyard.plugins.logyard_ui.findings.rules import Item, Known, find, readers
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread
from logyard.plugins.logyard_ui.views.history import read_forecasts, slot_now

ITEMS_MAX = 200

router = APIRouter()


@router.get("/findings")
async def findings(
    request: Request, cluster: RequestedCluster, conn_id: ConnId = ClusterHook.default_conn_name
) -> Response:
    """Findings by kind; null where what a kind needs is not known yet."""
    cached, parts = await cluster.state(REQUIRED_S), OptionalParts()
    state = required(cached)
    snapshot = state.snapshot
    moving, cached_sizes, cached_groups, cached_old, cached_gathered = await asyncio.gather(
        cluster.running(OPTIONAL_S),
        cluster.sizes(snapshot, OPTIONAL_S),
        cluster.groups(OPTIONAL_S),
        cluster.old_groups(snapshot, OPTIONAL_S),
        cluster.gathered(snapshot, OPTIONAL_S),
    )
    sizes, groups = parts.take("sizes", cached_sizes), parts.take("groups", cached_groups)
    old, gathered = parts.take("old_groups", cached_old), parts.take("details", cached_gathered)
    lag = None if groups is None else parts.take("groups", await cluster.lag(groups, snapshot, OPTIONAL_S))
    for name, problem in ({} if gathered is None else gathered.problems).items():
        parts.problems[name] = problem
    store, now = services_of(request).history, slot_now()
    disks = await cluster.kept("disk forecasts", lambda: read_forecasts(store, conn_id, now), OPTIONAL_S)
    readers_known = _readers(groups, lag, old)
    known = Known(snapshot, state.counts, moving.value or {}, gathered, sizes, readers_known, disks.value or ())
    rest = {"taken_at_ms": cached_gathered.taken_ms, "brokers": sorted(snapshot.brokers)} | parts.as_json()
    return await respond_in_thread(request, lambda: findings_json(known) | _limits(known, gathered) | rest)


def _readers(groups: list[GroupView] | None, lag: Lag | None, old: OldGroups | None) -> frozenset[str] | None:
    """None unless every group was read, and every group of the first consumers."""
    if groups is None or lag is None or old is None or old.total > len(old.groups):
        return None
    found = readers({group.group_id: group.topics for group in groups}, lag.committed)
    return None if found is None else found | {tp.topic for group in old.groups for tp in group.offsets}


def findings_json(known: Known) -> dict[str, Any]:
    return {
        "findings": [
            {
                "kind": kind,
                "total": None if items is None else len(items),
                "items": None if items is None else [_item(item) for item in items[:ITEMS_MAX]],
            }
            for kind, items in find(known).items()
        ]
    }


def _limits(known: Known, gathered: Gathered | None) -> dict[str, Any]:
    """How much was looked at, where a cluster has more than a page reads."""
    partitions = known.counts.totals.partitions
    return {
        "looked_at": None
        if gathered is None
        else {
            "topics": len(known.snapshot.topics),
            "settings_of": min(len(known.snapshot.topics), SETTINGS_MAX),
            "partitions": partitions,
            "transactions_of": min(partitions, SEARCHED_MAX),
        }
    }


def _item(item: Item) -> dict[str, Any]:
    return {"topic": item.topic, "broker": item.broker, "number": item.number, "values": dict(item.values)}
