"""The leader's checks of all records of a client's batch, as in Kafka.

docs/records.md lists what is refused, corrected and left alone.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, RecordErrors
from logyard.broker.records import compiled_look, compiled_loops, compression
from logyard.broker.records.compiled_look import Found
from logyard.broker.records.few_headers import has_few
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    COUNT_AT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
)
from logyard.broker.records.header_validation import Bounds
from logyard.broker.records.reader import REFUSED_BY_C, one_window, outlines
from logyard.broker.records.stream import wrapped

# A batch up to this size is read at once, in place; a larger one piece by piece.
WINDOW_BYTES = 64 * 1024
# A batch with as many records is looked at by the compiled loop, if that is loaded: a call of it costs as much as 40.
COMPILED_RECORDS = 64
# The compiled loop looks at uncompressed batches up to this size, a topic's default, on the event loop.
COMPILED_BYTES = 1_048_588
# A larger one is read at once too if it has few records with few headers.
LITTLE_RECORDS = 256
LITTLE_HEADERS = 1024
# A compressed batch up to this size is decompressed at once, if the result fits a window.
LITTLE_BYTES = 16 * 1024
# The most work on the event loop for all batches of a request, in units of `effort`: 6 ms.
EFFORT_MAX = 16 * 1024
# The work for a batch besides its records, uncompressed or compressed; the bytes of old messages that count as one.
_EFFORT_PLAIN, _EFFORT_COMPRESSED, _OLD_BYTES = 16, 200, 8
# The bytes of a large batch that count as one, where the compiled loop looks at it.
_COMPILED_BYTES, _COMPRESSED_BYTES = 128, 64
# Batches with one of these are looked at thoroughly, whatever the topic demands.
_THOROUGH_BITS = COMPRESSION_BITS | LOG_APPEND_TIME_BIT
# Times below its negative are compared one by one.
_TIME_MAX = 2**62
# The most refused records that an answer names.
RECORD_ERRORS_MAX = 1000
_new = tuple.__new__  # hot path: a NamedTuple's own is Python


class Inspected(NamedTuple):
    """What `inspect` found in the records; times in ms.

    `is_dense`: the offsets count from the base offset without gaps. `has_negative`: a time is before 1970 and not -1.
    All but `max_timestamp` are only set if something depends on them (`thorough`).
    """

    max_timestamp: int
    is_dense: bool = True
    first_timestamp: int = NO_TIMESTAMP
    has_negative: bool = False


def inspect(
    batch: memoryview, header: BatchHeader, bounds: Bounds, now_ms: int, *, piecewise: bool = False
) -> Inspected:
    """Read and check all records of the v2 batch in `batch`; pass `piecewise` if `is_little` is false.

    Raises ApiError: INVALID_RECORD (a record cannot be parsed or has no key, or the count is wrong), INVALID_TIMESTAMP,
    UNKNOWN_SERVER_ERROR (it cannot be decompressed; as in Kafka). It is a `RecordErrors` if single records are refused.
    """
    thorough = bounds.is_thorough or bool(header.attributes & _THOROUGH_BITS)
    try:
        plain = None if piecewise and header.length > WINDOW_BYTES else _plain(batch, header)
        if header.count >= COMPILED_RECORDS or plain is None:
            inspected = _accepted(compiled_look.look(batch, header, plain or b""), bounds, now_ms)
            if inspected is not None:
                return inspected
        if plain is not None:
            try:
                return _look(one_window(batch, header, plain), header, bounds, now_ms, thorough)
            except REFUSED_BY_C:
                pass  # read again in Python, which decides
        return _look(outlines(batch, header), header, bounds, now_ms, thorough)
    except compression.BrokenStream as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    except CorruptData as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def inspect_at_once(batch: memoryview, header: BatchHeader, bounds: Bounds, now_ms: int) -> Inspected | None:
    """Do what `inspect` does for a large batch if the compiled loop accepts it, and that is short; else None."""
    if header.length > COMPILED_BYTES:
        return None
    return _accepted(compiled_look.look_at_little(batch, header), bounds, now_ms)


def is_little(batch: memoryview, header: BatchHeader) -> bool:
    """Whether a whole v2 batch, decompressed, is small enough to be read at once, without the compiled loop."""
    if header.length > WINDOW_BYTES:
        compiled_loops.want()
    if header.compression == compression.NONE:
        return header.length <= WINDOW_BYTES or (
            header.count <= LITTLE_RECORDS and has_few(batch, header.count, header.length, LITTLE_HEADERS)
        )
    is_small = _plain(batch, header) is not None
    if not is_small:
        compiled_loops.want()
    return is_small


def effort(batch: memoryview) -> int:
    """Return about how long the validation of a small batch, or of a few old messages, takes, in records."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != 2:
        return _EFFORT_PLAIN + len(batch) // _OLD_BYTES
    is_compressed = batch[ATTRIBUTES_AT + 1] & COMPRESSION_BITS
    if len(batch) > WINDOW_BYTES and compiled_look.is_loaded():
        # What the loop does not accept goes to a thread by itself. A megabyte of tiny headers takes it 3 ms.
        return len(batch) // (_COMPRESSED_BYTES if is_compressed else _COMPILED_BYTES)
    records = int.from_bytes(batch[COUNT_AT:HEADER_SIZE], "big")
    return records + (_EFFORT_COMPRESSED if is_compressed else _EFFORT_PLAIN)


