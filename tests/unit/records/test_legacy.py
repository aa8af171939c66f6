"""Message sets of magic 0 and 1 against the writers of aiokafka and kafka-python."""

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import batch, legacy
from logyard.broker.records.batch import Record
from logyard.broker.records.compression import Recoding

NOW = 1_500_000_000_000
RECORDS = [Record(n, NOW + n, b"k%d" % n if n % 2 else None, None if n % 3 == 1 else b"v" * n) for n in range(40)]


def message_set(magic: int, codec: int, builder: type = AioBuilder, size: int = 1 << 20) -> bytes:
    made = builder(magic, codec, size)
    for record in RECORDS:
        made.append(record.offset, timestamp=record.timestamp, key=record.key, value=record.value)
    data = bytearray(made.build())
    if magic == 1 and codec:
        # What a leader does with a wrapper: it has the offset of the last message in it.
        data[:8] = RECORDS[-1].offset.to_bytes(8, "big")
    return bytes(data)


def upconverted(data: bytes | bytearray, **bounds: object) -> bytearray:
    return legacy.upconvert(memoryview(data), batch.Bounds(**bounds), NOW)  # type: ignore[arg-type]


def expected(magic: int) -> list[Record]:
    return RECORDS if magic == 1 else [r._replace(timestamp=-1) for r in RECORDS]


@pytest.mark.parametrize(
    ("magic", "codec", "builder"),
    [
        *((m, c, AioBuilder) for m, c in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3))),
        *((m, c, KafkaPythonBuilder) for m in (0, 1) for c in (0, 1)),
    ],
)
def test_sets_of_others_are_read(magic: int, codec: int, builder: type) -> None:
    data = message_set(magic, codec, builder)
    assert legacy.legacy_records(data) == expected(magic)


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 2), (1, 3)])
def test_up_conversion_keeps_records_and_codec(magic: int, codec: int) -> None:
    made = upconverted(message_set(magic, codec))
    header = batch.parse_header(made)
    assert (header.magic, header.base_offset, header.compression) == (2, 0, codec)
    assert batch.records(made) == expected(magic)
    batch.validate_client_batch(memoryview(made), 0, header, bounds=batch.Bounds())
    assert batch.parse_header(upconverted(message_set(magic, codec), recoding=Recoding(4))).compression == 4


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_were_not_converted_are_refused_for_their_format(magic: int) -> None:
    view = memoryview(bytearray(message_set(magic, 0)))
    with pytest.raises(ApiError, match=f"magic {magic}") as refused:
        batch.validate_client_batch(view, 0, batch.parse_header(view), bounds=batch.Bounds())
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_headers_of_a_log_of_all_formats_are_walked() -> None:
    data = message_set(0, 0) + message_set(1, 1) + batch.build(RECORDS, base_offset=0)
    walked = [h for _, h in batch.iter_headers(memoryview(data))]
    assert [h.magic for h in walked] == [0] * 40 + [1, 2]
    assert walked[40].count == -1
    assert walked[40].last_offset == 39
    assert {h.max_timestamp for h in walked[:40]} == {-1}
    assert sum(h.length for h in walked) == len(data)


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (1, 0), (1, 1)])
def test_changed_bytes_are_found(magic: int, codec: int) -> None:
    data = message_set(magic, codec)
    for at in (12, 15, *range(17, batch.parse_header(data).length)):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(ApiError) as caught:
            upconverted(broken)
        assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_a_set_cut_short_loses_its_last_message_only() -> None:
    data = message_set(1, 0)
    assert legacy.legacy_records(data[:-1]) == RECORDS[:-1]
    with pytest.raises(ApiError) as caught:
        upconverted(data[:20])
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_v2_batch_is_no_message_set() -> None:
    with pytest.raises(CorruptData):
        legacy.legacy_records(batch.build(RECORDS))
