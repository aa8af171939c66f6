"""Batches compressed anew for compression.type: the same records, everything else of the batch kept."""

import itertools

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.validation import validate
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import Bounds, Record
from logyard.broker.records.compression import Recoding, recoding

SIZE_MAX, NOW = 10_000, 2000
RECORDS = [Record(n, 1000 + n, b"k%d" % n, b"value " * 40, (("h", b"x"),)) for n in range(5)]
CODECS = range(5)


def recode(data: memoryview, wanted: Recoding, size_max: int) -> memoryview:
    return validate(data, Bounds(recoding=wanted, max_message_bytes=size_max), NOW)


def made(codec: int = compression.NONE, **fields: int) -> bytearray:
    return batch.build(RECORDS, base_offset=0, compression=codec, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CODECS, CODECS)))
def test_from_every_codec_to_every_other(before: int, after: int) -> None:
    sent = memoryview(made(before, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True))
    got = recode(sent, Recoding(after), SIZE_MAX)
    assert (got is sent) is (before == after)
    old, new = batch.parse_header(sent), batch.parse_header(got)
    assert new.length == len(got)
    assert new.compression == after
    assert new._replace(length=old.length, crc=old.crc, attributes=old.attributes) == old
    assert new.is_transactional
    assert batch.crc_matches(got, 0, new)
    assert batch.records(got) == RECORDS


def test_several_batches_and_those_that_stay() -> None:
    got = recode(memoryview(made() + made(compression.GZIP)), Recoding(compression.GZIP), SIZE_MAX)
    headers = [header for _, header in batch.iter_headers(got)]
    assert [h.compression for h in headers] == [1, 1]


def test_what_is_opened_is_checked() -> None:
    wanted = Recoding(compression.ZSTD)

    def refusal(data: bytearray, size_max: int = SIZE_MAX) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            recode(memoryview(data), wanted, size_max)
        return caught.value.code

    assert refusal(made(), size_max=100) is ErrorCode.MESSAGE_TOO_LARGE, "what the producer sent counts as well"
    flipped = made()
    flipped[-1] ^= 1
    assert refusal(flipped) is ErrorCode.CORRUPT_MESSAGE


def test_offsets_with_gaps_and_another_base_time_are_made_anew() -> None:
    """As in Kafka, which writes every record again."""
    gap = batch.build([r._replace(offset=2 * r.offset) for r in RECORDS], base_offset=0, last_offset=4)
    assert batch.records(recode(memoryview(gap), Recoding(compression.LZ4), SIZE_MAX)) == RECORDS
    early = memoryview(batch.build(RECORDS, delete_horizon_ms=990))
    assert recode(early, Recoding(compression.NONE), SIZE_MAX) is early
    header = batch.parse_header(recode(early, Recoding(compression.ZSTD), SIZE_MAX))
    assert (header.base_timestamp, header.max_timestamp, header.attributes) == (1000, 1004, compression.ZSTD)


def test_what_a_topic_asks_for() -> None:
    levels = {"gzip": 3, "zstd": 7}
    assert recoding("producer", levels) is None
    assert recoding("uncompressed", levels) == Recoding(compression.NONE)
    assert [recoding(name, levels) for name in ("gzip", "lz4", "zstd")] == [
        Recoding(compression.GZIP, 3),
        Recoding(compression.LZ4),
        Recoding(compression.ZSTD, 7),
    ]
