"""Decompresses records piece by piece: however large a small batch becomes, only a piece of it is in memory.

A piece has at most 256 KiB. Exceptions: with lz4 it is a block, of at most 4 MiB; a block of snappy may have any size,
but decompresses to at most 22 times its bytes.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam
import zstandard

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.room import ROOM
from logyard.broker.records.xxhash32 import xxhash32

PIECE_BYTES: Final = 256 * 1024
# The largest record of a compressed batch that is read whole; consumers' own limit is 55 MiB (fetch.max.bytes).
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
# Snappy cannot compress better than this: a copy of 64 bytes takes three.
SNAPPY_RATIO_MAX = 22
# lz4 frames with linked blocks are decompressed whole, up to this size; Java's clients refuse all of them.
LINKED_BYTES_MAX = 16 * 1024 * 1024
# The library refuses larger windows.
ZSTD_WINDOW_MAX = 128 * 1024 * 1024

_GZIP_TAKEN = 16 * 1024  # input at a time: when a piece is full, zlib copies what is left of it
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_VERSION_1 = 0x40
_INDEPENDENT, _BLOCK_SUM, _SIZE_THERE, _DICTIONARY = 0x20, 0x10, 0x08, 0x01
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BE = struct.Struct(">i")
_LE = struct.Struct("<I")

_BROKEN = (zlib.error, struct.error, cramjam.DecompressionError, zstandard.ZstdError)

Buffer = compression.Buffer


def pieces(codec: int, data: memoryview, size_max: int = compression.DECOMPRESSED_BYTES_MAX) -> Iterator[Buffer]:
    """Yield the decompressed data in pieces.

    Raises BrokenStream for broken data, and for more than `size_max` bytes. Raises ApiError:
    UNSUPPORTED_COMPRESSION_TYPE (there is no such codec).
    """
    decompress = {0: _plain, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}.get(codec)
    if decompress is None:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec} does not exist")
    left = size_max
    try:
        for piece in decompress(data):
            left -= len(piece)
            if left < 0:
                raise CorruptData(f"{compression.NAMES[codec]} data decompresses to more than {size_max} bytes")
            if piece:
                yield piece
    except (CorruptData, IndexError, *_BROKEN) as error:
        raise compression.BrokenStream(f"{compression.NAMES[codec]} data of {len(data)} bytes: {error}") from error


def whole(codec: int, data: memoryview) -> bytes:
    """Return all that `pieces` yields; raises as it does.

    `compression.decompress` is faster, and refuses some streams that Java reads and leaders have accepted: bytes after
    the end of one.
    """
    try:
        return compression.decompress(codec, data)
    except compression.BrokenStream:
        return b"".join(pieces(codec, data))


def _plain(data: memoryview) -> Iterator[Buffer]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def _gzip(data: memoryview) -> Iterator[Buffer]:
    """Decompress all members of a gzip stream."""
    at = 0
    unpacker = zlib.decompressobj(wbits=31)
    ended = False  # the member; another may follow
    while at < len(data):
        if ended:
            if bytes(data[at : at + 2]) != _GZIP_MAGIC:
                break  # bytes after the stream, which Java ignores too
            unpacker, ended = zlib.decompressobj(wbits=31), False
        rest_of: Buffer = data[at : at + _GZIP_TAKEN]
        at += len(rest_of)
        while rest_of and not unpacker.eof:
            yield unpacker.decompress(rest_of, PIECE_BYTES)
            rest_of = unpacker.unconsumed_tail
        while not unpacker.eof and (piece := unpacker.decompress(b"", PIECE_BYTES)):
            yield piece
        if unpacker.eof:
            ended = True
            at -= len(unpacker.unused_data)
    if not ended:
        raise CorruptData(f"gzip data of {len(data)} bytes is cut short")


def _snappy(data: memoryview) -> Iterator[Buffer]:
    if data[:8] != compression.XERIAL_MAGIC:
        yield from _raw_snappy(data)
        return
    if len(data) < len(compression.XERIAL_HEAD):
        raise CorruptData(f"snappy data of {len(data)} bytes is cut short")
    pos = len(compression.XERIAL_HEAD)
    while pos < len(data):
        (size,) = _BE.unpack_from(data, pos)
        pos += 4
        if size <= 0 or pos + size > len(data):
            raise CorruptData(f"a snappy block of {size} bytes does not fit its {len(data)} bytes")
        yield from _raw_snappy(data[pos : pos + size])
        pos += size


def _raw_snappy(data: memoryview) -> Iterator[Buffer]:
    promised = cramjam.snappy.decompress_raw_len(data)
    if promised > min(SNAPPY_RATIO_MAX * len(data), compression.DECOMPRESSED_BYTES_MAX):
        raise CorruptData(f"a snappy block of {len(data)} bytes says that it holds {promised}")
    with ROOM.taken(2 * promised):  # who reads it has a copy
        yield bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: memoryview) -> Iterator[Buffer]:
    magic, flags, kind = struct.unpack_from("<IBB", data)
    head = 6 + (8 if flags & _SIZE_THERE else 0) + (4 if flags & _DICTIONARY else 0)
    if magic != _LZ4_MAGIC or flags >> 6 != 1 or len(data) <= head:
        raise CorruptData(f"{len(data)} bytes are not an lz4 frame")
    if data[head] != xxhash32(bytes(data[4:head])) >> 8 & 0xFF:
        raise CorruptData("the head of an lz4 frame does not match its checksum")
    block_kind = kind >> 4 & 7
    if block_kind not in _LZ4_BLOCK_BYTES:
        raise CorruptData(f"an lz4 frame with blocks of kind {block_kind}")
    if not flags & _INDEPENDENT:
        yield compression.decompress(compression.LZ4, data, LINKED_BYTES_MAX)
        return
    yield from _lz4_blocks(data, head + 1, block_kind, 4 if flags & _BLOCK_SUM else 0)


def _lz4_blocks(data: memoryview, pos: int, block_kind: int, sum_bytes: int) -> Iterator[Buffer]:
    block_max = _LZ4_BLOCK_BYTES[block_kind]
    room = memoryview(bytearray(block_max))
    # The library gets a frame with one block: in a bare block it would take the first bytes for a length.
    described = bytes([_VERSION_1 | _INDEPENDENT, block_kind << 4])
    head = _LE.pack(_LZ4_MAGIC) + described + bytes([xxhash32(described) >> 8 & 0xFF])
    while True:
        (size,) = _LE.unpack_from(data, pos)
        pos += 4
        if size == 0:
            return
        stored, size = bool(size >> 31), size & 0x7FFFFFFF
        block = data[pos : pos + size]
        if size > block_max or len(block) < size:
            raise CorruptData(f"an lz4 block of {size} bytes, at most {min(block_max, len(block))} are possible")
        pos += size
        if sum_bytes and _LE.unpack_from(data, pos)[0] != xxhash32(bytes(block)):
            raise CorruptData("an lz4 block does not match its checksum")
        pos += sum_bytes
        if stored:
            yield bytes(block)
            continue
        frame = b"".join((head, _LE.pack(size), block, compression.LZ4_END))
        yield bytes(room[: int(cramjam.lz4.decompress_into(frame, room))])


def _zstd(data: memoryview) -> Iterator[Buffer]:
    window = _window_of_whole_frames(data)
    unpacker = zstandard.ZstdDecompressor()
    with ROOM.taken(min(window, ZSTD_WINDOW_MAX)), unpacker.stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


def _window_of_whole_frames(data: memoryview) -> int:
    """Return the size of the largest window that a frame needs.

    Raises CorruptData if a frame ends early, which the reader does not report: go from block to block.
    """
    pos = window = 0
    while pos < len(data):
        if bytes(data[pos : pos + 4]) != _ZSTD_MAGIC:
            if len(data) - pos >= 8 and data[pos] >> 4 == 5 and bytes(data[pos + 1 : pos + 4]) == b"\x2a\x4d\x18":
                pos += 8 + _LE.unpack_from(data, pos + 4)[0]  # a skippable frame
                continue
            raise CorruptData(f"{len(data) - pos} bytes are not a zstd frame")
        end_of_frame = 4 if data[pos + 4] & 4 else 0
        window = max(window, zstandard.get_frame_parameters(data[pos:]).window_size)
        pos += zstandard.frame_header_size(data[pos:])
        is_last = False
        while not is_last:
            head = int.from_bytes(data[pos : pos + 3], "little") if pos + 3 <= len(data) else 1 << 24
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            pos += 3 + (1 if kind == 1 else size)
            if pos > len(data):
                raise CorruptData(f"zstd data of {len(data)} bytes is cut short")
        pos += end_of_frame
    if pos > len(data):
        raise CorruptData(f"zstd data of {len(data)} bytes is cut short")
    return window
