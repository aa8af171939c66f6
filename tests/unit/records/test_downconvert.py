"""Old consumers' view of new batches, read back by aiokafka's code for the old formats."""

import pytest
from aiokafka.record.memory_records import MemoryRecords

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.records import batch, downconvert, legacy
from logyard.broker.records.batch import Record

NOW = 1_500_000_000_000
RECORDS = [Record(100 + 2 * n, NOW + n, b"k%d" % n if n % 2 else None, b"v" * n, (("h", b"1"),)) for n in range(30)]


def read_by_aiokafka(data: bytes) -> list[Record]:
    found = []
    reader = MemoryRecords(data)
    while reader.has_next():
        theirs = reader.next_batch()
        assert theirs.validate_crc()
        found += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in theirs]
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_consumers_read_what_is_there(magic: int, codec: int) -> None:
    data = batch.build(RECORDS[:10], compression=codec) + batch.build(RECORDS[10:], compression=codec)
    made = bytes(downconvert.downconvert(memoryview(data), magic))
    expected = [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in RECORDS]
    assert legacy.legacy_records(made) == expected
    if (magic, codec) != (0, 3):  # lz4 frames of magic 0 had a wrong header checksum, which aiokafka expects
        assert read_by_aiokafka(made) == expected


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    data = memoryview(batch.build(RECORDS, compression=1))
    assert [r.offset for r in legacy.legacy_records(downconvert.downconvert(data, 1, 141))] == list(range(142, 160, 2))
    assert downconvert.downconvert(data, 1, 1000) == b""


def test_markers_are_left_out() -> None:
    marker = batch.build_control(
        batch.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp=NOW, base_offset=99
    )
    made = downconvert.downconvert(memoryview(marker + batch.build(RECORDS)), 1)
    assert len(legacy.legacy_records(made)) == 30


def test_old_messages_pass_as_they_are() -> None:
    old = bytes(downconvert.downconvert(memoryview(batch.build(RECORDS)), 0))
    assert downconvert.downconvert(memoryview(old), 0) == old
    assert downconvert.downconvert(memoryview(old), 1) == old


def test_magic_1_becomes_magic_0() -> None:
    newer = downconvert.downconvert(memoryview(batch.build(RECORDS, compression=1)), 1)
    older = downconvert.downconvert(memoryview(newer), 0)
    assert [h.magic for _, h in batch.iter_headers(older)] == [0]
    assert [r.offset for r in legacy.legacy_records(older)] == [r.offset for r in RECORDS]


def test_log_append_time_is_kept() -> None:
    data = memoryview(batch.build(RECORDS, compression=1, log_append_time_ms=NOW + 77))
    made = downconvert.downconvert(data, 1)
    assert {r.timestamp for r in legacy.legacy_records(made)} == {NOW + 77}
    assert next(batch.iter_headers(made))[1].timestamp_type is batch.TimestampType.LOG_APPEND_TIME


def test_zstd_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        downconvert.downconvert(memoryview(batch.build(RECORDS, compression=4)), 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_what_a_fetch_version_reads() -> None:
    assert [downconvert.magic_for_fetch(v) for v in range(6)] == [0, 0, 1, 1, 2, 2]
