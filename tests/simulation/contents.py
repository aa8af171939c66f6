"""The contents of the logs on the simulated disks: each batch's header is read once, until its bytes change."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.records.batch import iter_headers, parse_header
from tests.simulation.ledger import BrokenPromise
from tests.simulation.machine import Machine


class Batch(NamedTuple):
    """The fields of a batch that replicas must agree on."""

    base: int
    last: int
    epoch: int
    crc: int


@dataclass
class _Read:
    """One file's batches up to byte `end`, as they were after `rewrites` changes of bytes that were there before."""

    rewrites: int
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


_read: "WeakKeyDictionary[Any, _Read]" = WeakKeyDictionary()


def batches(machine: Machine, log: Any, offset: int) -> Iterator[Batch]:
    """A log's batches from the one with `offset` on; raises BrokenPromise where they make no sense.

    Out of the disk's memory: looking changes nothing.
    """
    for number in range(log.segments.number_of(offset), len(log.segments)):
        if log.end_of(number) > offset:
            held = _segment(machine, log, log.segments[number])
            yield from held.batches[bisect_left(held.lasts, offset) :]


def misremembered(machine: Machine, log: Any) -> str:
    """Return a cached position of a segment at which no such batch begins; empty if all are right."""
    for segment in log.segments[-2:]:
        held = _segment(machine, log, segment)
        for offset, position in segment.cache.positions.items():
            number = bisect_left(held.lasts, offset)
            there = held.positions[number] if number < len(held.positions) else held.end
            if position != there:
                return f"segment {segment.base_offset} has {position} in mind for offset {offset}, which is at {there}"
    return ""


def _segment(machine: Machine, log: Any, segment: Any) -> _Read:
    inode = machine.disk.inode(segment.path(layout.LOG))
    known = _read.get(inode)
    if known is None or known.rewrites != inode.rewrites or known.end > segment.size:
        known = _read[inode] = _Read(inode.rewrites)
    if known.end < segment.size:
        _read_on(known, memoryview(bytes(inode.data[known.end : segment.size])), f"{log.tp} on {machine}")
    return known


def _read_on(known: _Read, data: memoryview, where: str) -> None:
    try:
        for _, header in iter_headers(data):
            last = header.last_offset
            if known.lasts and header.base_offset <= known.lasts[-1]:
                raise BrokenPromise(f"{where}: offset {header.base_offset} behind {known.lasts[-1]} in one segment")
            known.batches.append(Batch(header.base_offset, last, header.partition_leader_epoch, header.crc))
            known.lasts.append(last)
            known.positions.append(known.end)
            known.end += header.length
    except CorruptData as damage:
        raise BrokenPromise(f"{where}: {damage}") from damage


def raw_batches(machine: Machine, log: Any) -> Iterator[memoryview]:
    """Whole batches from the log's start on."""
    for segment in log.segments:
        held = _segment(machine, log, segment)
        data = memoryview(bytes(machine.disk.inode(segment.path(layout.LOG)).data[: held.end]))
        position = 0
        while position < held.end:
            length = parse_header(data, position).length
            yield data[position : position + length]
            position += length
