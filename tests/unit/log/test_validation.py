"""The validation of a client's batch by a leader, and its corrections: docs/records.md, rule by rule."""

import struct
from typing import Any

import pytest

from logyard.broker.errors import ApiError, ErrorCode, RecordErrors
from logyard.broker.log.validation import is_little, validate, validate_with_header
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import BatchHeader, Bounds, Record
from logyard.broker.records.compression import Recoding
from logyard.broker.records.crc import crc32c
from logyard.broker.records.varint import write_varint
from tests.support.batches import Batch, Rec
from tests.support.logs import new_log

NOW = 1_700_000_000_000
CODECS = range(5)


def made(times: list[int], codec: int = 0, key: bytes | None = b"k", **fields: Any) -> bytearray:
    return batch.build([Record(n, time, key, b"v") for n, time in enumerate(times)], compression=codec, **fields)


def with_max(sent: bytearray, max_timestamp: int) -> bytearray:
    struct.pack_into(">q", sent, 35, max_timestamp)
    struct.pack_into(">I", sent, 17, crc32c(memoryview(sent)[21:]))
    return sent


def refusal(sent: bytearray, **bounds: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate(memoryview(sent), Bounds(**bounds), NOW)
    return caught.value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [0, NOW - 10, NOW + 10**9])
def test_a_look_by_time_finds_the_record_whatever_the_header_says(codec: int, claimed: int) -> None:
    log = new_log()
    log.append_as_leader(memoryview(with_max(made([NOW - 5, NOW, NOW - 9], codec), claimed)), 0, now_ms=NOW)
    assert log.timestamp_search(NOW - 1)() == (NOW, 1, 0)
    assert log.timestamp_search(NOW + 1)() is None
    assert log.segments.active.max_timestamp == NOW
    kept = log.read(0, 1 << 20, limit_offset=3, min_one=True).load()
    header = batch.parse_header(kept)
    assert header.max_timestamp == NOW
    assert batch.crc_matches(kept, 0, header)


@pytest.mark.parametrize("codec", CODECS)
def test_a_right_header_leaves_the_batch_as_it_came(codec: int) -> None:
    sent = made([NOW, NOW + 3, NOW - 1], codec)
    before = bytes(sent)
    assert validate(memoryview(sent), Bounds(), NOW).obj is sent
    assert bytes(sent) == before


@pytest.mark.parametrize("codec", CODECS)
def test_a_header_is_returned_only_if_it_is_that_of_what_is_appended(codec: int) -> None:
    def header_of(sent: bytearray, **bounds: Any) -> BatchHeader | None:
        got, header = validate_with_header(memoryview(sent), Bounds(**bounds), NOW)
        assert header is None or header == batch.parse_header(got)
        return header

    usual = made([NOW, NOW + 3], codec)
    assert header_of(bytearray(usual)) is not None
    assert header_of(bytearray(usual), log_append_time=True) is not None
    assert header_of(with_max(bytearray(usual), NOW - 1)) is None
    assert header_of(made([NOW, NOW], codec, log_append_time_ms=NOW)) is None
    assert header_of(bytearray(usual), recoding=Recoding((codec + 1) % 5)) is None
    assert header_of(usual + usual) is None


@pytest.mark.parametrize("codec", CODECS)
def test_refused_records_are_named(codec: int) -> None:
    times = [NOW, NOW - 100, NOW, NOW + 100, -1]
    refused = refusal(made(times, codec), timestamp_before_max_ms=50, timestamp_after_max_ms=50)
    assert isinstance(refused, RecordErrors)
    assert (refused.code, [index for index, _ in refused.records]) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])
    keyless = refusal(made(times, codec, key=None), keys_wanted=True)
    assert isinstance(keyless, RecordErrors)
    assert (keyless.code, len(keyless.records)) == (ErrorCode.INVALID_RECORD, 5)


def test_a_producers_log_append_time_flag_is_removed() -> None:
    sent = made([NOW, NOW], log_append_time_ms=NOW)
    header = batch.parse_header(validate(memoryview(sent), Bounds(), NOW))
    assert (header.attributes, header.max_timestamp) == (0, NOW)
    assert batch.crc_matches(memoryview(sent), 0, header)
    claimed = made([NOW, NOW], log_append_time_ms=NOW)
    assert refusal(claimed, log_append_time=True).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", range(1, 5))
def test_undecompressible_batches_get_kafkas_error(codec: int) -> None:
    sent = made([NOW] * 50, codec)
    del sent[-8:]
    struct.pack_into(">i", sent, 8, len(sent) - 12)
    assert refusal(with_max(sent, NOW)).code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_count_is_refused(codec: int) -> None:
    sent = made([NOW] * 3, codec)
    struct.pack_into(">i", sent, 57, 2)
    struct.pack_into(">i", sent, 23, 1)
    assert refusal(with_max(sent, NOW)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("offset", [1, 1000, -1])
def test_a_record_that_is_not_where_its_batch_is_stays_so_as_on_kafka_in_uncompressed_batches(offset: int) -> None:
    def sent(codec: int = 0) -> bytearray:
        odd = Batch(0, 0, (Rec(offset, b"k", b"v", NOW),), codec)
        return bytearray(odd.encode())

    assert bytes(validate(memoryview(sent()), Bounds(keys_wanted=True), NOW)) == sent()
    assert refusal(sent(compression.ZSTD)).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_batch_with_a_wrong_largest_time_is_compressed_anew() -> None:
    sent = with_max(made([NOW - 5, NOW], compression.GZIP), 0)
    got = validate(memoryview(sent), Bounds(recoding=Recoding(compression.LZ4)), NOW)
    header = batch.parse_header(got)
    assert (header.compression, header.max_timestamp) == (compression.LZ4, NOW)
    assert [r.timestamp for r in batch.records(got)] == [NOW - 5, NOW]


def test_long_validations_are_not_little() -> None:
    def little(sent: bytearray, **bounds: Any) -> bool:
        return is_little(memoryview(sent), Bounds(max_message_bytes=1 << 21, **bounds))

    assert little(made([NOW] * 1000))
    assert not little(made([NOW] * 20_000))
    large = [Record(0, NOW, b"k", bytes(1 << 20))]
    assert little(batch.build(large)), "one record and no headers"
    assert not little(batch.build([large[0]._replace(headers=(("h", b""),) * 2000)])), "many headers"
    assert not little(batch.build(large, compression=compression.ZSTD)), "it swells"
    assert little(made([NOW] * 10, compression.ZSTD))
    assert not little(batch.build(large), recoding=Recoding(compression.GZIP))


@pytest.mark.parametrize("at", [1, 2])
def test_a_varint_without_an_end_is_not_followed_on_the_event_loop(at: int) -> None:
    sent = batch.build([Record(0, NOW, None, bytes(100_000))])
    body = bytes(at) + b"\x80" * 11 + bytes(100_000)
    sent[batch.HEADER_SIZE :] = write_varint(len(body)) + body
    struct.pack_into(">i", sent, 8, len(sent) - 12)
    assert not is_little(memoryview(sent), Bounds()), "a time or offset of more than ten bytes ends the look"
