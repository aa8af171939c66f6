"""A closed segment's offset index and time index, checked against its batches.

An index is wrong only if sound batches contradict it. If the log ends before its index does, the log is too short: an
index never has an entry for a batch that was not written.
"""

import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from logyard.broker.compiled.kernels import Array
from logyard.spark_jobs.audit.findings import BAD, WARN
from logyard.spark_jobs.audit.framing import Framed
from logyard.spark_jobs.segments.files import SegmentFile

INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_INDEX = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


# The check for a log that ends before its index does.
TAIL = "tail"


class Fault(NamedTuple):
    """What is wrong: level, check, position in the file, offset, text, and the file by its suffix."""

    level: str
    check: str
    position: int
    offset: int
    text: str
    suffix: str


def index_faults(segment: SegmentFile, batches: Framed, *, compacted: bool) -> Iterator[Fault]:
    """Check the indexes of a closed segment against its batches; raises LeaseError and OSError of reading them."""
    lost = False
    if segment.size and "index" not in segment.files:
        yield Fault(BAD, "index", -1, segment.base_offset, "there is none", ".index")
    else:
        for fault in _offset_index(segment, batches, compacted):
            lost = lost or fault.check == TAIL
            yield fault
    if segment.size and "timeindex" not in segment.files:
        # Logs of Kafka before 0.10.1 have none.
        yield Fault(WARN, "timeindex", -1, segment.base_offset, "there is none", ".timeindex")
    else:
        yield from _time_index(segment, batches, is_cut=lost or not batches.is_whole)


def _offset_index(segment: SegmentFile, batches: Framed, compacted: bool) -> Iterator[Fault]:
    data = segment.read_all("index")
    entries, extra = _entries(data, INDEX)
    yield from _leftover(data, extra, "index", INDEX)
    offsets = entries["offset"].astype(np.int64) + segment.base_offset
    positions = entries["position"].astype(np.int64)
    if (found := _falls("index", offsets, positions, offsets, strictly=False)) is not None:
        yield found
        return
    beyond = np.flatnonzero(positions >= segment.size)
    if batches.is_whole and len(beyond) and _is_sound(offsets, positions, int(beyond[0]), batches):
        offset, position = int(offsets[beyond[0]]), int(positions[beyond[0]])
        text = f"it ends at {segment.size} with offset {batches.last_offset}, its index knows a batch at {position}"
        text += f" (offset {offset}): its tail was lost"
        yield Fault(BAD, TAIL, segment.size, batches.last_offset + 1, text, ".log")
        positions, offsets = positions[: beyond[0]], offsets[: beyond[0]]
    # Entries for positions after the last batch that could be framed cannot be checked.
    known = len(positions) if batches.is_whole else int(np.searchsorted(positions, batches.end))
    yield from _entry_faults(offsets[:known], positions[:known], batches, compacted)


def _is_sound(offsets: Array, positions: Array, below: int, batches: Framed) -> bool:
    """Whether all entries before one that points beyond the log are right: then the log is too short, otherwise the
    index is wrong."""
    starts = np.isin(positions[:below], batches.position)
    return bool(offsets[below] > batches.last_offset) and bool(starts.all())


def _entry_faults(offsets: Array, positions: Array, batches: Framed, compacted: bool) -> Iterator[Fault]:
    starts, last = batches.position.tolist(), batches.last
    # An entry of Kafka's is the last offset of an append's last batch, and the position of its first batch.
    ends = np.isin(offsets, last) | compacted
    # The last batch's last offset is unknown if it is damaged, or if bytes that are no batch follow it.
    top = batches.last_offset if len(last) and batches.sound[-1] and batches.is_whole else 2**63 - 1
    unsure = {int(b) for b in last[~batches.sound]}
    for number, (offset, position) in enumerate(zip(offsets.tolist(), positions.tolist(), strict=True)):
        row = bisect.bisect_left(starts, position)
        text = f"entry {number} ({offset} at {position})"
        fault = ""
        if row == len(starts) or starts[row] != position:
            fault = f"{text} points at no batch"
        elif not batches.base[row] <= offset <= top:
            fault = f"{text} points at a batch that begins at {int(batches.base[row])}"
        elif not ends[number] and not (unsure or offset > batches.last_offset):
            fault = f"{text} is not where a batch ends"
        elif number + 1 < len(positions) and offset >= _base_at(batches, starts, int(positions[number + 1])):
            fault = f"{text} reaches into what the next entry points at"
        if fault:
            yield Fault(BAD, "index", number * 8, offset, fault, ".index")


def _time_index(segment: SegmentFile, batches: Framed, *, is_cut: bool) -> Iterator[Fault]:
    data = segment.read_all("timeindex")
    entries, extra = _entries(data, TIME_INDEX)
    yield from _leftover(data, extra, "timeindex", TIME_INDEX)
    timestamps = entries["timestamp"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64) + segment.base_offset
    if (found := _falls("timeindex", timestamps, offsets, offsets, strictly=True)) is not None:
        yield found
        return
    latest = np.maximum.accumulate(batches.max_timestamp)
    last = batches.last
    ends_sound = len(last) > 0 and bool(batches.sound[-1])
    for number, (timestamp, offset) in enumerate(zip(timestamps.tolist(), offsets.tolist(), strict=True)):
        # A search for `timestamp` + 1 starts at `offset`, so no batch before it may be later.
        before = int(np.searchsorted(last, offset)) - 1
        text = f"entry {number} ({timestamp} at {offset})"
        if not len(last) or offset > last[-1]:
            if not is_cut and (ends_sound or not len(last)):
                text += " lies behind the segment's end: it is wrong, or the log lost its tail"
                yield Fault(BAD, "timeindex", number * 12, offset, text, ".timeindex")
        elif before >= 0 and latest[before] > timestamp:
            found_text = f"{text} skips a record of {int(latest[before])}"
            yield Fault(BAD, "timeindex", number * 12, offset, found_text, ".timeindex")
        elif batches.sound[before + 1] and timestamp != batches.max_timestamp[before + 1]:
            found_text = f"{text}: the batch there has {int(batches.max_timestamp[before + 1])}"
            yield Fault(WARN, "timeindex", number * 12, offset, found_text, ".timeindex")
    if len(latest) and len(timestamps) and timestamps[-1] < latest[-1]:
        text = f"its last entry is {int(timestamps[-1])}, the segment's largest timestamp {int(latest[-1])}"
        yield Fault(WARN, "timeindex", -1, -1, text, ".timeindex")


def _entries(data: bytes, entry: np.dtype[Any]) -> tuple[Array, int]:
    extra = len(data) % entry.itemsize
    return np.frombuffer(data[: len(data) - extra], entry), extra


def _leftover(data: bytes, extra: int, check: str, entry: np.dtype[Any]) -> Iterator[Fault]:
    if extra:
        text = f"{len(data)} bytes are not whole entries of {entry.itemsize}"
        yield Fault(BAD, check, len(data) - extra, -1, text, f".{check}")


def _falls(check: str, first: Array, second: Array, offsets: Array, *, strictly: bool) -> Fault | None:
    falls = (np.diff(first) <= 0) | ((np.diff(second) < 0) if strictly else (np.diff(second) <= 0))
    for number in np.flatnonzero(falls)[:1].tolist():
        text = f"entry {number + 1} is not larger than the one before"
        return Fault(BAD, check, -1, int(offsets[number + 1]), text, f".{check}")
    return None


def _base_at(batches: Framed, starts: list[int], position: int) -> int:
    """Return the base offset of the batch at a position, or of the next one."""
    return int(batches.base[min(bisect.bisect_left(starts, position), len(starts) - 1)])
