"""Batches compressed anew for compression.type: the same records, everything else of the batch kept."""

import itertools

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import Record
from logyard.broker.records.compression import Recoding, recoding
from logyard.broker.records.recode import recode

SIZE_MAX = 10_000
RECORDS = [Record(n, 1000 + n, b"k%d" % n, b"value " * 40, (("h", b"x"),)) for n in range(5)]
CODECS = range(5)


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
    marker = batch.build_control(batch.COMMIT, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp=5)
    sent = memoryview(made() + marker + made(compression.GZIP))
    got = recode(sent, Recoding(compression.GZIP), SIZE_MAX)
    headers = [header for _, header in batch.iter_headers(got)]
    assert [(h.compression, h.is_control) for h in headers] == [(1, False), (0, True), (1, False)]


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
    gap = [r._replace(offset=2 * r.offset) for r in RECORDS]
    assert refusal(batch.build(gap, base_offset=0)) is ErrorCode.INVALID_RECORD


def test_what_a_topic_asks_for() -> None:
    levels = {"gzip": 3, "zstd": 7}
    assert recoding("producer", levels) is None
    assert recoding("uncompressed", levels) == Recoding(compression.NONE)
    assert [recoding(name, levels) for name in ("gzip", "lz4", "zstd")] == [
        Recoding(compression.GZIP, 3),
        Recoding(compression.LZ4),
        Recoding(compression.ZSTD, 7),
    ]