def _plain(batch: memoryview, header: BatchHeader) -> compression.Buffer | None:
    """Return the decompressed records; empty: they are not compressed. None: they may be too large."""
    if header.compression == compression.NONE:
        return b"" if header.length <= WINDOW_BYTES or header.count <= LITTLE_RECORDS else None
    if header.length > LITTLE_BYTES or not compression.is_known(header.compression):
        return None
    try:
        return compression.decompress(header.compression, batch[HEADER_SIZE:], WINDOW_BYTES)
    except CorruptData:
        return None  # too large, or corrupt


def _accepted(found: Found | None, bounds: Bounds, now_ms: int) -> Inspected | None:
    """Return what the compiled loop has found; None if nothing, or if a record may be refused."""
    if found is None or not _is_within(found, bounds, now_ms):
        return None
    return _new(Inspected, (found.latest, found.is_dense, found.first, found.has_negative))


def _is_within(found: Found, bounds: Bounds, now_ms: int) -> bool:
    """Whether no record is refused, as far as the least and the largest time tell."""
    if bounds.keys_wanted and found.is_keyless:
        return False
    if not bounds.has_times or found.earliest > found.latest:
        return True
    if found.earliest < -_TIME_MAX:  # its difference may wrap, and those of later times not
        return False
    return not any(_time_refused(time, False, bounds, now_ms) for time in (found.earliest, found.latest))


def _looks_at_times(header: BatchHeader, bounds: Bounds) -> bool:
    return bounds.has_times or bool(header.attributes & LOG_APPEND_TIME_BIT)


def _look(records: Iterable[Any], header: BatchHeader, bounds: Bounds, now_ms: int, thorough: bool) -> Inspected:
    latest = NO_TIMESTAMP
    if not thorough:
        # Hot path: this loop runs over the records of nearly all batches.
        for record in records:
            timestamp = record.timestamp
            if timestamp > latest:
                latest = timestamp
        return _new(Inspected, (latest, True, NO_TIMESTAMP, False))
    checked = bounds.keys_wanted or _looks_at_times(header, bounds)
    stamped = bool(header.attributes & LOG_APPEND_TIME_BIT)
    refused = Refused()
    dense, negative, first = True, False, None
    index = -1
    for index, record in enumerate(records):
        timestamp = record.timestamp
        if first is None:
            first = timestamp
        if timestamp > latest:
            latest = timestamp
        elif timestamp < NO_TIMESTAMP:
            negative = True
        if record.offset - header.base_offset != index:
            dense = False
        if checked:
            refused.look_at(index, record, stamped, bounds, now_ms)
    refused.raise_if_any()
    return Inspected(latest, dense, NO_TIMESTAMP if first is None else first, negative)


class Refused:
    """Collects the refused records of a batch, by their index in it."""

    def __init__(self) -> None:
        self._named: list[tuple[int, str]] = []
        self._count = 0
        self._code = ErrorCode.INVALID_RECORD

    def look_at(self, index: int, record: Any, says_append_time: bool, bounds: Bounds, now_ms: int) -> None:
        """Note the record if it is refused; `says_append_time`: its batch has timestamp type LogAppendTime."""
        if bounds.keys_wanted and record.key is None:
            self._add(index, ErrorCode.INVALID_RECORD, "a record of a compacted topic needs a key")
            return
        wrong = _time_refused(record.timestamp, says_append_time, bounds, now_ms)
        if wrong is not None:
            self._add(index, ErrorCode.INVALID_TIMESTAMP, wrong)

    def _add(self, index: int, code: ErrorCode, text: str) -> None:
        self._count += 1
        if code is ErrorCode.INVALID_TIMESTAMP:
            self._code = code  # it takes precedence over INVALID_RECORD, as in Kafka
        if len(self._named) < RECORD_ERRORS_MAX:
            self._named.append((index, text))

    def raise_if_any(self) -> None:
        """Raise RecordErrors if a record was refused."""
        if self._count:
            index, text = self._named[0]
            message = f"{self._count} records are refused, the first is {index}: {text}"
            raise RecordErrors(self._code, message, self._named)


def _time_refused(timestamp: int, says_append_time: bool, bounds: Bounds, now_ms: int) -> str | None:
    """Return why a record with this time is refused, None if it is not. Differences wrap at 64 bits, as in Java."""
    if not bounds.log_append_time and timestamp != NO_TIMESTAMP:
        age = wrapped(now_ms - timestamp)
        if age > bounds.timestamp_before_max_ms or wrapped(-age) > bounds.timestamp_after_max_ms:
            earliest, latest = now_ms - bounds.timestamp_before_max_ms, now_ms + bounds.timestamp_after_max_ms
            return f"timestamp {timestamp} is not within {earliest} and {latest}"
        return None
    if says_append_time:
        return "producers must not set the timestamp type LogAppendTime"
    return None
