"""Compresses batches with the codec of the topic's compression.type, if the producer used another one.

Usually the same record bytes are compressed again. If the offsets do not count from 0, or the first record's time is
not the batch's base timestamp, the records are encoded again, as in Kafka.
"""

from collections.abc import Iterator

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records.build import append_record, seal
from logyard.broker.records.compression import Recoding
from logyard.broker.records.compression_stream import Packer
from logyard.broker.records.decompression_stream import PIECE_BYTES, Buffer, pieces
from logyard.broker.records.header import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from logyard.broker.records.reader import whole_records
from logyard.broker.records.record_validation import Inspected
from logyard.broker.records.stream import Record


def is_recoded(header: BatchHeader, wanted: Recoding | None) -> bool:
    """Whether the batch has to be compressed again."""
    return wanted is not None and header.compression != wanted.codec and not header.is_control


def recoded(batch: memoryview, header: BatchHeader, wanted: Recoding, found: Inspected, size_max: int) -> bytearray:
    """Return the inspected batch with its records compressed as wanted; `size_max` is max.message.bytes.

    Raises ApiError: MESSAGE_TOO_LARGE; UNKNOWN_SERVER_ERROR (a time before 1970, or a producer id without epoch or
    sequence: Kafka fails on these).
    """
    if found.has_negative:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a record's time is before 1970")
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0
    ):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"producer {header.producer_id} without epoch or sequence")
    packer = Packer(wanted.codec, wanted.level, size_max - HEADER_SIZE)
    has_own_time = bool(header.attributes & LOG_APPEND_TIME_BIT)  # set by the producer: all records have that time
    same = found.is_dense and found.first_timestamp == header.base_timestamp and not has_own_time
    try:
        for piece in pieces(header.compression, batch[HEADER_SIZE:]) if same else _anew(batch, header, found):
            packer.add(piece)
    except CorruptData as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    fields = (
        header.attributes & TRANSACTIONAL_BIT | wanted.codec,
        header.last_offset_delta,
        found.first_timestamp,
        found.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    return seal(packer.finish(), 0, header.partition_leader_epoch, fields, header.count)


def _anew(batch: memoryview, header: BatchHeader, found: Inspected) -> Iterator[Buffer]:
    body = bytearray()
    for number, r in enumerate(whole_records(batch, header)):
        append_record(body, Record(number, r.timestamp, r.key, r.value, tuple(r.headers)), 0, found.first_timestamp)
        if len(body) > PIECE_BYTES:
            yield body
            body = bytearray()
    yield body
