"""Whether a plan of moves fits on the disks as brokers report them: what comes, what goes, what stays free. Pure.

A replica that moves exists twice until its new copy is in sync, so what goes makes no room for what comes (facts §36,
guard rail 6). A broker puts each new replica in a directory of its own choice, so what comes is known by broker only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logyard.admin.cluster.snapshot import DirectorySpace, LogDirs, ReplicaSize
from logyard.admin.quantities import size
from logyard.admin.reassignment.disks import LIMIT, DiskTooFull
from logyard.admin.reassignment.plan import Move
from logyard.broker.model import TopicPartition

# Directories count as one volume whose totals are equal and whose usable bytes differ by less than this share of it:
# the protocol does not say which share one. So two equal disks that are equally full, as new ones are, count once. What
# fits on them only if they are two is a warning, and no refusal.
SAME_VOLUME = 0.001
FITS, TIGHT, TOO_FULL, UNKNOWN = "fits", "tight", "too full", "unknown"


def volumes(directories: Iterable[DirectorySpace]) -> list[tuple[int, int]]:
    """Total and usable bytes of the volumes of one broker's directories; those that are not known are left out."""
    found: list[tuple[int, int]] = []
    for one in directories:
        total, usable = one.total, one.usable
        if total is None or usable is None:
            continue
        if not any(total == other and abs(usable - free) <= SAME_VOLUME * total for other, free in found):
            found.append((total, usable))
    return found


def room(
    directories: Iterable[DirectorySpace], replicas: Iterable[ReplicaSize], moves: Sequence[Move], limit: float = LIMIT
) -> list[dict[str, Any]]:
    """One entry for each broker whose disks the moves change, by id; sizes are bytes, None where they are not known.

    `free`: usable now; `free_least`: while replicas move; `free_after`: at the end. `verdict`: FITS; TIGHT, where more
    than `limit` of the disks will be used, one directory may be too small for what it gets, or directories that look
    like one disk have to be several; TOO_FULL; UNKNOWN.
    `reason`: the verdict as a sentence, empty for FITS.
    """
    by_broker: dict[int, list[DirectorySpace]] = {}
    for one in directories:
        if one.is_online:
            by_broker.setdefault(one.broker, []).append(one)
    places = {(each.broker, each.tp): each for each in replicas if not each.is_future}
    comes: dict[int, list[int]] = {}
    goes: dict[int, dict[str, int]] = {}
    for move in moves:
        for broker in move.adding:
            comes.setdefault(broker, []).append(move.size)
        for broker in move.removing:
            _leave(goes.setdefault(broker, {}), places.get((broker, move.tp)))
    return [
        _entry(broker, by_broker.get(broker, []), comes.get(broker, []), goes.get(broker, {}), limit)
        for broker in sorted({*comes, *goes})
    ]


def refuse_overfull(entries: Iterable[Mapping[str, Any]]) -> None:
    """Raise DiskTooFull for the first broker that cannot hold what a plan brings it."""
    for entry in entries:
        if entry["verdict"] == TOO_FULL:
            raise DiskTooFull(entry["reason"])


def warnings(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The sentences of those that are tight or too full."""
    return [entry["reason"] for entry in entries if entry["verdict"] in (TIGHT, TOO_FULL)]


def move_warnings(found: LogDirs, moves: Sequence[Move]) -> list[str]:
    """The sentences for moves whose sizes are not known yet."""
    largest: dict[TopicPartition, int] = {}
    for one in found.replicas:
        largest[one.tp] = max(one.size, largest.get(one.tp, 0))
    sized = [replace(move, size=largest.get(move.tp, 0)) for move in moves]
    return warnings(room(found.directories, found.replicas, sized))


def room_lines(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The entries as lines of a log."""
    return [f"broker {e['broker']}: {size(e['comes'])} come, {size(e['goes'])} go; disks: {_free(e)}" for e in entries]


def _free(entry: Mapping[str, Any]) -> str:
    if entry["free"] is None:
        return "their free bytes are not known"
    least, after = size(max(entry["free_least"], 0)), size(max(entry["free_after"], 0))
    return f"{size(entry['free'])} free, {least} while replicas move, {after} after"


def _leave(goes: dict[str, int], replica: ReplicaSize | None) -> None:
    if replica is not None:
        goes[replica.log_dir] = goes.get(replica.log_dir, 0) + replica.size


def _entry(
    broker: int, directories: Sequence[DirectorySpace], comes: Sequence[int], goes: Mapping[str, int], limit: float
) -> dict[str, Any]:
    known = volumes(directories) if directories and all(one.used is not None for one in directories) else []
    total, free = (sum(each) for each in zip(*known, strict=True)) if known else (None, None)
    brought, left = sum(comes), sum(goes.values())
    apart = sum(one.usable or 0 for one in directories)
    verdict, reason = _judge(broker, known, apart, comes, limit)
    return {
        "broker": broker,
        "comes": brought,
        "goes": left,
        "total": total,
        "free": free,
        "free_least": None if free is None else free - brought,
        "free_after": None if free is None else free - brought + left,
        "directories": [
            {"path": one.path, "total": one.total, "free": one.usable, "goes": goes.get(one.path, 0)}
            for one in directories
        ],
        "verdict": verdict,
        "reason": reason,
    }


def _judge(
    broker: int, known: Sequence[tuple[int, int]], apart: int, comes: Sequence[int], limit: float
) -> tuple[str, str]:
    """`apart`: the usable bytes if no two directories share a volume."""
    brought = sum(comes)
    if not brought:
        return FITS, ""
    if not known:
        return UNKNOWN, f"broker {broker} does not tell how full its disks are"
    total, free = sum(whole for whole, _ in known), sum(usable for _, usable in known)
    largest, roomiest = max(comes), max(usable for _, usable in known)
    if brought > apart or largest > roomiest:
        what = f"{size(brought)} come and {size(apart)} are free"
        if brought <= apart:
            what = f"a replica of {size(largest)} comes and no directory has more than {size(roomiest)} free"
        return TOO_FULL, f"broker {broker}: {what}: move less at once, or add disks or a broker"
    if brought > free:
        return TIGHT, (
            f"broker {broker}: {size(brought)} come, and {size(free)} are free if its directories are on one disk: "
            "it does not tell"
        )
    used = 1 - (free - brought) / total if total else 1.0
    if used > limit:
        return TIGHT, f"broker {broker}: its disks will be {used:.0%} full while replicas move"
    smallest = min(usable for _, usable in known)
    if len(known) > 1 and brought > smallest:
        return TIGHT, (
            f"broker {broker}: {size(brought)} come, and one of its directories has {size(smallest)} free: "
            "the broker chooses the directories"
        )
    return FITS, ""
