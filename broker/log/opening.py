"""What a leader does with a client's batches before it appends them, where it has to open them for that.

Keys are looked for (compacted topics), records checked (logyard.validate.records), batches compressed anew
(compression.type), message sets of old clients made into v2 batches. How long that takes is the client's choice, as
bytes that come compressed may be of any size: only a little of it is done on the event loop (`is_little`).
"""

from collections.abc import Callable
from functools import partial

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records.batch import Bounds, iter_headers, require_keys, validate_client_batch, validate_records
from logyard.broker.records.header import MAGIC_AT
from logyard.broker.records.legacy import upconvert
from logyard.broker.records.recode import is_recoded, recode

# What the event loop opens itself, uncompressed as it came: gzip takes half a millisecond over it, a look at 2,300
# records of seven bytes less. Old messages are read one by one in Python: 150 of them.
LITTLE_BYTES = 16 * 1024
LITTLE_OLD_BYTES = 4 * 1024


def opener(buf: memoryview, bounds: Bounds, now_ms: int) -> Callable[[memoryview], memoryview] | None:
    """What to do with these batches in a thread before they are appended; None where that would not take long.

    It takes a copy of them and returns what is to be appended instead; raises ApiError as `opened` does.
    """
    if not must_open(buf, bounds) or is_little(buf, bounds):
        return None
    return partial(opened, bounds=bounds, now_ms=now_ms)


def must_open(buf: memoryview, bounds: Bounds) -> bool:
    """Whether `opened` has anything to do with these batches: all others are checked from their headers alone."""
    return bounds.opens or _is_old(buf)


def is_little(buf: memoryview, bounds: Bounds) -> bool:
    """Whether `opened` will not take long over these batches; also where it would refuse them at once."""
    little = 0
    try:
        for _, header in iter_headers(buf):
            if header.length > bounds.max_message_bytes:
                return True
            if header.magic < 2:
                if header.compression or len(buf) > LITTLE_OLD_BYTES:
                    return False
            elif bounds.looks_into_records or is_recoded(header, bounds.recoding):
                if header.compression:
                    return False
                little += header.length
    except CorruptData:
        return True
    return little <= LITTLE_BYTES


def opened(buf: memoryview, bounds: Bounds, now_ms: int) -> memoryview:
    """Check the batches, records and all, and return what is to be appended: `buf` itself where nothing was changed.

    Raises ApiError: what `validate_client_batch`, `require_keys`, `validate_records`, `upconvert` and `recode` raise.
    """
    try:
        if _is_old(buf):
            codec = None if bounds.recoding is None else bounds.recoding.codec
            buf = memoryview(upconvert(buf, compression=codec, size_max=bounds.max_message_bytes))
        for position, header in iter_headers(buf):
            validate_client_batch(buf, position, header, now_ms=now_ms, bounds=bounds)
            if bounds.keys_wanted:
                require_keys(buf, position, header)
            if bounds.validate_records:
                validate_records(buf, position, header)
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return buf if bounds.recoding is None else recode(buf, bounds.recoding, bounds.max_message_bytes)


def _is_old(buf: memoryview) -> bool:
    return len(buf) > MAGIC_AT and buf[MAGIC_AT] < 2
