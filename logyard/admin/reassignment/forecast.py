"""The effect of a plan on each broker: bytes, replicas and preferred leaders before and after. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.quantities import size
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.space import warnings
from logyard.broker.model import TopicPartition


def forecast(
    snapshot: ClusterSnapshot,
    sizes: Iterable[ReplicaSize],
    moves: Sequence[Move],
    capacities: Mapping[int, int] | None = None,
    untold: Container[int] = (),
) -> list[dict[str, Any]]:
    """One entry for each broker that is alive or holds a replica, in the order of their ids. Sizes are bytes.

    `bytes_peak` is the most that the broker holds while moves run: replicas are added before others are deleted. The
    bytes of a broker that is not alive are None: nobody tells them; so are those of `untold`, which live and do not
    tell. With capacities, `capacity` is that of the broker's
    disks, None if it is not known.
    """
    held: dict[int, dict[TopicPartition, int]] = {broker: {} for broker in snapshot.brokers}
    for entry in sizes:
        if not entry.is_future:
            held.setdefault(entry.broker, {})[entry.tp] = entry.size
    before = {tp: view.replicas for tp, view in snapshot.partitions()}
    after = before | {move.tp: move.target for move in moves}
    for replicas in (*before.values(), *after.values()):
        for broker in replicas:
            held.setdefault(broker, {})
    comes = dict.fromkeys(held, 0)
    goes = dict.fromkeys(held, 0)
    for move in moves:
        for broker in move.adding:
            comes[broker] += move.size
        for broker in move.removing:
            goes[broker] += held[broker].get(move.tp, move.size)
    counts = [_counts(before), _counts(after)]
    known = {broker for broker in snapshot.brokers if broker not in untold}
    return [
        {
            "broker": broker,
            "alive": broker in snapshot.brokers,
            "rack": snapshot.brokers[broker].rack if broker in snapshot.brokers else None,
            **_bytes(sum(held[broker].values()), comes[broker], goes[broker], known=broker in known),
            "replicas_before": counts[0][0].get(broker, 0),
            "replicas_after": counts[1][0].get(broker, 0),
            "leaders_before": counts[0][1].get(broker, 0),
            "leaders_after": counts[1][1].get(broker, 0),
            **({"capacity": capacities.get(broker)} if capacities else {}),
        }
        for broker in sorted(held)
    ]


def forecast_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The forecast as lines of a task's log."""
    return [
        f"broker {e['broker']}{'' if e['alive'] else ' (dead)'}: {_size(e['bytes_before'])} → "
        f"{_size(e['bytes_after'])} (at most {_size(e['bytes_peak'])}{_share(e)}), "
        f"{e['replicas_before']} → {e['replicas_after']} replicas, "
        f"{e['leaders_before']} → {e['leaders_after']} preferred leaders"
        for e in entries
    ]


def as_markdown(document: dict[str, Any]) -> str:
    """A plan document for the person who has to approve it."""
    moves = document.get("partitions") or []
    seconds = document.get("seconds_at_throttle")
    lines = [
        f"**{len(moves)} partitions change, {document.get('replicas_moved', 0)} replicas and "
        f"{size(document.get('bytes_moved', 0))} move"
        + (f"; at least {seconds:,.0f} s at the throttle.**" if seconds else ".**"),
        "",
    ]
    if document.get("brokers"):
        lines += [
            "| broker | size before | size after | replicas | preferred leaders |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {e['broker']} | {_size(e['bytes_before'])} | {_size(e['bytes_after'])}{_share(e)} "
            f"| {e['replicas_before']} → {e['replicas_after']} | {e['leaders_before']} → {e['leaders_after']} |"
            for e in document["brokers"]
        ]
        lines.append("")
    lines += [f"**{warning}**\n" for warning in warnings(document.get("disks") or ())]
    lines += [f"**{line}**\n" for line in document.get("unsized") or ()]
    shown = moves[:_SHOWN]
    lines += [f"- `{m['topic']}-{m['partition']}`: {m.get('from')} → {m['replicas']}" for m in shown]
    if len(moves) > len(shown):
        lines.append(f"- … and {len(moves) - len(shown)} more (the plan task's result has all of them)")
    return "\n".join(lines)


_SHOWN = 50


def _bytes(before: int, comes: int, goes: int, *, known: bool) -> dict[str, int | None]:
    return {
        "bytes_before": before if known else None,
        "bytes_after": before + comes - goes if known else None,
        "bytes_peak": before + comes if known else None,
    }


def _size(count: int | None) -> str:
    return "not known" if count is None else size(count)


def _share(entry: dict[str, Any]) -> str:
    """How full the broker's disks get, if that is known."""
    capacity, peak = entry.get("capacity"), entry["bytes_peak"]
    return f" ({peak / capacity:.0%} of its disks at the peak)" if capacity and peak is not None else ""


def _counts(placed: dict[TopicPartition, tuple[int, ...]]) -> tuple[dict[int, int], dict[int, int]]:
    replicas: dict[int, int] = {}
    leaders: dict[int, int] = {}
    for brokers in placed.values():
        for broker in brokers:
            replicas[broker] = replicas.get(broker, 0) + 1
        if brokers:
            leaders[brokers[0]] = leaders.get(brokers[0], 0) + 1
    return replicas, leaders
