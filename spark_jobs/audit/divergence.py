"""Comparing replicas record by record where their batches differ: either one of them was cleaned and another was not
yet, or their contents diverged.

Pure over plain rows; `record_rows` reads the records, inside a task.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class Row(NamedTuple):
    """One record of one replica: digests of the record and of its key (0: no key), and why other replicas may lack it:
    no value, or `special` (control or transactional)."""

    replica: int
    offset: int
    digest: int
    key: int
    has_value: bool
    special: bool


@dataclass(frozen=True, slots=True)
class Extent:
    """Offsets [first, last] of one partition to compare."""

    first: int
    last: int


def record_rows(segment: SegmentFile) -> Iterator[Row]:
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
            columns = (
                records[:, k.OFFSET],
                record_hashes(part.raw, records),
                key_hashes(part.raw, records),
                records[:, k.VALUE_SIZE] >= 0,
                special[records[:, k.BATCH]],
            )
            for row in zip(*(c.tolist() for c in columns), strict=True):
                yield Row(segment.replica, *row)


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


def compare(replicas: Sequence[Replica], rows: Iterable[Row], extents: Sequence[Extent]) -> list[Finding]:
    """Compare one partition's replicas by record inside `extents` (ascending, disjoint).

    :param rows: **all** records of all its replicas below the lowest high watermark: later records tell whether a
        record was superseded.
    """
    by_offset, last_of_key = _tabulate(rows, extents)
    findings: list[Finding] = []
    excused: dict[int, int] = defaultdict(int)
    for offset in sorted(by_offset):
        held = by_offset[offset]
        if len({row.digest for row in held.values()}) > 1:
            findings.append(_finding(BAD, replicas[0], offset, f"replicas hold different records {_holders(held)}"))
        for replica in replicas:
            if replica.broker_id in held:
                continue
            if _may_be_missing(replica, offset, held, last_of_key):
                excused[replica.broker_id] += 1
            else:
                findings.append(_finding(BAD, replica, offset, f"the record is missing here {_holders(held)}"))
    return [*_cut(findings), *(_excused(r, excused[r.broker_id]) for r in replicas if excused[r.broker_id])]


def _tabulate(rows: Iterable[Row], extents: Sequence[Extent]) -> tuple[dict[int, dict[int, Row]], dict[int, int]]:
    by_offset: dict[int, dict[int, Row]] = defaultdict(dict)
    last_of_key: dict[int, int] = {}
    firsts = [e.first for e in extents]
    for row in rows:
        if row.key:
            last_of_key[row.key] = max(last_of_key.get(row.key, -1), row.offset)
        at = bisect_right(firsts, row.offset) - 1
        if at >= 0 and row.offset <= extents[at].last:
            by_offset[row.offset][row.replica] = row
    return by_offset, last_of_key


def _may_be_missing(replica: Replica, offset: int, held: Mapping[int, Row], last_of_key: Mapping[int, int]) -> bool:
    """Whether cleaning explains that this replica lacks a record that others hold."""
    if offset >= replica.clean_offset:
        return False
    row = next(iter(held.values()))
    return row.special or not row.key or not row.has_value or last_of_key[row.key] > offset


def _excused(replica: Replica, count: int) -> Finding:
    text = (
        f"{count} records that cleaning removed here are held by other replicas: the next compaction makes them equal"
    )
    return _finding(WARN, replica, replica.clean_offset, text)


def _finding(level: str, replica: Replica, offset: int, text: str) -> Finding:
    return Finding(
        level,
        "replicas",
        replica.topic,
        replica.partition,
        replica.broker_id,
        replica.directory,
        -1,
        offset,
        text,
    )


def _holders(held: Mapping[int, Row]) -> str:
    return f"(held by {', '.join(str(broker) for broker in sorted(held))})"


def _cut(findings: list[Finding]) -> list[Finding]:
    if len(findings) <= NAMED_MAX:
        return findings
    first = findings[NAMED_MAX]
    rest = Finding(
        BAD,
        "replicas",
        first.topic,
        first.partition,
        first.replica,
        first.file,
        -1,
        first.offset,
        f"and {len(findings) - NAMED_MAX} more records that differ",
    )
    return [*findings[:NAMED_MAX], rest]


def merged(spans: Iterable[tuple[int, int]]) -> list[Extent]:
    """Merge overlapping and touching [first, last] spans."""
    out: list[Extent] = []
    for first, last in sorted(spans):
        if out and first <= out[-1].last + 1:
            out[-1] = Extent(out[-1].first, max(out[-1].last, last))
        else:
            out.append(Extent(first, last))
    return out


def compare_partition(replicas: Sequence[Replica], extents: Sequence[Extent], below: int) -> list[Finding]:
    """Read all replicas of one partition below an offset and compare them inside `extents`: one task."""
    rows = (
        row
        for replica in replicas
        for segment in replica.segments
        if segment.base_offset < below
        for row in record_rows(segment)
        if row.offset < below
    )
    return compare(replicas, rows, extents)
