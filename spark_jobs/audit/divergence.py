"""Comparing replicas record by record where their batches differ: either one of them was cleaned and another was not
yet, or their contents diverged.

What is held of a record are numbers in arrays: its offset and digests where replicas are compared; elsewhere only the
last offset of each key that is asked about.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import (
    Chunk,
    CorruptBatch,
    Damage,
    check_crcs,
    opened_parts,
    read_chunks,
    walk,
)
from logyard.broker.compiled.kernels import Array
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.segments.digests import key_hashes, record_hashes
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica

NAMED_MAX = 20


class Records(NamedTuple):
    """Records of one replica, an array per column: digests of each record and of its key (0: no key), and why other
    replicas may lack it: no value, or `special` (control or transactional)."""

    offset: Array
    digest: Array
    key: Array
    has_value: Array
    special: Array

    def where(self, mask: Array) -> "Records":
        return Records(*(column[mask] for column in self))


@dataclass(frozen=True, slots=True)
class Extent:
    """Offsets [first, last] of one partition to compare."""

    first: int
    last: int


def records_of(segment: SegmentFile) -> Iterator[Records]:
    """Yield the records of a segment without those of damaged batches (audit/segment.py reports these)."""
    for chunk in read_chunks(segment.open()):
        if isinstance(chunk, Damage):
            return
        bad = {d.position for d in check_crcs(chunk)}
        chunk = chunk.select(~np.isin(chunk.headers[:, k.POSITION] + chunk.file_position, list(bad)))
        for part, damages in opened_parts(chunk):
            bad = {d.position for d in damages}
            part = part.select(~np.isin(part.headers[:, k.POSITION] + part.file_position, list(bad)))
            part, records = _walked(part)
            special = part.headers[:, k.ATTRIBUTES] & 0x30 != 0
            yield Records(
                records[:, k.OFFSET].copy(),
                record_hashes(part.raw, records),
                key_hashes(part.raw, records),
                records[:, k.VALUE_SIZE] >= 0,
                special[records[:, k.BATCH]],
            )


def _walked(chunk: Chunk) -> tuple[Chunk, Array]:
    """Return the batches of a chunk whose records parse, and those records."""
    try:
        return chunk, walk(chunk)
    except CorruptBatch:
        # A walk ends at the first damaged batch, and a chunk may hold tens of thousands: each is tried once.
        parses = [_parses(chunk.select(slice(index, index + 1))) for index in range(len(chunk.headers))]
        chunk = chunk.select(np.array(parses, bool))
        return chunk, walk(chunk)


def _parses(chunk: Chunk) -> bool:
    try:
        walk(chunk)
    except CorruptBatch:
        return False
    return True


def compare_partition(replicas: Sequence[Replica], extents: Sequence[Extent], below: int) -> list[Finding]:
    """Compare one partition's replicas by record inside `extents` (ascending, disjoint) and below an offset: one task.

    Later records are read too, below that offset: they tell whether a record was superseded.
    """
    held = [_inside(replica, extents, below) for replica in replicas]
    offsets = np.unique(np.concatenate([one.offset for one in held]))
    has = np.zeros((len(replicas), len(offsets)), bool)
    row = np.zeros((len(replicas), len(offsets)), np.int64)
    for number, one in enumerate(held):
        places = np.searchsorted(offsets, one.offset)
        has[number, places] = True
        row[number, places] = np.arange(len(one.offset))
    first = has.argmax(axis=0)  # the first replica that has the record
    digests = np.array([_placed(one.digest, row[n]) for n, one in enumerate(held)])
    differ = (has & (digests != np.take_along_axis(digests, first[None, :], 0))).any(axis=0)
    excused = _excused_by_cleaning(replicas, held, has, first, row, offsets, below)
    findings = [
        (int(offsets[index]), -1, f"replicas hold different records {_holders(replicas, has[:, index])}")
        for index in np.flatnonzero(differ)[: NAMED_MAX + 1].tolist()
    ]
    lacks = ~has & ~excused
    for number in range(len(replicas)):
        for index in np.flatnonzero(lacks[number])[: NAMED_MAX + 1].tolist():
            text = f"the record is missing here {_holders(replicas, has[:, index])}"
            findings.append((int(offsets[index]), number, text))
    counts = excused.sum(axis=1).tolist()
    total = int(differ.sum()) + int(lacks.sum())
    return [
        *_named(replicas, sorted(findings), total),
        *(_excused(r, count) for r, count in zip(replicas, counts, strict=True) if count),
    ]


def _inside(replica: Replica, extents: Sequence[Extent], below: int) -> Records:
    """Return a replica's records inside `extents`, by ascending offset; of two with one offset the later one."""
    firsts, lasts = (np.array(c, np.int64) for c in zip(*((e.first, e.last) for e in extents), strict=True))
    parts = []
    for segment in _segments(replica, extents[0].first, min(below - 1, extents[-1].last)):
        for part in records_of(segment):
            at = np.searchsorted(firsts, part.offset, "right") - 1
            parts.append(part.where((at >= 0) & (part.offset <= lasts[at]) & (part.offset < below)))
    if not parts:
        return _NONE
    whole = Records(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    _, found = np.unique(whole.offset[::-1], return_index=True)
    return whole.where(len(whole.offset) - 1 - found)


_NONE = Records(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.int64, bool, bool)))


