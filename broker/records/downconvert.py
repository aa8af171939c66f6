"""Converts batches to the message sets that old consumers read: magic 0 in Fetch v0 and v1, magic 1 in v2 and v3.

Headers are lost, with magic 0 timestamps too. Batches that have the format already, or an older one, are not changed.

Rule: where a compiled loop is loaded (broker/compiled/old_conversion.py), it converts what it accepts; the batches that
it does not accept Python converts, or refuses, one after the other as without it.
"""

from collections.abc import Callable
from typing import Final, Protocol

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression as codecs
from logyard.broker.records.compression import Buffer
from logyard.broker.records.header import LOG_APPEND_TIME_BIT, BatchHeader, iter_headers
from logyard.broker.records.legacy import iter_legacy
from logyard.broker.records.message_set import add_message, wrapper
from logyard.broker.records.pauses import apart
from logyard.broker.records.reader import whole_records

# What the loop converts between two looks at whether others wait for the thread: it takes 0.4 ms, or 0.8 for records of
# 100 bytes.
TURN_BYTES: Final = 1024 * 1024
# What is converted on the event loop: its messages are at most so many bytes. They take 0.1 to 0.35 ms, and 0.6 where
# all is headers.
AT_ONCE_BYTES: Final = 384 * 1024
# What a partition counts besides its messages there: a conversion begins with 4 µs.
BEGIN_BYTES: Final = 8 * 1024


class Converting(Protocol):
    """The conversion of whole batches in one buffer by a compiled loop."""

    @property
    def room(self) -> int:
        """How many bytes the messages may become; 0 if it accepts nothing."""
        ...

    def go_on(self, pos: int, bytes_max: int) -> int:
        """Convert batches from `pos` on, `bytes_max` bytes of them or one; return where it stopped.

        That is `pos` itself before a batch that it does not accept.
        """
        ...

    def take(self) -> memoryview:
        """Return the messages that were made since they were taken last."""
        ...


_begin: Callable[[memoryview, int, int], Converting] | None = None


def use(begin: Callable[[memoryview, int, int], Converting] | None) -> None:
    """Begin each conversion with this: it takes the batches, the magic (0 or 1) and the first offset wanted."""
    global _begin
    _begin = begin


def magic_for_fetch(version: int) -> int:
    """Return the newest magic that consumers of a Fetch version read."""
    return 0 if version < 2 else 1 if version < 4 else 2


def downconvert(buf: memoryview, magic: int, first_offset: int = 0) -> Buffer:
    """Convert whole batches to a message set of that magic (0 or 1), from `first_offset` on.

    Control batches are left out: old consumers would take their records for data. Raises CorruptData, and ApiError:
    UNSUPPORTED_COMPRESSION_TYPE (zstd, which the old formats do not have), and what a pause raises.
    """
    begun = None if _begin is None else _begin(buf, magic, first_offset)
    if begun is None or not begun.room:
        made, _ = _in_python(buf, 0, magic, first_offset, all_of_it=True)
        return made
    parts: list[Buffer] = []
    pos = 0
    while pos < len(buf):
        while (reached := begun.go_on(pos, TURN_BYTES)) != pos:
            pos = reached
            apart()
        parts.append(begun.take())
        made, reached = _in_python(buf, pos, magic, first_offset, all_of_it=False)
        if reached == pos:
            break
        parts.append(made)
        pos = reached
    parts = [part for part in parts if len(part)]
    if len(parts) != 1:
        return b"".join(parts)
    return _fit(parts[0], begun.room)


def downconvert_at_once(buf: memoryview, magic: int, size_max: int = AT_ONCE_BYTES) -> Buffer | None:
    """Do what `downconvert` does if the compiled loop accepts all batches, and that is short; else None.

    `size_max`: the most bytes that it may become.
    """
    if _begin is None or len(buf) > size_max:
        return None
    begun = _begin(buf, magic, 0)
    if not 0 < begun.room <= size_max:
        return None
    reached = begun.go_on(0, len(buf))
    try:
        if reached < len(buf) and any(iter_headers(buf, reached)):
            return None
    except CorruptData:
        return None
    return _fit(begun.take(), begun.room)


def _fit(made: Buffer, room: int) -> Buffer:
    """Return the messages without the room that they have not needed, if it is much: headers are left out."""
    return made if 2 * len(made) >= room else bytes(made)


def _in_python(buf: memoryview, pos: int, magic: int, first_offset: int, *, all_of_it: bool) -> tuple[bytearray, int]:
    """Convert the batch at `pos`, and those after it that are not for the loop either; return where it stopped."""
    out, reached = bytearray(), pos
    for at, header in iter_headers(buf, pos):
        if at > pos and not all_of_it and _may_be_for_loop(header):
            break
        reached = at + header.length
        if header.magic <= magic:
            out += buf[at:reached]
        elif not header.is_control:
            _convert(out, buf[at:reached], header, magic, first_offset)
    return out, reached


def _may_be_for_loop(header: BatchHeader) -> bool:
    return header.magic == 2 and header.compression == codecs.NONE and not header.is_control


def _convert(out: bytearray, batch: memoryview, header: BatchHeader, magic: int, first_offset: int) -> None:
    if header.compression == codecs.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd cannot be read by Fetch below version 10")
    records = whole_records(batch, header) if header.magic == 2 else iter_legacy(batch)
    time_bit = header.attributes & LOG_APPEND_TIME_BIT if magic == 1 else 0
    if header.compression == codecs.NONE:
        for record in records:
            if record.offset >= first_offset:
                add_message(out, record, record.offset, magic, time_bit)
    else:
        kept = (record for record in records if record.offset >= first_offset)
        out += wrapper(kept, header.compression, magic, time_bit)
