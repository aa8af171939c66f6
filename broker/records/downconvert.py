"""Converts batches to the message sets that old consumers read: magic 0 in Fetch v0 and v1, magic 1 in v2 and v3.

Headers are lost, with magic 0 timestamps too. Batches that have the format already, or an older one, are not changed.
"""

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.records import compression as codecs
from logyard.broker.records.header import LOG_APPEND_TIME_BIT, BatchHeader, iter_headers
from logyard.broker.records.legacy import iter_legacy
from logyard.broker.records.message_set import add_message, wrapper
from logyard.broker.records.reader import whole_records


def magic_for_fetch(version: int) -> int:
    """Return the newest magic that consumers of a Fetch version read."""
    return 0 if version < 2 else 1 if version < 4 else 2


def downconvert(buf: memoryview, magic: int, first_offset: int = 0) -> bytes:
    """Convert whole batches to a message set of that magic (0 or 1), from `first_offset` on.

    Control batches are left out: old consumers would take their records for data. Raises CorruptData, and ApiError:
    UNSUPPORTED_COMPRESSION_TYPE (zstd, which the old formats do not have).
    """
    out = bytearray()
    for pos, header in iter_headers(buf):
        if header.magic <= magic:
            out += buf[pos : pos + header.length]
        elif not header.is_control:
            _convert(out, buf[pos : pos + header.length], header, magic, first_offset)
    return bytes(out)


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
