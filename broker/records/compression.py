"""The codecs of record batches: compresses so that Java clients can read it, and decompresses up to a limit.

Snappy may be raw (librdkafka) or in xerial's blocks (Java); both are read, and blocks are written. The blocks of an lz4
frame must be independent, or Java refuses it; so the frame is written here.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import cramjam

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import gzip_packing

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# No client builds batches of this size; it keeps a small hostile batch from filling the memory.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024

_FIRST_GUESS_MIN = 64 * 1024
_TOO_SMALL = "whole buffer"  # in cramjam's error if the buffer is too small
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK = 32 * 1024
# Magic number; version 1 with independent blocks and no checksums; blocks of at most 64 KiB; header checksum.
LZ4_HEAD = bytes.fromhex("04224d18604082")
LZ4_BLOCK = 64 * 1024
LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_LENGTH = struct.Struct(">i")
_LZ4_LENGTH = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview


class BrokenStream(CorruptData):
    """The data cannot be decompressed."""


class Recoding(NamedTuple):
    """The codec of a topic, by its number, and its level (None: the codec's default)."""

    codec: int
    level: int | None = None


def recoding(compression_type: str, levels: Mapping[str, int]) -> Recoding | None:
    """Return the codec of a topic's compression.type, None if producers choose. `levels` are by codec name."""
    if compression_type == "producer":
        return None
    if compression_type == "uncompressed":
        return Recoding(NONE)
    return Recoding(NAMES.index(compression_type), levels.get(compression_type))


def name(codec: int) -> str:
    """Return the codec's name in configs. Raises ApiError: UNSUPPORTED_COMPRESSION_TYPE (there is no such codec)."""
    if not NONE <= codec <= ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec} does not exist")
    return NAMES[codec]


def is_known(codec: int) -> bool:
    """Whether there is a codec with this number."""
    return NONE <= codec <= ZSTD


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress with the codec of that number (the lowest three bits of a batch's attributes).

    `level` is for gzip and zstd (KIP-390), None is their default. Snappy has no levels, and the library none for lz4.
    """
    match codec:
        case 0:
            return bytes(data)
        case 1:
            packer = gzip_packing.packer(level)
            return packer.compress(data) + packer.flush()
        case 2:
            return _xerial(memoryview(data))
        case 3:
            return _lz4_frame(memoryview(data))
        case 4:
            return bytes(cramjam.zstd.compress(data, level))
    raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec} does not exist")


def decompress(codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress at most `size_max` bytes. Raises CorruptData for broken data, and for more bytes."""
    view = memoryview(data)
    try:
        match codec:
            case 0:
                return bytes(view)
            case 1:
                return _gunzip(view, size_max)
            case 2:
                return _unsnappy(view, size_max)
            case 3:
                return _into_growing(cramjam.lz4.decompress_into, "lz4", view, size_max)
            case 4:
                return _into_growing(cramjam.zstd.decompress_into, "zstd", view, size_max)
    except (zlib.error, struct.error, cramjam.DecompressionError) as error:
        raise BrokenStream(f"{NAMES[codec]} data of {len(view)} bytes: {error}") from error
    raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec} does not exist")


def decompress_into(codec: int, data: Buffer, out: memoryview) -> int | None:
    """Decompress into the start of `out`. Returns how many bytes, None if `out` is too small. Raises CorruptData.

    lz4 and zstd write into `out`, without a copy.
    """
    into = {LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into}.get(codec)
    if into is None:
        plain = decompress(codec, data)
        if len(plain) <= len(out):
            out[: len(plain)] = plain
        return len(plain) if len(plain) <= len(out) else None
    try:
        return int(into(data, out))
    except cramjam.DecompressionError as error:
        if _TOO_SMALL in str(error):
            return None
        raise BrokenStream(f"{NAMES[codec]} data of {len(data)} bytes: {error}") from error


def _too_large(codec: str, size_max: int) -> BrokenStream:
    return BrokenStream(f"{codec} data decompresses to more than {size_max} bytes")


def _gunzip(data: memoryview, size_max: int) -> bytes:
    """Decompress all members of a gzip stream."""
    pieces: list[bytes] = []
    left = size_max
    rest: Buffer = data
    while rest:
        unpacker = zlib.decompressobj(wbits=31)
        piece = unpacker.decompress(rest, left + 1)
        left -= len(piece)
        if left < 0:
            raise _too_large("gzip", size_max)
        if not unpacker.eof:
            raise BrokenStream(f"gzip data of {len(data)} bytes is cut short")
        pieces.append(piece)
        rest = unpacker.unused_data
    return b"".join(pieces)


def _xerial(data: memoryview) -> bytes:
    out = bytearray(XERIAL_HEAD)
    for start in range(0, len(data), XERIAL_BLOCK):
        out += xerial_block(data[start : start + XERIAL_BLOCK])
    return bytes(out)


def xerial_block(plain: memoryview) -> bytes:
    """Return one xerial block of at most XERIAL_BLOCK uncompressed bytes."""
    block = bytes(cramjam.snappy.compress_raw(plain))
    return _LENGTH.pack(len(block)) + block


def _unsnappy(data: memoryview, size_max: int) -> bytes:
    if data[:8] != XERIAL_MAGIC:
        return _raw_snappy(data, 0, size_max)
    if len(data) < len(XERIAL_HEAD):
        raise BrokenStream(f"snappy data of {len(data)} bytes is cut short")
    out = bytearray()
    pos = len(XERIAL_HEAD)
    while pos < len(data):
        (size,) = _LENGTH.unpack_from(data, pos)
        pos += 4
        if size <= 0 or pos + size > len(data):
            raise BrokenStream(f"a snappy block of {size} bytes does not fit its {len(data)} bytes")
        out += _raw_snappy(data[pos : pos + size], len(out), size_max)
        pos += size
    return bytes(out)


def _raw_snappy(data: memoryview, before: int, size_max: int) -> bytes:
    if before + cramjam.snappy.decompress_raw_len(data) > size_max:
        raise _too_large("snappy", size_max)
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4_frame(data: memoryview) -> bytes:
    out = bytearray(LZ4_HEAD)
    for start in range(0, len(data), LZ4_BLOCK):
        out += lz4_block(data[start : start + LZ4_BLOCK])
    return bytes(out + LZ4_END)


def lz4_block(plain: memoryview) -> bytes:
    """Return one block of an lz4 frame, of at most LZ4_BLOCK uncompressed bytes."""
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if len(block) < len(plain):
        return _LZ4_LENGTH.pack(len(block)) + block
    return _LZ4_LENGTH.pack(len(plain) | _LZ4_STORED) + bytes(plain)


def _into_growing(decompress_into: object, codec: str, data: memoryview, size_max: int) -> bytes:
    """Decompress into a buffer that is doubled while it is too small, up to `size_max`."""
    assert callable(decompress_into)
    size = min(max(4 * len(data), _FIRST_GUESS_MIN), size_max)
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size >= size_max:
                raise _too_large(codec, size_max) from error
            size = min(2 * size, size_max)
        else:
            return bytes(memoryview(out)[:written])
