"""Batches compressed anew: for topics whose compression.type is not the producer's choice.

Only the codec changes: what is compressed are the same bytes. As in Kafka a batch that is opened for this is also
checked record by record.
"""

import struct

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records.compression import Recoding
from logyard.broker.records.crc import crc32c
from logyard.broker.records.decode import validate_records
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    BatchHeader,
    iter_headers,
)
from logyard.broker.records.packing import Packer
from logyard.broker.records.pieces import pieces
from logyard.broker.records.validate import verify_crc

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


def recode(buf: memoryview, wanted: Recoding, size_max: int) -> memoryview:
    """Return the batches with their records compressed as wanted: `buf` itself where they all are already.

    Batches of the old formats and control batches stay as they are. `size_max` is max.message.bytes: it holds for what
    the producer sent, too. Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE.
    """
    try:
        found = list(iter_headers(buf))
        if all(_may_stay(header, wanted) for _, header in found):
            return buf
        out = bytearray()
        for pos, header in found:
            batch = buf[pos : pos + header.length]
            out += batch if _may_stay(header, wanted) else _recoded(batch, header, wanted, size_max)
        return memoryview(out)
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def is_recoded(header: BatchHeader, wanted: Recoding | None) -> bool:
    """Whether `recode` will open this batch."""
    return wanted is not None and not _may_stay(header, wanted)


def _may_stay(header: BatchHeader, wanted: Recoding) -> bool:
    return header.compression == wanted.codec or header.magic != 2 or header.is_control or header.count <= 0


def _recoded(batch: memoryview, header: BatchHeader, wanted: Recoding, size_max: int) -> bytearray:
    if header.length > size_max:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {header.length} bytes, max.message.bytes is {size_max}"
        )
    verify_crc(batch, 0, header)
    validate_records(batch, 0, header)
    packer = Packer(wanted.codec, wanted.level, size_max - HEADER_SIZE)
    for piece in pieces(header.compression, batch[HEADER_SIZE:]):
        packer.add(piece)
    made = bytearray(batch[:HEADER_SIZE])
    made += packer.finish()
    _INT32.pack_into(made, LENGTH_AT, len(made) - LOG_OVERHEAD)
    _INT16.pack_into(made, ATTRIBUTES_AT, header.attributes & ~COMPRESSION_BITS | wanted.codec)
    _UINT32.pack_into(made, CRC_AT, crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return made
