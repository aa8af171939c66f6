"""The look whether records have few headers, which skips what is laid out alike, against one field by field."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData
from logyard.broker.records import batch, few_headers
from logyard.broker.records.batch import HEADER_SIZE, Record
from logyard.broker.records.varint import read_varint
from tests.support.lengths import examples

NOW = 1_700_000_000_000
LIMIT = 5

sizes = st.sampled_from([0, 1, 60, 61, 62, 63, 64, 65, 120, 130, 8000, 8180, 8192, 9000, 20_000])
keys = st.sampled_from([None, b"", b"k", b"k" * 10, b"k" * 63, b"k" * 64])
values = st.none() | st.builds(bytes, sizes)
headers = st.sampled_from([(), (), (), (("a", b"1"),), (("a", b""),) * 3])
records = st.builds(lambda at, key, value, some: (at, key, value, some), st.integers(0, 20_000), keys, values, headers)


def field_by_field(data: memoryview, count: int, end: int) -> bool:
    found, pos = 0, HEADER_SIZE
    try:
        for _ in range(count):
            if pos >= end:
                break
            size, at = read_varint(data, pos)
            pos = at + size
            _, at = read_varint(data, at + 1)
            _, at = read_varint(data, at)
            for _ in range(2):
                length, at = read_varint(data, at)
                at += max(length, 0)
            more, _ = read_varint(data, at)
            found += more
            if size <= 0 or more < 0 or found > LIMIT:
                return False
    except (IndexError, CorruptData):
        return False
    return True


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(records, min_size=1, max_size=6), st.integers(1, 12), st.data())
def test_it_is_what_a_look_at_every_field_finds(
    some: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]], times: int, data: st.DataObject
) -> None:
    made = [Record(n, NOW + at, key, value, more) for n, (at, key, value, more) in enumerate(some * times)]
    sent = batch.build(made)
    for _ in range(4):
        spoilt = bytearray(sent)
        at = data.draw(st.integers(HEADER_SIZE, min(len(sent) - 1, HEADER_SIZE + 200)))
        spoilt[at] = data.draw(st.integers(0, 255))
        spoilt = spoilt[: data.draw(st.sampled_from([len(sent), len(sent) - 1, at, at + 9]))]
        for each in (bytearray(sent), spoilt):
            view, end = memoryview(each), len(each)
            count = data.draw(st.sampled_from([len(made), len(made) - 1, len(made) + 1, 0, -1]))
            assert few_headers.has_few(view, count, end, LIMIT) is field_by_field(view, count, end)


def test_records_that_the_header_does_not_count_are_not_looked_at() -> None:
    made = [Record(0, NOW, None, bytes(100_000))]
    sent = memoryview(bytes(batch.build(made)) + b"\xff" * 100)
    assert few_headers.has_few(sent, 1, len(sent), LIMIT), "refused as soon as they are read"
    assert not few_headers.has_few(sent, 2, len(sent), LIMIT), "the second has no end"