def _segments(replica: Replica, first: int, last: int) -> Iterator[SegmentFile]:
    """Yield the segments that may have offsets of [first, last]; a message before v2 may begin below its segment."""
    bases = [segment.base_offset for segment in replica.segments]
    for number, segment in enumerate(replica.segments):
        begins_before = number == 0 or bases[number - 1] <= last
        if begins_before and (number + 1 == len(bases) or bases[number + 1] > first):
            yield segment


def _placed(values: Array, rows: Array) -> Array:
    """Return each row's value, 0 where there is none at all."""
    return values[rows] if len(values) else np.zeros(len(rows), values.dtype)


def _excused_by_cleaning(
    replicas: Sequence[Replica],
    held: Sequence[Records],
    has: Array,
    first: Array,
    row: Array,
    offsets: Array,
    below: int,
) -> Array:
    """Return which records (a column each) cleaning explains that a replica (a row each) lacks."""
    clean = np.array([r.clean_offset for r in replicas], np.int64)
    lacks = ~has & (offsets[None, :] < clean[:, None])

    def of_first(columns: Iterable[Array]) -> Array:
        placed = np.array([_placed(column, row[n]) for n, column in enumerate(columns)])
        return np.take_along_axis(placed, first[None, :], 0)[0]

    key = of_first(one.key for one in held)
    removable = of_first(one.special | ~one.has_value for one in held) | (key == 0)
    asked = lacks.any(axis=0) & ~removable
    removable[asked] = _last_offsets(replicas, key[asked], offsets[asked], below) > offsets[asked]
    return lacks & removable


def _last_offsets(replicas: Sequence[Replica], keys: Array, offsets: Array, below: int) -> Array:
    """Return the last offset of each key in any replica, of records after the first of `offsets`; -1 if there is
    none."""
    known, which = np.unique(keys, return_inverse=True)
    last = np.full(len(known), -1, np.int64)
    if len(known):
        for replica in replicas:
            for segment in _segments(replica, int(offsets[0]), below - 1):
                for part in records_of(segment):
                    at = np.minimum(np.searchsorted(known, part.key), len(known) - 1)
                    hit = (known[at] == part.key) & (part.offset < below)
                    np.maximum.at(last, at[hit], part.offset[hit])
    return last[which]


def _named(replicas: Sequence[Replica], found: Sequence[tuple[int, int, str]], total: int) -> list[Finding]:
    """Return the first NAMED_MAX findings (offset, number of the replica or -1 for all, text), and one that counts the
    rest."""
    named = [_finding(BAD, replicas[max(number, 0)], offset, text) for offset, number, text in found[:NAMED_MAX]]
    if total > NAMED_MAX:
        offset, number, _ = found[NAMED_MAX]
        text = f"and {total - NAMED_MAX} more records that differ"
        named.append(_finding(BAD, replicas[max(number, 0)], offset, text))
    return named


def _excused(replica: Replica, count: int) -> Finding:
    text = (
        f"{count} records that cleaning removed here are held by other replicas: the next compaction makes them equal"
    )
    return _finding(WARN, replica, replica.clean_offset, text)


def _finding(level: str, replica: Replica, offset: int, text: str) -> Finding:
    return Finding(level, "replicas", *replica.tp, replica.broker_id, replica.directory, -1, offset, text)


def _holders(replicas: Sequence[Replica], has: Array) -> str:
    held = sorted(replica.broker_id for replica, is_held in zip(replicas, has.tolist(), strict=True) if is_held)
    return f"(held by {', '.join(map(str, held))})"


def merged(spans: Iterable[tuple[int, int]]) -> list[Extent]:
    """Merge overlapping and touching [first, last] spans."""
    out: list[Extent] = []
    for first, last in sorted(spans):
        if out and first <= out[-1].last + 1:
            out[-1] = Extent(out[-1].first, max(out[-1].last, last))
        else:
            out.append(Extent(first, last))
    return out
