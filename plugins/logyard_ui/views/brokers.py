"""Brokers and racks, and how evenly they are filled; pure."""

from collections.abc import Mapping
from typing import Any

from logyard.plugins.logyard_ui.cluster.sizes import Sizes
from logyard.plugins.logyard_ui.cluster.state import Seen, mean


def brokers_json(seen: Seen, sizes: Sizes | None) -> dict[str, Any]:
    """Every broker that lives or is named by a replica."""
    held = None if sizes is None else sizes.brokers
    entries = [_broker(broker, seen, held) for broker in seen.tally.columns]
    _add_skew(entries)
    return {
        "controller": seen.controller.id if seen.controller.known else None,
        "brokers": entries,
        "racks": _racks(entries),
    }


def _broker(broker: int, seen: Seen, held: Mapping[int, int] | None) -> dict[str, Any]:
    node, counts = seen.snapshot.brokers.get(broker), seen.tally.brokers[broker]
    return {
        "id": broker,
        "alive": node is not None,
        "host": node.host if node is not None else None,
        "port": node.port if node is not None else None,
        "rack": node.rack if node is not None else None,
        "controller": seen.controller.known and seen.controller.id == broker,
        "replicas": counts.replicas,
        "leaders": counts.leaders,
        "preferred_leaders": counts.preferred_leaders,
        "out_of_sync": counts.out_of_sync,
        "bytes": held.get(broker) if held is not None else None,
    }


def _add_skew(entries: list[dict[str, Any]]) -> None:
    """How far each one is from the mean of the living, as a share of it."""
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
