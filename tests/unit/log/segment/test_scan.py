"""Scanning for positions: the searches give what a walk over all batches gives, and say where the bytes are wrong."""

import struct

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.log.segment import scan
from logyard.broker.records import batch

COUNTS = [1, 3, 1, 40, 2, 1, 1, 200]


def log_bytes() -> bytes:
    """Batches of different sizes, with a gap in the offsets before the fifth."""
    made, offset = b"", 100
    for number, count in enumerate(COUNTS):
        offset += 50 if number == 4 else 0
        one = batch.build([batch.Record(n, 1_700_000_000_000, None, bytes(30)) for n in range(count)])
        batch.stamp(memoryview(one), 0, offset, 1)
        made += bytes(one)
        offset += count
    return made


DATA = log_bytes()


def read(data: bytes) -> scan.Read:
    return lambda size, position: data[position : position + size]


def reached(data: bytes, offset: int) -> scan.Place | None:
    """The first batch that reaches an offset; what was read with it begins with its bytes."""
    found = scan.first_reaching(read(data), 0, len(data), offset)
    if found is None:
        return None
    place, came_along = found
    assert data[place.position :].startswith(came_along[: place.size])
    return place


PLACES = list(scan.places(read(DATA), 0, len(DATA)))


def test_places_are_all_batches() -> None:
    assert [place.last_offset - place.base_offset + 1 for place in PLACES] == COUNTS
    assert PLACES[-1].position + PLACES[-1].size == len(DATA)


def test_the_size_of_one_batch() -> None:
    for place in PLACES:
        assert scan.size_at(read(DATA), place.position, len(DATA)) == place.size
        with pytest.raises(scan.CutShort):
            scan.size_at(read(DATA), place.position, place.position + place.size - 1)


def test_the_first_batch_that_reaches_an_offset() -> None:
    for offset in range(95, PLACES[-1].last_offset + 3):
        wanted = next((place for place in PLACES if place.last_offset >= offset), None)
        assert reached(DATA, offset) == wanted


def test_bytes_that_end_inside_a_batch() -> None:
    last = PLACES[-1]
    for end in (last.position + 1, last.position + 26, last.position + 27, len(DATA) - 1):
        cut = DATA[:end]
        with pytest.raises(scan.CutShort):
            scan.first_reaching(read(cut), 0, end, last.last_offset)
        with pytest.raises(scan.CutShort):
            list(scan.places(read(cut), 0, end))


@pytest.mark.parametrize(
    ("at", "value"), [(8, b"\xff\xff\xff\xff"), (8, b"\0\0\0\x0e"), (16, b"\3"), (23, b"\xff\xff\xff\xff")]
)
def test_bytes_that_are_no_batch(at: int, value: bytes) -> None:
    wrong = bytearray(DATA)
    at += PLACES[2].position
    wrong[at : at + len(value)] = value
    for search in (
        lambda: scan.first_reaching(read(bytes(wrong)), 0, len(DATA), 1 << 40),
        lambda: list(scan.places(read(bytes(wrong)), 0, len(DATA))),
        lambda: scan.size_at(read(bytes(wrong)), PLACES[2].position, len(DATA)),
    ):
        with pytest.raises(CorruptData):
            search()


def test_old_messages_have_one_offset_and_may_be_empty() -> None:
    """Without key and value a message of format v0 has 26 bytes."""
    old = struct.pack(">qiIbbii", 7, 14, 0, 0, 0, -1, -1) + struct.pack(">qiIbbii", 8, 14, 0, 0, 0, -1, -1)
    assert list(scan.places(read(old), 0, len(old))) == [scan.Place(0, 26, 7, 7), scan.Place(26, 26, 8, 8)]
    assert reached(old, 8) == scan.Place(26, 26, 8, 8)
    with pytest.raises(scan.CutShort):
        scan.first_reaching(read(old[:51]), 0, 51, 8)


def test_what_is_not_in_memory() -> None:
    with pytest.raises(scan.NotCached):
        scan.first_reaching(lambda size, position: None, 0, 100, 0)


def alike_bytes(bases: list[int], sizes: dict[int, int], counts: dict[int, int]) -> bytes:
    """Batches with these base offsets, of one record and one size each but for those named by their number."""
    made = b""
    for number, base in enumerate(bases):
        records = [batch.Record(n, 1, None, bytes(sizes.get(number, 30))) for n in range(counts.get(number, 1))]
        one = batch.build(records)
        batch.stamp(memoryview(one), 0, base, 1)
        made += bytes(one)
    return made


@pytest.mark.parametrize(
    "data",
    [
        alike_bytes(list(range(100, 160)), {}, {}),
        alike_bytes(list(range(100, 160)), {7: 31, 20: 29, 40: 3000}, {}),
        alike_bytes([*range(100, 110), *range(112, 130), *range(200, 230)], {}, {}),
        alike_bytes([*range(100, 108), *range(109, 140)], {8: 14}, {7: 2}),
        alike_bytes([*range(100, 220, 2)], {}, dict.fromkeys(range(60), 2)),
    ],
    ids=["all alike", "some of other sizes", "gaps", "one with two records", "of two records each"],
)
def test_batches_laid_out_alike_are_passed_as_one_by_one(data: bytes) -> None:
    every = list(scan.places(read(data), 0, len(data)))
    for start in (0, 3):
        for offset in range(95, every[-1].last_offset + 3):
            wanted = next((place for place in every[start:] if place.last_offset >= offset), None)
            found = scan.first_reaching(read(data), every[start].position, len(data), offset)
            assert (found and found[0]) == wanted


@pytest.mark.parametrize(("at", "value"), [(8, b"\0\0\0\x0e"), (16, b"\3"), (23, b"\xff\xff\xff\xff")])
def test_what_is_no_batch_is_found_among_batches_laid_out_alike(at: int, value: bytes) -> None:
    wrong = bytearray(alike_bytes(list(range(100, 130)), {}, {}))
    at += 5 * (len(wrong) // 30)
    wrong[at : at + len(value)] = value
    with pytest.raises(CorruptData):
        scan.first_reaching(read(bytes(wrong)), 0, len(wrong), 120)
