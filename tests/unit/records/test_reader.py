"""Batches opened piece by piece: the same records as all at once, and no more memory than a window of them."""

import itertools
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
import zstandard

from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.records import build, compression, decode, reader
from logyard.broker.records import decompression_stream as piecewise
from logyard.broker.records.decompression_stream import pieces
from logyard.broker.records.header import COUNT_AT, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, parse_header
from logyard.broker.records.stream import Record
from logyard.broker.records.varint import write_varint

CODECS = range(5)
MEGABYTE = 1 << 20


def of_body(body: bytes, codec: int, count: int) -> memoryview:
    """A v2 batch with these bytes as its records, whatever they are."""
    made = bytearray(build.build([Record(0, 1, b"k", b"v")], compression=codec)[:HEADER_SIZE])
    made += compression.compress(codec, body)
    struct.pack_into(">i", made, LENGTH_AT, len(made) - LOG_OVERHEAD)
    struct.pack_into(">i", made, COUNT_AT, count)
    return memoryview(made)


def record_bytes(key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    content = b"\0\0\0"
    for each in (key, value):
        content += write_varint(-1) if each is None else write_varint(len(each)) + each
    content += headers
    return write_varint(len(content)) + content


@pytest.mark.parametrize("codec", CODECS)
def test_small_and_large_records_come_out_as_they_went_in(codec: int) -> None:
    sizes = [0, 1, 100, 300_000, 5, 70_000, 0, 3_000_000, 12]
    records = [
        Record(
            n, 1000 + n, None if n % 3 == 0 else b"k" * (n + size // 2), b"v" * size, (("name", b"x"), ("other", None))
        )
        for n, size in enumerate(sizes)
    ]
    batch = memoryview(build.build(records, compression=codec))
    header = parse_header(batch)
    assert decode.records(batch) == records
    seen = [(r.offset, r.timestamp, r.key is None, r.value is None) for r in reader.outlines(batch, header)]
    assert seen == [(r.offset, r.timestamp, r.key is None, r.value is None) for r in records]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 1023, 1025, 2**31 - 1])
def test_a_count_that_lies_is_found(codec: int, count: int) -> None:
    batch = of_body(record_bytes(b"k", b"v") * 1024, codec, count)
    for act in (reader.outlines, reader.whole_records):
        with pytest.raises(CorruptData):
            list(act(batch, parse_header(batch)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("where", [1, 100, 499_999])
def test_a_batch_cut_short_is_found(codec: int, where: int) -> None:
    body = record_bytes(b"k", bytes(500_000))
    batch = of_body(body[: len(body) - where], codec, 1)
    with pytest.raises(CorruptData):
        list(reader.outlines(batch, parse_header(batch)))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_bytes_cut_short_are_found(codec: int) -> None:
    packed = compression.compress(codec, b"some records, say" * 10_000)
    for left in (1, 4, len(packed) // 2):
        short = memoryview(packed)[: len(packed) - left]
        if codec == compression.NONE:
            continue
        with pytest.raises(CorruptData):
            list(pieces(codec, short))


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4, compression.ZSTD])
def test_a_bomb_takes_a_window_of_memory(codec: int) -> None:
    """50 MB of one record, and of 100,000: neither is ever in memory."""
    one = record_bytes(b"k" * 25_000_000, b"v" * 25_000_000)
    many = record_bytes(None, None) * 100_000
    for body, count in ((one, 1), (many, 100_000)):
        batch = of_body(body, codec, count)
        tracemalloc.start()
        try:
            assert sum(1 for _ in reader.outlines(batch, parse_header(batch))) == count
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 20 * MEGABYTE, peak


def test_a_count_of_one_decompresses_no_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the header does not count is not looked at: the bomb behind the first record is not set off."""
    batch = of_body(record_bytes(b"k", b"v") + bytes(50_000_000), compression.GZIP, 1)
    taken: list[int] = []

    def counted(*asked: Any) -> Iterator[Any]:
        for piece in pieces(*asked):
            taken.append(len(piece))
            yield piece

    monkeypatch.setattr(piecewise, "pieces", counted)
    with pytest.raises(CorruptData, match="after its 1 records"):
        list(reader.outlines(batch, parse_header(batch)))
    assert len(taken) == 1


def test_a_header_name_that_is_not_utf8_is_read_as_kafka_reads_it() -> None:
    headers = write_varint(1) + write_varint(2) + b"\xff\xfe" + write_varint(-1)
    body = record_bytes(b"a", b"1") + record_bytes(None, b"2", headers) + record_bytes(b"c", b"3")
    batch = of_body(body, compression.NONE, 3)
    assert [r.key is None for r in reader.outlines(batch, parse_header(batch))] == [False, True, False]
    found = decode.records(batch)
    assert found[1].headers == (("\udcff\udcfe", None),)
    again = decode.records(build.build([r._replace(offset=n) for n, r in enumerate(found)]))
    assert again[1].headers == found[1].headers


def test_a_snappy_block_that_promises_too_much_is_refused() -> None:
    block = b"\xff\xff\xff\xff\x0f" + bytes(100)  # 4 GiB, it says
    with pytest.raises(CorruptData, match="says that it holds"):
        list(pieces(compression.SNAPPY, memoryview(block)))


def test_lz4_blocks_that_need_each_other_are_opened_up_to_a_bound() -> None:
    linked = cramjam.lz4.compress(b"abcdefgh" * 100_000)
    assert b"".join(pieces(compression.LZ4, memoryview(bytes(linked)))) == b"abcdefgh" * 100_000


def test_lz4_checksums_are_verified() -> None:
    frame = bytearray(compression.compress(compression.LZ4, b"abcdefgh" * 1000))
    frame[6] ^= 1
    with pytest.raises(CorruptData, match="checksum"):
        list(pieces(compression.LZ4, memoryview(frame)))


def test_zstd_frames_follow_each_other_and_may_be_skipped() -> None:
    pack = zstandard.ZstdCompressor().compress
    skipped = struct.pack("<II", 0x184D2A53, 7) + b"seven!!"
    data = pack(b"one") + skipped + pack(b"two" * 100_000)
    assert b"".join(pieces(compression.ZSTD, memoryview(data))) == b"one" + b"two" * 100_000


def test_every_broken_record_is_corrupt_data_and_nothing_else() -> None:
    sound = record_bytes(b"key", b"value", write_varint(1) + write_varint(1) + b"n" + write_varint(0))
    large = record_bytes(b"key", bytes(300_000))
    for body, at, byte in itertools.product((sound, large), range(12), (0x00, 0x01, 0x7F, 0x80, 0xFF)):
        broken = bytearray(body)
        broken[at] = byte
        for codec in (compression.NONE, compression.ZSTD):
            batch = of_body(bytes(broken), codec, 1)
            for act in (reader.outlines, reader.whole_records):
                try:
                    list(act(batch, parse_header(batch)))
                except CorruptData:
                    continue


def test_a_codec_that_does_not_exist() -> None:
    with pytest.raises(ApiError):
        list(pieces(5, memoryview(b"x")))
