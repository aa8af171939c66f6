"""Brokers and racks, and how evenly they are filled; one broker with its directories and settings."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.reassignment.space import volumes
from logyard.plugins.logyard_ui.cache.cache import Cached
from logyard.plugins.logyard_ui.cluster.clusters import CachedCluster
from logyard.plugins.logyard_ui.cluster.sizes import Sizes
from logyard.plugins.logyard_ui.cluster.state import ClusterState, mean
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, BrokerId, RequestedCluster
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_json
from logyard.plugins.logyard_ui.views.topic import configs_json

router = APIRouter()


@router.get("/brokers")
async def brokers(request: Request, cluster: RequestedCluster) -> Response:
    """Brokers with replicas, leaders, bytes, skew; racks."""
    cached, parts = await cluster.state(REQUIRED_S), OptionalParts()
    state = required(cached)
    sizes = parts.take("sizes", await cluster.sizes(state.snapshot, OPTIONAL_S))
    content = brokers_json(state, sizes) | parts.as_json() | {"taken_at_ms": cached.taken_ms}
    return respond_json(request, content)


@router.get("/broker")
async def broker(
    request: Request, cluster: RequestedCluster, number: Annotated[BrokerId, Query(alias="id")]
) -> Response:
    """One broker with its directories and settings."""
    state, parts = required(await cluster.state(REQUIRED_S)), OptionalParts()
    if number not in state.counts.columns:
        raise HTTPException(404, f"there is no broker {number}")
    cached_sizes, cached_configs = await asyncio.gather(
        cluster.sizes(state.snapshot, OPTIONAL_S), _broker_configs(cluster, state, number)
    )
    sizes = parts.take("sizes", cached_sizes)
    configs = None if cached_configs is None else parts.take("configs", cached_configs)
    content = {
        "broker": next(entry for entry in brokers_json(state, sizes)["brokers"] if entry["id"] == number),
        "log_dirs": None if sizes is None else directories_json(sizes, number),
        "configs": None if configs is None else configs_json(configs),
    }
    return respond_json(request, content | parts.as_json())


async def _broker_configs(
    cluster: CachedCluster, state: ClusterState, broker: int
) -> Cached[dict[str, ConfigValue]] | None:
    """None where the broker is dead: only it knows its settings."""
    return await cluster.broker_configs(broker, OPTIONAL_S) if broker in state.snapshot.brokers else None


def brokers_json(state: ClusterState, sizes: Sizes | None) -> dict[str, Any]:
    """Every broker that is alive or named by a replica."""
    held = None if sizes is None else sizes.brokers
    entries = [_broker(broker, state, held) for broker in state.counts.columns]
    _add_skew(entries)
    for entry in entries:
        entry["disk"] = None if sizes is None else disk_json(sizes, entry["id"])
    return {
        "controller": state.controller.id if state.controller.known else None,
        "brokers": entries,
        "racks": _racks(entries),
    }


def _broker(broker: int, state: ClusterState, held: Mapping[int, int] | None) -> dict[str, Any]:
    node, counts = state.snapshot.brokers.get(broker), state.counts.brokers[broker]
    return {
        "id": broker,
        "alive": node is not None,
        "host": node.host if node is not None else None,
        "port": node.port if node is not None else None,
        "rack": node.rack if node is not None else None,
        "controller": state.controller.known and state.controller.id == broker,
        "replicas": counts.replicas,
        "leaders": counts.leaders,
        "preferred_leaders": counts.preferred_leaders,
        "out_of_sync": counts.out_of_sync,
        "bytes": held.get(broker) if held is not None else None,
    }


def _add_skew(entries: list[dict[str, Any]]) -> None:
    """The distance from the mean of the living brokers, as a share of it."""
    for entry in entries:
        entry["skew"] = {}
    for what in ("replicas", "leaders", "bytes"):
        middle = mean([entry[what] for entry in entries if entry["alive"] and entry[what] is not None])
        for entry in entries:
            known = middle and entry["alive"] and entry[what] is not None
            entry["skew"][what] = round(entry[what] / middle - 1, 3) if known else None


def _racks(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Racks of living brokers by name, those without one last (null)."""
    racks: dict[str | None, list[dict[str, Any]]] = {}
    for entry in entries:
        if entry["alive"]:
            racks.setdefault(entry["rack"], []).append(entry)
    return [
        {
            "rack": rack,
            "brokers": [entry["id"] for entry in racks[rack]],
            "replicas": sum(entry["replicas"] for entry in racks[rack]),
            "leaders": sum(entry["leaders"] for entry in racks[rack]),
            "bytes": _sum([entry["bytes"] for entry in racks[rack]]),
        }
        for rack in sorted(racks, key=lambda name: (name is None, name or ""))
    ]


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def disk_json(sizes: Sizes, broker: int) -> dict[str, Any] | None:
    """Bytes of a broker's disks together, and how full the fullest is (a share); None where it does not tell."""
    mine = [one for one in sizes.directories if one.broker == broker and one.is_online]
    known = volumes(mine)
    if not known or any(one.used is None for one in mine):
        return None
    fullest = max(1 - usable / total if total else 1.0 for total, usable in known)
    total, free = (sum(each) for each in zip(*known, strict=True))
    return {"total": total, "free": free, "fullest": round(fullest, 4)}


def directories_json(sizes: Sizes, broker: int) -> list[dict[str, Any]] | None:
    """The directories of one broker with their disks' bytes; None where it did not answer."""
    if broker not in sizes.answered:
        return None
    empty = {"bytes": 0, "replicas": 0, "future_replicas": 0}
    found: dict[str, dict[str, Any]] = {
        one.path: {"path": one.path, **empty, "total": one.total, "free": one.usable, "online": one.is_online}
        for one in sizes.directories
        if one.broker == broker
    }
    for replica in sizes.replicas:
        if replica.broker == broker:
            entry = found[replica.log_dir]
            entry["bytes"] += replica.size
            entry["future_replicas" if replica.is_future else "replicas"] += 1
    return [found[path] for path in sorted(found)]
