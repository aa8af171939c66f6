"""Decodes the records of batches, for internal topics, compacted topics and tools.

`reader.py` reads them one after the other, with a limit on memory.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.records.header import BatchHeader, parse_header
from logyard.broker.records.reader import keyed_records, whole_records
from logyard.broker.records.stream import Record as Record

ABORT: Final = 0
COMMIT: Final = 1

_CONTROL_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")


class ControlMarker(NamedTuple):
    """The content of a transaction's marker; `type` is ABORT, COMMIT or a later kind."""

    type: int
    coordinator_epoch: int


def records(buf: memoryview | bytes | bytearray, pos: int = 0) -> list[Record]:
    """Decode all records of the v2 batch at `pos`; the checksum is not verified.

    Raises CorruptData if it ends early, if a record cannot be parsed, or if their number is not the header's.
    """
    return list(iter_records(buf, pos))


def iter_records(buf: memoryview | bytes | bytearray, pos: int = 0) -> Iterator[Record]:
    """Yield the same records one by one without keeping them: for batches that may be hostile."""
    view = memoryview(buf)
    for r in whole_records(*_batch_at(view, pos)):
        yield Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))


def _batch_at(view: memoryview, pos: int) -> tuple[memoryview, BatchHeader]:
    header = parse_header(view, pos)
    if header.magic != 2:
        raise CorruptData(f"batch at {pos}: magic {header.magic}, but 2 is expected")
    if pos + header.length > len(view):
        raise CorruptData(f"batch at {pos}: {len(view) - pos} of its {header.length} bytes are there")
    return view[pos : pos + header.length], header


def keys(view: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield offset, key, and whether there is a value, of each record of the v2 batch in `view`, for compaction.

    Raises CorruptData as `records` does.
    """
    for record in keyed_records(view, header):
        yield record.offset, record.key, record.value is not None


def control_type(record: Record) -> int:
    """Return the kind of a control record: ABORT, COMMIT or a later one. Raises CorruptData."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptData(f"the control record at {record.offset} has no type")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptData(f"the control record at {record.offset} has version {version}")
    return int(kind)


def control_marker(record: Record) -> ControlMarker:
    """Decode the marker in a control record. Raises CorruptData."""
    kind = control_type(record)
    if record.value is None or len(record.value) < _END_MARKER.size:
        raise CorruptData(f"the control record at {record.offset} has no coordinator epoch")
    _, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    return ControlMarker(kind, coordinator_epoch)
