"""Looking up the indexes: which bytes of a segment can hold a range of offsets, and from which offset records are not
older than a time.

Rules 1 to 3 follow from how an index is written: an entry (last offset of a batch, position of that batch) is added
every few KiB; a time entry (largest timestamp so far, its offset) only grows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import CorruptBatch, Damage, read_chunks, trusted_parts, walk
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica

_INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_INDEX = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_SCAN_BYTES = 256 * 1024


def byte_window(segment: SegmentFile, start: int, end: int) -> tuple[int, int]:
    """Return positions [first, last) of whole batches that hold every record of offsets [start, end).

    Without an index that is the whole file (the index of an active segment in a directory is not reliable).
    """
    entries = _entries(segment, "index", _INDEX, "position")
    if not len(entries):
        return 0, segment.size
    offsets = entries["offset"].astype(np.int64) + segment.base_offset
    # Rule 1: every batch before an entry's position ends below the entry's offset.
    before = int(np.searchsorted(offsets, start, "right")) - 1
    # Rule 2: the batch of the first entry at or above `end` may begin below it; the batches from the next entry do not.
    after = int(np.searchsorted(offsets, end, "left")) + 1
    first = int(entries["position"][before]) if before >= 0 else 0
    last = int(entries["position"][after]) if after < len(entries) else segment.size
    return first, last


def offset_of_time(replica: Replica, timestamp_ms: int) -> int | None:
    """Return the first offset whose record is not older, None if all are older (as ListOffsets does by time).

    Raises CorruptBatch if the log is damaged.
    """
    for segment in replica.segments:
        if not segment.size or _newest(segment) < timestamp_ms:
            continue
        for offset in _offsets_not_older(segment, timestamp_ms):
            if offset >= replica.log_start_offset:
                return offset
    return None


def may_hold_time(segment: SegmentFile, timestamp_ms: int) -> bool:
    """Whether a record of the segment can be at or after a time."""
    return _newest(segment) >= timestamp_ms


def older_until(segment: SegmentFile, timestamp_ms: int) -> int:
    """Return an offset below which every record of the segment is older; its base offset if the index tells nothing."""
    times = _entries(segment, "timeindex", _TIME_INDEX, "timestamp")
    older = int(np.searchsorted(times["timestamp"].astype(np.int64), timestamp_ms, "left")) - 1
    # Rule 3: no record up to an entry's offset is later than the entry's timestamp.
    return segment.base_offset + int(times["offset"][older]) + 1 if older >= 0 else segment.base_offset


def _entries(segment: SegmentFile, kind: str, dtype: np.dtype[Any], growing: str) -> Any:
    """Return an index's entries up to where they stop increasing: after a crash, preallocated zeros follow them."""
    data = segment.read_all(kind)
    entries = np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype)
    stops = np.flatnonzero(np.diff(entries[growing].astype(np.int64), prepend=np.int64(-1)) <= 0)
    return entries[: stops[0]] if len(stops) else entries


def _newest(segment: SegmentFile) -> int:
    """Return the timestamp of the last time entry; the largest int64 if there is no entry."""
    entries = _entries(segment, "timeindex", _TIME_INDEX, "timestamp")
    return int(entries["timestamp"][-1]) if len(entries) else 2**63 - 1


def _offsets_not_older(segment: SegmentFile, timestamp_ms: int) -> Iterator[int]:
    begin = older_until(segment, timestamp_ms)
    position, _ = byte_window(segment, begin, begin + 1)
    for chunk in read_chunks(segment.open(), position, chunk_bytes=_SCAN_BYTES):
        if isinstance(chunk, Damage):
            raise CorruptBatch(chunk, segment.where)
        headers = chunk.headers
        mask = (headers[:, k.MAX_TIMESTAMP] >= timestamp_ms) & (headers[:, k.ATTRIBUTES] & 0x20 == 0)
        if not mask.any():
            continue
        for part in trusted_parts(chunk.select(mask), segment.where):
            records = walk(part, segment.where)
            found = records[:, k.OFFSET][records[:, k.TIMESTAMP] >= timestamp_ms]
            yield from found.tolist()
