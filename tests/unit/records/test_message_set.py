"""Messages of magic 0 and 1 as they are written, and what a wrapper's codec has that is its own."""

from typing import Any

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.records import compression, header, legacy, message_set
from logyard.broker.records.decode import Record
from logyard.broker.records.xxhash32 import xxhash32

NOW = 1_500_000_000_000
RECORDS = [Record(n, NOW + n % 3, b"k%d" % n, None if n % 4 == 0 else b"value" * n) for n in (7, 8, 12, 40)]


@pytest.mark.parametrize(
    ("data", "digest"),
    [(b"", 0x02CC5D05), (b"abc", 0x32D153FF), (b"Nobody inspects the spammish repetition", 0xE2293B2F)],
)
def test_xxhash_is_that_of_its_published_values(data: bytes, digest: int) -> None:
    assert xxhash32(data) == digest


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_wrapper_opens_with_its_offsets(magic: int, codec: int) -> None:
    data = memoryview(message_set.wrapper(RECORDS, codec, magic, 0))
    whole, found = legacy.measured(header.parse_header(data), data), legacy.legacy_records(data)
    assert found == [r if magic else r._replace(timestamp=-1) for r in RECORDS]
    assert (whole.base_offset, whole.last_offset, whole.count) == (7, 40, 4)
    assert whole.max_timestamp == (NOW + 2 if magic else -1)


def test_a_message_by_itself_is_a_batch_of_one() -> None:
    data = memoryview(message_set.message(RECORDS[1], 8, 1, 0))
    whole, found = legacy.measured(header.parse_header(data), data), legacy.legacy_records(data)
    assert (whole.base_offset, whole.last_offset, whole.count, found) == (8, 8, 1, [RECORDS[1]])


def test_lz4_of_magic_0_has_the_checksum_of_kafka_0_8_and_any_is_read() -> None:
    right, broken = (message_set.pack(compression.LZ4, b"data" * 50, magic) for magic in (1, 0))
    assert right == compression.compress(compression.LZ4, b"data" * 50)
    assert (right[:6], right[7:]) == (broken[:6], broken[7:])
    # The descriptor 0x60 0x40 hashed alone, and together with the frame's magic number.
    assert (right[6], broken[6]) == (0x82, xxhash32(b"\x04\x22\x4d\x18\x60\x40") >> 8 & 0xFF)
    assert right[6] != broken[6]
    for packed in (right, broken):
        assert b"".join(message_set.unpacked(compression.LZ4, packed, 0)) == b"data" * 50
    with pytest.raises(CorruptData):
        list(message_set.unpacked(compression.LZ4, broken, 1))


@pytest.mark.parametrize("data", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40\x00", b"no frame at all"])
def test_an_lz4_frame_cut_short_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        list(message_set.unpacked(compression.LZ4, data, 0))


def wrapped(magic: int, offsets: list[int], own: int, **fields: Any) -> memoryview:
    """A wrapper with these offsets as they stand inside."""
    inner = b"".join(message_set.message(Record(0, NOW, b"k", b"v"), o, magic, 0) for o in offsets)
    outer = Record(own, NOW, None, compression.compress(1, inner))._replace(**fields)
    return memoryview(message_set.message(outer, own, magic, 1))


NASTY = {
    "nothing in it": wrapped(1, [], 4),
    "no value": memoryview(message_set.message(Record(4, NOW, None, None), 4, 1, 1)),
    "more offsets than it has room for": wrapped(1, [0, 1, 9], 4),
    "offsets that stand still": wrapped(1, [0, 1, 1], 9),
    "offsets that fall": wrapped(0, [5, 4, 9], 9),
    "absolute offsets above its own": wrapped(0, [5, 9], 8),
    "another codec": memoryview(message_set.message(Record(4, NOW, None, b"x"), 4, 1, 4)),
    "not compressed at all": wrapped(1, [0], 4, value=b"plain"),
    "a wrapper in a wrapper": wrapped(1, [0], 4, value=compression.compress(1, bytes(wrapped(1, [0], 0)))),
    "another magic inside": wrapped(1, [0], 4, value=compression.compress(1, bytes(wrapped(0, [0], 0)))),
}


@pytest.mark.parametrize("name", NASTY)
def test_what_no_broker_wrote_is_refused(name: str) -> None:
    data = NASTY[name]
    with pytest.raises(CorruptData):
        legacy.measured(header.parse_header(data), data)


def test_the_offset_0_that_some_producers_gave_a_wrapper_is_taken_as_it_was_meant() -> None:
    assert [r.offset for r in legacy.legacy_records(wrapped(1, [0, 1, 2], 0))] == [0, 1, 2]


def test_log_append_time_is_the_wrappers() -> None:
    data = memoryview(message_set.wrapper(RECORDS, 1, 1, header.LOG_APPEND_TIME_BIT, timestamp=NOW + 99))
    assert {r.timestamp for r in legacy.legacy_records(data)} == {NOW + 99}


def test_bits_that_the_old_formats_do_not_have_are_no_flags() -> None:
    for magic in (0, 1):
        head = header.parse_header(message_set.message(RECORDS[0], 7, magic, 0x7C - 4))
        assert (head.is_control, head.is_transactional, head.compression) == (False, False, 0)
        assert (head.timestamp_type == 1) == (magic == 1)
