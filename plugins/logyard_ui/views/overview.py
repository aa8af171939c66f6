"""The overview of one cluster: its health, who controls it, and what is amiss; pure."""

from typing import Any

from logyard.plugins.logyard_ui.cache.cache import Found
from logyard.plugins.logyard_ui.cluster.state import Seen
from logyard.plugins.logyard_ui.views.reassignments import Running

OK, WARNING, CRITICAL, UNREACHABLE = "ok", "warning", "critical", "unreachable"


def overview_json(conn_id: str, seen: Found[Seen], running: Running | None) -> dict[str, Any]:
    """What was seen last, also where the cluster does not answer now; null where it never did."""
    head = {
        "conn_id": conn_id,
        "reachable": seen.problem is None,
        "problem": None if seen.problem is None else str(seen.problem),
        "taken_at_ms": seen.taken_ms,
        "look_ms": round(seen.took_s * 1000, 1),
        "every_ms": round(seen.every_s * 1000),
    }
    if seen.value is None:
        return head | _NOTHING | {"health": UNREACHABLE, "findings": [str(seen.problem)]}
    found = seen.value
    health, findings = _health(found)
    if seen.problem is not None:
        health, findings = UNREACHABLE, [str(seen.problem)]
    return head | _facts(found, running) | {"health": health, "findings": findings}


_NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "cluster_id",
        "kind",
        "controller",
        "brokers",
        "topics",
        "partitions",
        "replicas",
        "under_replicated",
        "offline",
        "not_preferred",
        "reassigning",
        "versions",
    )
) | {"controllers": [], "troubles": []}


def _facts(seen: Seen, running: Running | None) -> dict[str, Any]:
    counted, snapshot = seen.tally, seen.snapshot
    return {
        "cluster_id": snapshot.cluster_id,
        "kind": seen.controller.kind,
        "controller": _controller(seen),
        "controllers": list(seen.controllers),
        "brokers": {
            "alive": len(snapshot.brokers),
            "expected": len(seen.expected) or None,
            "missing": _missing(seen),
        },
        "topics": len(counted.rows),
        "partitions": counted.partitions,
        "replicas": counted.replicas,
        "under_replicated": counted.under_replicated,
        "offline": counted.offline,
        "not_preferred": counted.not_preferred,
        "reassigning": None if running is None else len(running),
        "troubles": [
            {
                "topic": trouble.topic,
                "partition": trouble.partition,
                "leader": trouble.leader,
                "replicas": list(trouble.replicas),
                "isr": list(trouble.isr),
                "offline": trouble.offline,
            }
            for trouble in counted.troubles
        ],
        "versions": {"topics": seen.topics.version, "replicas": seen.replicas.version},
    }


def _controller(seen: Seen) -> dict[str, Any] | None:
    """Null where the cluster does not tell us; an entry without an id where there is none."""
    if not seen.controller.known or not seen.controllers:
        return None
    current = seen.controllers[0]
    return {"id": current["id"], "alive": current["id"] is not None} | {
        name: current[name] for name in ("epoch", "since_ms")
    }


def _missing(seen: Seen) -> list[int]:
    """Brokers that ought to be there: named by the connection, or holding replicas."""
    return sorted({*seen.expected, *seen.tally.columns} - set(seen.snapshot.brokers))


def _health(seen: Seen) -> tuple[str, list[str]]:
    counted, critical, warning = seen.tally, [], []
    if seen.controller.known and seen.controller.id is None:
        critical.append("no controller")
    if counted.offline:
        critical.append(f"{_many(counted.offline, 'partition has', 'partitions have')} no living leader")
    if counted.under_replicated:
        warning.append(f"{_many(counted.under_replicated, 'partition is', 'partitions are')} under-replicated")
    missing = _missing(seen)
    if missing:
        named = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
        warning.append(f"{'broker' if len(missing) == 1 else 'brokers'} {named} missing")
    return CRITICAL if critical else WARNING if warning else OK, critical + warning


def _many(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
