"""Which snapshots of an Iceberg table expire. Pure.

Rule 1: what a branch or tag names stays, and of each branch the newest few.
Rule 2: the age of a snapshot counts from when the next one took its place: until then readers began to read it.
        (Iceberg itself counts from when it was made, and forgets a state that was the present one a second ago.)
Rule 3: a branch's own settings can keep more, never less.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: its id, that of the one before it, and when it was made (ms)."""

    id: int
    parent: int | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag: the snapshot that it names, and a branch's own settings."""

    head: int
    is_branch: bool
    keep: int | None = None
    age_ms: int | None = None


def expired(snapshots: Sequence[Snapshot], refs: Sequence[Ref], now_ms: int, age_ms: int, keep: int) -> tuple[int, ...]:
    """Return the ids of snapshots that nobody needs any more, oldest first.

    :param age_ms: how long a snapshot stays after the next one took its place.
    :param keep: how many of each branch stay, whatever their age; at least one.
    """
    known = {one.id: one for one in snapshots}
    kept: set[int] = set()
    reached: set[int] = set()
    for ref in refs:
        if not ref.is_branch:
            kept.add(ref.head)
            continue
        bound = now_ms - max(age_ms, ref.age_ms or 0)
        most = max(keep, ref.keep or 0, 1)
        replaced_ms = now_ms
        for place, one in enumerate(_line(known, ref.head)):
            reached.add(one.id)
            if place < most or replaced_ms > bound:
                kept.add(one.id)
            replaced_ms = one.time_ms
    # Others were staged, or taken back: nothing tells when they were read last.
    kept |= {one.id for one in snapshots if one.id not in reached and one.time_ms > now_ms - age_ms}
    return tuple(one.id for one in sorted(snapshots, key=lambda s: (s.time_ms, s.id)) if one.id not in kept)


def _line(known: Mapping[int, Snapshot], head: int) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it, as far as they are known."""
    at: int | None = head
    seen: set[int] = set()
    while at is not None and at in known and at not in seen:
        seen.add(at)
        yield known[at]
        at = known[at].parent
