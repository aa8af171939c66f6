"""The look at the records of a large batch by a compiled loop, where one is loaded (broker/compiled/record_look.py).

It is loaded when the first large batch comes (`compiled_loops.py`). Until then, and where numba is not installed,
records are read in C and Python.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.broker.records.decompression_stream import PIECE_BYTES, pieces
from logyard.broker.records.header import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchHeader
from logyard.broker.records.pauses import apart, rest

# Records that are decompressed at once, in one step; more of them are looked at piece by piece.
AT_ONCE_BYTES = 1024 * 1024
# What is small enough for the event loop: gzip, which is slow, up to so many bytes, others up to AT_ONCE_BYTES. It may
# become _LITTLE_RATIO times as large, so that who keeps the loop at work has to send something for it.
_LITTLE_GZIP, _LITTLE_RATIO, _LITTLE_PLAIN = 16 * 1024, 4, 64 * 1024


class Found(NamedTuple):
    """What the records of a batch are like; times in ms.

    `earliest`: of the times that are not -1; 2**63 - 1 if there are none. `has_negative`: a time is before 1970 and not
    -1. `is_dense`: the offsets count from the base offset without gaps. `is_keyless`: at least one has no key.
    """

    latest: int
    earliest: int
    first: int
    has_negative: bool
    is_dense: bool
    is_keyless: bool


class Looking(Protocol):
    """The look at one batch, window by window."""

    def read(self, window: compression.Buffer) -> int:
        """Look at the whole records at its start; return their size in bytes, -1 if they are not accepted."""
        ...

    def found(self) -> Found | None:
        """Return what the records are like; None if some are missing."""
        ...


# Memory for what is decompressed at once: a fresh megabyte costs a tenth of a millisecond, in page faults.
_spare: deque[bytearray] = deque(maxlen=4)
_begin: Callable[[int, int], Looking] | None = None


def use(begin: Callable[[int, int], Looking] | None) -> None:
    """Begin each look with this: it takes the count of the records and the base timestamp (ms)."""
    global _begin
    _begin = begin


def is_loaded() -> bool:
    """Whether the loop is there."""
    return _begin is not None


def look(batch: memoryview, header: BatchHeader, plain: compression.Buffer = b"") -> Found | None:
    """Look at all records of the v2 batch in `batch`. None: read them in Python, which decides.

    `plain` has its records if they are decompressed already. If they are not, they are for a thread: they may be many.
    """
    looking = _looking(header)
    if looking is None:
        return None
    data = plain or batch[HEADER_SIZE : header.length]
    if len(plain) or header.compression == compression.NONE:
        return looking.found() if looking.read(data) == len(data) else None
    try:
        if header.compression == compression.LZ4 and (found := _at_once(looking, header.compression, data)):
            return found
        again = _looking(header)
        return None if again is None else _in_pieces(again, pieces(header.compression, memoryview(data)))
    except CorruptData:
        return None


def look_at_little(batch: memoryview, header: BatchHeader) -> Found | None:
    """Do what `look` does for an uncompressed batch, or one that is little, decompressed: in about a millisecond."""
    codec, length = header.compression, header.length
    if codec == compression.NONE:
        return look(batch, header)
    looking = _looking(header)
    too_large = length > (_LITTLE_GZIP if codec == compression.GZIP else AT_ONCE_BYTES)
    if looking is None or too_large or not compression.is_known(codec):
        return None
    try:
        plain_max = min(max(_LITTLE_RATIO * length, _LITTLE_PLAIN), AT_ONCE_BYTES)
        return _at_once(looking, codec, batch[HEADER_SIZE:length], plain_max)
    except CorruptData:
        return None


def _looking(header: BatchHeader) -> Looking | None:
    if _begin is None or header.count <= 0 or header.attributes & LOG_APPEND_TIME_BIT:
        return None
    return _begin(header.count, header.base_timestamp)


def _at_once(looking: Looking, codec: int, data: compression.Buffer, size_max: int = AT_ONCE_BYTES) -> Found | None:
    """Look at what is decompressed in one step, without a call for each of its blocks; None if it is too large."""
    if codec not in (compression.LZ4, compression.ZSTD):
        plain = compression.decompress(codec, data, size_max)
        return looking.found() if looking.read(plain) == len(plain) else None
    room = _spare.pop() if _spare else bytearray(AT_ONCE_BYTES)
    try:
        size = compression.decompress_into(codec, data, memoryview(room)[:size_max])
        accepted = size is not None and looking.read(memoryview(room)[:size]) == size
    finally:
        _spare.append(room)
    apart()
    return looking.found() if accepted else None


def _in_pieces(looking: Looking, plain: Iterator[compression.Buffer]) -> Found | None:
    window = bytearray()
    looked_at = 0
    for piece in plain:
        window += piece
        taken = looking.read(window)
        if taken < 0 or len(window) - taken > PIECE_BYTES:
            return None
        del window[:taken]
        looked_at += len(piece)
        if looked_at <= AT_ONCE_BYTES:
            apart()
        else:
            rest()
    return None if window else looking.found()
