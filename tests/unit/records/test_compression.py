"""Codecs: ours read what others write and others read ours; broken and oversized data is refused."""

import random
import struct

import cramjam
import pytest
from aiokafka import codec as theirs

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.decompression_stream import pieces
from logyard.broker.records.xxhash32 import xxhash32

RANDOM = random.Random(7)
SAMPLES = [b"", b"a", RANDOM.randbytes(100), b"log" * 100_000, RANDOM.randbytes(65_536 * 2 + 1)]
THEIRS = {
    compression.GZIP: (theirs.gzip_encode, theirs.gzip_decode),
    compression.SNAPPY: (theirs.snappy_encode, theirs.snappy_decode),
    compression.LZ4: (theirs.lz4_encode, theirs.lz4_decode),
    compression.ZSTD: (theirs.zstd_encode, theirs.zstd_decode),
}


@pytest.mark.parametrize("codec", THEIRS)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_both_ways_with_aiokafka(codec: int, data: bytes) -> None:
    encode, decode = THEIRS[codec]
    ours = compression.compress(codec, memoryview(bytearray(data)))
    assert compression.decompress(codec, ours) == data
    if data:  # aiokafka takes a xerial header alone for raw snappy
        assert bytes(decode(ours)) == data
    assert compression.decompress(codec, memoryview(bytearray(encode(data)))) == data


@pytest.mark.parametrize("codec", THEIRS)
def test_the_bound_holds(codec: int) -> None:
    bomb = compression.compress(codec, bytes(3_000_000))
    assert len(bomb) < 200_000
    assert len(compression.decompress(codec, bomb, 3_000_000)) == 3_000_000
    with pytest.raises(CorruptData, match="more than 2999999"):
        compression.decompress(codec, bomb, 2_999_999)


@pytest.mark.parametrize("codec", [compression.NONE, *THEIRS])
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_into_a_buffer_that_may_be_too_small(codec: int, data: bytes) -> None:
    packed = compression.compress(codec, data)
    out = bytearray(len(data) + 10)
    assert compression.decompress_into(codec, memoryview(packed), memoryview(out)) == len(data)
    assert out == data + bytes(10)
    for size in {0, len(data) // 2, len(data) - 1} if data else ():
        assert compression.decompress_into(codec, memoryview(packed), memoryview(bytearray(size))) is None


@pytest.mark.parametrize("codec", THEIRS)
def test_broken_data_is_corrupt(codec: int) -> None:
    whole = compression.compress(codec, SAMPLES[2] * 700)
    for broken in (whole[:5], whole[: len(whole) // 2], whole[:-1], b"\xff" * 40):
        with pytest.raises(CorruptData):
            compression.decompress(codec, broken)
        with pytest.raises(CorruptData):
            compression.decompress_into(codec, broken, memoryview(bytearray(100_000)))


def test_raw_snappy_of_librdkafka_is_read() -> None:
    assert compression.decompress(compression.SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLES[3]))) == SAMPLES[3]


def test_snappy_is_written_in_the_blocks_of_java() -> None:
    packed = compression.compress(compression.SNAPPY, SAMPLES[3])
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert len(bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size]))) == 32 * 1024


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    packed = compression.compress(compression.LZ4, SAMPLES[3])
    assert packed[:7].hex() == "04224d18604082"
    pos, plain = 7, b""
    while size := struct.unpack_from("<I", packed, pos)[0]:
        out = bytearray(65_536)
        written = cramjam.lz4.decompress_block_into(packed[pos + 4 : pos + 4 + size], out)
        plain += out[:written]
        pos += 4 + size
    assert plain == SAMPLES[3]
    assert pos + 4 == len(packed)


def test_lz4_with_linked_blocks_is_read() -> None:
    linked = bytes(cramjam.lz4.compress(SAMPLES[3]))
    assert not linked[4] & 0x20
    assert compression.decompress(compression.LZ4, linked) == SAMPLES[3]


def test_a_gzip_stream_may_have_several_members() -> None:
    two = compression.compress(compression.GZIP, b"one") + compression.compress(compression.GZIP, b"two")
    assert compression.decompress(compression.GZIP, two) == b"onetwo"


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    for act in (compression.compress, compression.decompress):
        with pytest.raises(ApiError) as caught:
            act(codec, b"")
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ApiError):
        compression.name(codec)


@pytest.mark.parametrize("kind", [4, 7])
def test_lz4_blocks_are_not_taken_for_something_else(kind: int) -> None:
    """The first bytes of a block may look like a length before it, which a call for blocks alone takes them for."""
    described = bytes([0x60, kind << 4])
    for zeros in range(5, 300, 7):
        plain = bytes(zeros) + b"a value of sarama's" + bytes(range(zeros % 50))
        block = compression.lz4_block(memoryview(plain))
        head = bytes.fromhex("04224d18") + described + bytes([xxhash32(described) >> 8 & 0xFF])
        frame = head + block + compression.LZ4_END
        assert compression.decompress(compression.LZ4, frame) == plain
        assert b"".join(map(bytes, pieces(compression.LZ4, memoryview(frame)))) == plain, zeros
