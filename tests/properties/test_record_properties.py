"""Any records survive encoding and decoding; any bytes are a batch or CorruptData."""

from contextlib import suppress
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.records import batch, compression, legacy, reader
from logyard.broker.records.batch import Record
from logyard.broker.records.varint import read_varint, write_varint

blobs = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=9), blobs), max_size=3).map(tuple)
records = st.lists(
    st.tuples(st.integers(1, 2**20), st.integers(0, 2**45), blobs, blobs, headers), min_size=1, max_size=20
)
codecs = st.integers(0, 4)


def numbered(
    drawn: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
) -> list[Record]:
    """Records with rising offsets that leave gaps, and timestamps in any order."""
    offset, made = 0, []
    for gap, timestamp, key, value, with_headers in drawn:
        made.append(Record(offset, timestamp, key, value, with_headers))
        offset += gap
    return made


@given(records, codecs, st.integers(0, 2**50))
def test_records_come_out_as_they_went_in(drawn: list, codec: int, base: int) -> None:  # type: ignore[type-arg]
    made = numbered(drawn)
    buf = memoryview(batch.build(made, compression=codec))
    batch.stamp(buf, 0, base, 7)
    header = batch.parse_header(buf)
    assert batch.verify_crc(buf, 0, header)
    expected = [r._replace(offset=base + r.offset) for r in made]
    assert batch.records(buf) == expected
    theirs = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in AioBatch(bytes(buf))]
    assert theirs == [r[:5] for r in expected]
    assert header.last_offset == expected[-1].offset
    assert header.max_timestamp == max(r.timestamp for r in made)


@given(st.binary(max_size=150), st.booleans())
def test_any_bytes_are_a_batch_or_refused(data: bytes, with_magic: bool) -> None:
    if with_magic and len(data) > 16:
        data = data[:16] + b"\2" + data[17:]
    for act in (batch.records, legacy.legacy_records, lambda d: list(batch.iter_headers(d))):
        with suppress(CorruptData, ApiError):
            act(data)


@given(records, codecs, st.integers(61, 400), st.integers(0, 255))
def test_damaged_records_are_read_or_refused(drawn: list, codec: int, at: int, byte: int) -> None:  # type: ignore[type-arg]
    buf = batch.build(numbered(drawn), compression=codec)
    buf[min(at, len(buf) - 1)] = byte
    with suppress(CorruptData):
        batch.records(buf)


@given(records, st.integers(57, 400), st.integers(0, 255))
def test_a_batch_read_at_once_is_read_as_piece_by_piece(drawn: list, at: int, byte: int) -> None:  # type: ignore[type-arg]
    """`outlines` never reads at once: both find the same records, or refuse the same batches."""
    buf = batch.build(numbered(drawn))
    buf[min(at, len(buf) - 1)] = byte
    view = memoryview(buf)
    header = batch.parse_header(view)
    assert outcome(reader.whole_records, view, header) == outcome(reader.outlines, view, header)


def outcome(read: Any, view: memoryview, header: batch.BatchHeader) -> Any:
    try:
        return [(r.offset, r.timestamp, r.key is None, r.value is None) for r in read(view, header)]
    except CorruptData:
        return CorruptData


@given(codecs, st.binary(max_size=300))
def test_any_bytes_decompress_or_are_refused(codec: int, data: bytes) -> None:
    with suppress(CorruptData):
        assert len(compression.decompress(codec, data, 10_000)) <= 10_000


@given(codecs, st.binary(max_size=100_000))
def test_what_is_compressed_decompresses(codec: int, data: bytes) -> None:
    assert compression.decompress(codec, compression.compress(codec, data)) == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_come_out_as_they_went_in(value: int) -> None:
    raw = write_varint(value)
    assert read_varint(raw, 0) == (value, len(raw))
