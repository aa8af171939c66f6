"""Batches against the record code of aiokafka and kafka-python, and what a leader refuses."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.memory_records import MemoryRecords

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, RecordErrors
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import Bounds, Record
from logyard.broker.records.record_validation import inspect

NOW = 1_700_000_000_000
RECORDS = [
    Record(n, NOW + 7 * n, b"key-%d" % n if n % 3 else None, b"v" * (n * n) if n % 5 else None, HEADERS)
    for n, HEADERS in ((n, (("h", b"\x00\xff"), ("none", None)) if n % 2 else ()) for n in range(70))
]
CODECS = range(5)


def client_batch(**changes: object) -> bytearray:
    fields: dict[str, object] = {"compression": 0, "base_offset": 0}
    return batch.build(RECORDS, **(fields | changes))  # type: ignore[arg-type]


def refusal(buf: bytearray, **bounds: object) -> ErrorCode:
    view = memoryview(buf)
    with pytest.raises(ApiError) as caught:
        batch.validate_client_batch(
            view,
            0,
            batch.parse_header(view),
            bounds=Bounds(**bounds),  # type: ignore[arg-type]
        )
    return caught.value.code


def resealed(buf: bytearray) -> bytearray:
    """Put the right checksum into a batch that a test has changed."""
    from logyard.broker.records.crc import crc32c

    buf[17:21] = crc32c(memoryview(buf)[21:]).to_bytes(4, "big")
    return buf


@pytest.mark.parametrize("codec", CODECS)
def test_our_batch_is_read_by_aiokafka(codec: int) -> None:
    made = batch.build(RECORDS, compression=codec, producer_id=9, producer_epoch=3, base_sequence=4, leader_epoch=2)
    theirs = AioBatch(bytes(made))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 3, 4)
    seen = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert seen == [r[:5] for r in RECORDS]


# kafka-python wants python-snappy and lz4 for the other two.
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.ZSTD])
def test_our_batch_is_read_by_kafka_python(codec: int) -> None:
    made = batch.build(RECORDS, compression=codec, producer_id=9, producer_epoch=3, base_sequence=4, leader_epoch=2)
    theirs = MemoryRecords(bytes(made)).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 3, 4)
    assert theirs.compression_type == codec
    seen = [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in theirs]
    assert seen == [r[:5] for r in RECORDS]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_aiokafka_is_read(codec: int) -> None:
    builder = AioBuilder(2, codec, True, 77, 1, 5, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    buf = memoryview(bytearray(builder.build()))
    header = batch.parse_header(buf)
    assert batch.records(buf) == RECORDS
    assert (header.length, header.count, header.last_offset_delta) == (len(buf), 70, 69)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 7 * 69)
    assert header.is_transactional
    assert header.compression == codec
    batch.validate_client_batch(buf, 0, header, bounds=Bounds())
    inspect(buf, header, Bounds(), NOW)


def test_uncompressed_bytes_are_those_of_aiokafka() -> None:
    builder = AioBuilder(2, 0, False, 77, 1, 5, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = builder.build()
    assert batch.build(RECORDS, producer_id=77, producer_epoch=1, base_sequence=5) == theirs


def test_stamping_changes_no_checksum() -> None:
    buf = memoryview(client_batch(compression=compression.LZ4))
    batch.stamp(buf, 0, 12_345_678_901, 42)
    header = batch.parse_header(buf)
    assert (header.base_offset, header.partition_leader_epoch) == (12_345_678_901, 42)
    assert batch.verify_crc(buf, 0, header)
    assert [r.offset for r in batch.records(buf)] == [12_345_678_901 + n for n in range(70)]


def test_log_append_time_is_seen_by_other_readers() -> None:
    buf = client_batch()
    batch.stamp_log_append_time(memoryview(buf), 0, batch.parse_header(buf), NOW + 99)
    theirs = KafkaPythonBatch(bytes(buf))
    assert theirs.validate_crc()
    assert {r.timestamp for r in theirs} == {NOW + 99}
    assert {r.timestamp for r in batch.records(buf)} == {NOW + 99}
    assert batch.parse_header(buf).timestamp_type is batch.TimestampType.LOG_APPEND_TIME


def test_offsets_may_have_gaps_and_end_behind_the_last_record() -> None:
    kept = [RECORDS[3], RECORDS[10]]
    buf = batch.build(kept, base_offset=1, last_offset=20)
    header = batch.parse_header(buf)
    assert (header.base_offset, header.last_offset, header.count) == (1, 20, 2)
    assert batch.records(buf) == kept


def test_a_delete_horizon_keeps_timestamps() -> None:
    buf = batch.build(RECORDS, delete_horizon_ms=NOW + 10**9)
    header = batch.parse_header(buf)
    assert header.delete_horizon == NOW + 10**9
    assert [r.timestamp for r in batch.records(buf)] == [r.timestamp for r in RECORDS]
    assert batch.parse_header(client_batch()).delete_horizon is None


def test_an_empty_batch_has_no_records() -> None:
    buf = batch.build([], base_offset=5, last_offset=9, producer_id=1, producer_epoch=0, base_sequence=3)
    assert batch.records(buf) == []
    assert batch.parse_header(buf).last_offset == 9


def test_the_sequence_goes_on_at_zero() -> None:
    header = batch.parse_header(client_batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 67
    assert batch.parse_header(client_batch()).last_sequence == -1


def test_a_marker_is_what_kafka_python_calls_a_commit() -> None:
    buf = batch.build_control(
        batch.COMMIT, producer_id=4, producer_epoch=1, coordinator_epoch=8, timestamp=NOW, base_offset=30
    )
    theirs = MemoryRecords(bytes(buf)).next_batch()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert [(r.offset, r.commit, r.abort) for r in theirs] == [(30, True, False)]
    (record,) = batch.records(buf)
    assert batch.control_marker(record) == (batch.COMMIT, 8)
    header = batch.parse_header(buf)
    batch.validate_client_batch(memoryview(bytearray(buf)), 0, header, bounds=Bounds(), from_client=False)


def test_a_control_record_without_type_is_corrupt() -> None:
    with pytest.raises(CorruptData):
        batch.control_type(Record(0, 0, b"\0\0", None))
    with pytest.raises(CorruptData):
        batch.control_marker(Record(0, 0, b"\0\0\0\1", b""))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"base_offset": -3}, ErrorCode.INVALID_RECORD),
        ({"control": True}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"last_offset": 70}, ErrorCode.INVALID_RECORD),
    ],
)
def test_inconsistent_headers_are_refused(changes: dict[str, object], code: ErrorCode) -> None:
    assert refusal(client_batch(**changes)) is code


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_epoch": 0},
        {"base_sequence": 0},
        {"producer_epoch": 0, "base_sequence": 0},
        {"producer_id": -2},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 1, "base_sequence": 0},
        {"delete_horizon_ms": 1},
    ],
)
def test_what_clients_leave_in_the_header_is_no_matter(changes: dict[str, object]) -> None:
    """kafkajs sends producer -1 with epoch 0 and sequence 0, sarama with sequence 0; Kafka takes all of these."""
    view = memoryview(client_batch(**changes))
    batch.validate_client_batch(view, 0, batch.parse_header(view), bounds=Bounds())


def test_bounds_are_held() -> None:
    size = len(client_batch())
    assert refusal(client_batch(), max_message_bytes=size - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_every_changed_byte_behind_the_epoch_is_found() -> None:
    whole = batch.build(RECORDS[:3])
    for at in range(17, len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        assert refusal(broken) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), at


def test_counts_that_the_size_belies_are_refused() -> None:
    liar = client_batch()
    liar[23:27] = (2**31 - 2).to_bytes(4, "big")
    liar[57:61] = (2**31 - 1).to_bytes(4, "big")
    assert refusal(resealed(liar)) is ErrorCode.INVALID_RECORD
    with pytest.raises(CorruptData):
        batch.records(liar)


def test_an_unknown_codec_is_refused() -> None:
    strange = client_batch()
    strange[22] = 5
    assert refusal(resealed(strange)) is ErrorCode.UNKNOWN_SERVER_ERROR, "as in Kafka"


def test_a_batch_cut_short_is_corrupt() -> None:
    whole = client_batch()
    for size in (0, 11, 17, 60, 61, len(whole) - 1):
        cut = whole[:size]
        with pytest.raises(CorruptData):
            batch.records(cut)
        assert list(batch.iter_headers(cut)) == []
    assert refusal_of_cut(whole) is ErrorCode.CORRUPT_MESSAGE


def refusal_of_cut(whole: bytearray) -> ErrorCode:
    header = batch.parse_header(whole)
    with pytest.raises(ApiError) as caught:
        batch.validate_client_batch(memoryview(whole)[:-1], 0, header, bounds=Bounds())
    return caught.value.code


def test_headers_are_walked_over_several_batches() -> None:
    parts = [batch.build(RECORDS[n : n + 10], base_offset=n) for n in range(0, 70, 10)]
    data = b"".join(parts)
    walked = list(batch.iter_headers(memoryview(data + parts[0][:50])))
    assert [h.base_offset for _, h in walked] == list(range(0, 70, 10))
    assert [pos for pos, _ in walked] == [sum(map(len, parts[:n])) for n in range(7)]
    assert [r for pos, _ in walked for r in batch.records(data, pos)] == RECORDS


def test_impossible_headers_are_corrupt() -> None:
    for at, raw in ((8, b"\x00\x00\x00\x01"), (8, b"\xff\xff\xff\xff"), (16, b"\x03"), (16, b"\xff")):
        broken = client_batch()
        broken[at : at + len(raw)] = raw
        with pytest.raises(CorruptData):
            batch.parse_header(broken)
        with pytest.raises(CorruptData):
            list(batch.iter_headers(broken))


@pytest.mark.parametrize("codec", CODECS)
def test_keyless_records_are_found(codec: int) -> None:
    keyed = [r._replace(key=r.key or b"") for r in RECORDS]
    good = memoryview(batch.build(keyed, compression=codec))
    inspect(good, batch.parse_header(good), Bounds(keys_wanted=True), NOW)
    bad = memoryview(batch.build([*keyed[:-1], keyed[-1]._replace(key=None)], compression=codec))
    with pytest.raises(ApiError) as caught:
        inspect(bad, batch.parse_header(bad), Bounds(keys_wanted=True), NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert isinstance(caught.value, RecordErrors)
    assert [index for index, _ in caught.value.records] == [69]


def test_records_that_do_not_parse_are_refused() -> None:
    broken = client_batch()
    broken[61] = 0x7E  # the first record claims to be longer than it is
    view = memoryview(resealed(broken))
    with pytest.raises(CorruptData):
        batch.records(view)
    with pytest.raises(ApiError) as caught:
        inspect(view, batch.parse_header(view), Bounds(), NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_what_depends_on_the_produce_version() -> None:
    one = memoryview(client_batch(compression=compression.ZSTD))
    batch.check_produce_version(one, 7)
    with pytest.raises(ApiError) as caught:
        batch.check_produce_version(one, 6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    whole = client_batch()
    assert len(batch.check_produce_version(memoryview(whole + b"\0"), 9)) == len(whole), (
        "cut short behind it, as in Kafka"
    )
    assert not len(batch.check_produce_version(memoryview(whole)[:-1], 2)), "nothing to append is no error there"
    for data in (client_batch() + client_batch(), b"", client_batch()[:-1]):
        with pytest.raises(ApiError) as caught:
            batch.check_produce_version(memoryview(data), 3)
        assert caught.value.code is ErrorCode.INVALID_RECORD
    broken = client_batch()
    broken[16] = 9
    with pytest.raises(ApiError) as caught:
        batch.check_produce_version(memoryview(broken), 3)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
