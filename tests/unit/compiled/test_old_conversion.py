"""The compiled conversion for old readers makes the bytes that Python makes, and leaves it what it cannot accept."""

import ctypes
import mmap
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.compiled import crc_kernel, old_conversion
from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.records import batch, downconvert, pauses, reader
from logyard.broker.records.batch import Record
from tests.support.lengths import examples
from tests.support.odd_batches import requests

NOW = 1_700_000_000_000
MAGICS = (0, 1)
KNOWN = crc_kernel.tables()


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    old_conversion.compile_and_keep()
    yield
    downconvert.use(None)


def outcome(buf: bytes, magic: int, first_offset: int, begin: Any) -> tuple[Any, ...]:
    """What becomes of batches: the messages, or the refusal in all its words."""
    downconvert.use(begin)
    try:
        return ("made", bytes(downconvert.downconvert(memoryview(buf), magic, first_offset)))
    except ApiError as refused:
        return ("refused", refused.code, refused.message)
    except (CorruptData, struct.error) as refused:
        return ("refused", type(refused), str(refused))


def refuse(batch: memoryview) -> None:
    """What C does with a batch that it does not accept."""
    raise ValueError("not for C")


def same_without(buf: bytes, magic: int, first_offset: int = 0) -> tuple[Any, ...]:
    """The outcome without the loop, which is that with it too; what is made at once is the same.

    aiokafka's C code takes a record's attributes for a varint: where they are above 127, it may find other fields than
    there are, and Python alone finds the right ones.
    """
    found = outcome(buf, magic, first_offset, old_conversion.Conversion)
    at_once = downconvert.downconvert_at_once(memoryview(buf), magic)
    if outcome(buf, magic, first_offset, None) != found:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(reader, "DefaultRecordBatch", refuse)
            assert outcome(buf, magic, first_offset, None) == found
    if at_once is not None and not first_offset:
        assert ("made", bytes(at_once)) == found
    return found


def at_once(buf: bytes | bytearray, magic: int = 1) -> bytes | None:
    """What the loop makes alone."""
    downconvert.use(old_conversion.Conversion)
    made = downconvert.downconvert_at_once(memoryview(buf), magic)
    return None if made is None else bytes(made)


def before_a_wall(size: int, content: bytes = b"") -> np.ndarray[Any, Any]:
    """Memory of so many bytes (uint8) behind which nothing may be read or written: the process would end."""
    pages = -(-size // mmap.PAGESIZE) + 1
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    end = (pages - 1) * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.mprotect(ctypes.c_void_p(whole.ctypes.data + end), mmap.PAGESIZE, 0)
    part = whole[end - size : end]
    part[: len(content)] = np.frombuffer(content, np.uint8)
    return part


times = st.one_of(st.integers(NOW - 200, NOW + 200), st.just(-1), st.integers(-(2**63), 2**63 - 1))
some_bytes = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 300).map(bytes))
headers = st.lists(st.tuples(st.sampled_from(["", "h", "ü", "\udcff"]), some_bytes), max_size=3).map(tuple)
fields = st.lists(st.tuples(st.integers(1, 300), times, some_bytes, some_bytes, headers), min_size=1, max_size=8)
codecs = st.sampled_from((0, 0, 0, 0, 1, 2, 3))


@st.composite
def logs(draw: Any) -> bytes:
    """Batches as a log has them: new and old ones, packed, markers, with offsets that have gaps, perhaps cut short."""
    made, offset = bytearray(), draw(st.sampled_from((0, 5, 2**40)))
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("v2", "v2", "v2", "marker", "v0", "v1", "empty")))
        if kind == "marker":
            fixed = {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 1, "timestamp": NOW}
            made += batch.build_control(batch.COMMIT, base_offset=offset, **fixed)
            offset += 1
            continue
        records = []
        for gap, *each in draw(fields):
            offset += gap
            records.append(Record(offset, *each))
        stamped = draw(st.sampled_from((None, None, NOW + 77, -1)))
        one = batch.build(records, compression=draw(codecs), log_append_time_ms=stamped)
        if kind == "empty":  # as a compaction keeps it
            del one[batch.HEADER_SIZE :]
            struct.pack_into(">i", one, 8, len(one) - 12)
            struct.pack_into(">i", one, 57, 0)
        if kind in ("v0", "v1"):
            downconvert.use(None)
            one = bytearray(downconvert.downconvert(memoryview(one), int(kind[1])))
        made += one
    return bytes(made[: draw(st.sampled_from((len(made), len(made), len(made) - 1, len(made) // 2)))])


@given(logs(), st.sampled_from(MAGICS), st.sampled_from((0, 0, 400)))
@settings(max_examples=examples(900), deadline=None)
def test_the_bytes_are_pythons(log: bytes, magic: int, first_offset: int) -> None:
    same_without(log, magic, first_offset)


@pytest.mark.parametrize("magic", MAGICS)
def test_odd_batches_have_the_same_outcome(magic: int) -> None:
    made = sum(same_without(odd.records, magic)[0] == "made" for odd in requests(5, 900, {"plain": {}}, NOW))
    assert made > 100


PLAIN = [Record(7 + 2 * n, NOW - n, b"k" * (n % 3) or None, bytes(n * 5), (("h", b"v"),) * (n % 2)) for n in range(9)]


@pytest.mark.parametrize("magic", MAGICS)
def test_every_byte_that_is_wrong_has_the_same_outcome(magic: int) -> None:
    """In the second of three batches, with memory behind which nothing can be read."""
    one = bytes(batch.build(PLAIN))
    for at in range(len(one)):
        for value in (0, 1, one[at] ^ 0x80, 0x7F, 0x80, 0xFF):
            wrong = bytearray(one)
            wrong[at] = value
            log = one + bytes(wrong) + one
            same_without(log, magic)
            begun = old_conversion.Conversion(before_a_wall(len(log), log).data, magic, 0)
            assert begun.go_on(0, len(log)) >= len(one)


@given(st.randoms(use_true_random=False), st.sampled_from(MAGICS))
@settings(max_examples=examples(900), deadline=None)
def test_what_is_damaged_has_the_same_outcome(chance: random.Random, magic: int) -> None:
    log = bytearray(batch.build(PLAIN) * 3)
    for _ in range(chance.randrange(1, 5)):
        log[chance.randrange(len(log))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
    if chance.random() < 0.5:
        at, most = chance.choice(((8, 2 * len(log)), (57, 20)))
        struct.pack_into(">i", log, at, chance.choice((-1, 0, 2**31 - 1, chance.randrange(most))))
    same_without(bytes(log[: chance.choice((len(log), chance.randrange(len(log))))]), magic)


@pytest.mark.parametrize("count", [-1, 0, 8, 10, 2**31 - 1, 2**27, 613_566_757])
def test_a_count_that_lies_is_for_python(count: int) -> None:
    """Seven times the last is 3 more than 2**32."""
    log = batch.build(PLAIN)
    struct.pack_into(">i", log, 57, count)
    assert (at_once(log) is None) == (count > 0)
    assert same_without(bytes(log), 1)[0] == ("made" if count <= 0 else "refused")


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 49, 2**31 - 1])
def test_a_length_that_lies_is_for_python(length: int) -> None:
    log = batch.build(PLAIN) * 2
    struct.pack_into(">i", log, 8, length)
    same_without(bytes(log), 1)


def test_it_accepts_what_is_usual_and_nothing_that_is_packed_or_old() -> None:
    """By the loop itself: the outcome would be the same if Python had converted it."""
    usual = bytes(batch.build(PLAIN, log_append_time_ms=NOW)) * 3
    assert at_once(usual) == same_without(usual, 1)[1]
    assert at_once(usual + usual[:-1]) is not None, "what is cut short at the end is left out"
    marker = batch.build_control(batch.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    old = at_once(usual)
    assert old is not None
    for other in (marker, old, batch.build(PLAIN, compression=1), usual[:8] + bytes(60), b""):
        assert at_once(usual + bytes(other)) is None or not other
    assert at_once(b"") is None
    large = bytes(batch.build([Record(0, NOW, None, bytes(200_000))]))
    assert at_once(large) is not None
    assert at_once(large * 2) is None, "too long for the event loop"
    tiny = bytes(batch.build([Record(n, NOW, None, None) for n in range(9000)]))
    assert at_once(tiny) is not None
    assert at_once(tiny * 2) is None, f"{2 * len(tiny)} bytes become many more"


def test_large_numbers_are_for_python() -> None:
    """The offset would overflow; a record of more than 64 MiB cannot be held, and is refused."""
    late = batch.build(PLAIN)
    struct.pack_into(">q", late, 0, 2**63 - 1)
    assert at_once(late) is None
    struct.pack_into(">q", late, 0, -5)
    assert at_once(late) is None
    assert same_without(bytes(late), 1)[0] == "made"
    assert same_without(bytes(batch.build([Record(0, NOW, None, bytes((64 << 20) + 1))])), 1)[0] == "refused"
    assert same_without(bytes(batch.build([Record(0, NOW, None, bytes(40 << 20))])), 1)[0] == "made"


@pytest.mark.parametrize("magic", MAGICS)
def test_nothing_is_written_behind_a_small_room(magic: int) -> None:
    """However small it is, what is made is whole batches, and the first of them."""
    log = bytes(batch.build(PLAIN)) * 3
    whole = outcome(log, magic, 0, None)[1]
    data, ends = np.frombuffer(log, np.uint8), {0, len(whole) // 3, 2 * len(whole) // 3, len(whole)}
    for room in range(old_conversion.room_for(data) + 1):
        out = before_a_wall(room)
        pos, size = old_conversion.convert(data, 0, len(log), out, 0, magic, 0, KNOWN)
        assert size in ends
        assert pos * len(whole) == size * len(log)
        assert bytes(out[:size]) == whole[:size]
        assert not out[size:].any() or size < len(whole), "it may have begun a batch for which there is room"
    assert size == len(whole)


def test_fifty_megabytes_of_tiny_records_have_room() -> None:
    unit = bytes(batch.build([Record(n, NOW, None, None) for n in range(1000)]))
    of_one = outcome(unit, 1, 0, None)[1]
    times_ = 50_000_000 // len(unit)
    turns: list[int] = []
    pauses.use(pauses.go_on, lambda: turns.append(1))
    try:
        downconvert.use(old_conversion.Conversion)
        made = downconvert.downconvert(memoryview(unit * times_), 1)
    finally:
        pauses.use(pauses.go_on)
    assert len(made) == times_ * len(of_one)
    assert all(made[n : n + len(of_one)] == of_one for n in range(0, len(made), len(of_one)))
    assert 45 < len(turns) < 55, "one for each megabyte"


def test_headers_that_are_left_out_keep_no_memory() -> None:
    log = batch.build([Record(n, NOW, None, b"v", (("name", bytes(900)),)) for n in range(100)])
    downconvert.use(old_conversion.Conversion)
    assert isinstance(downconvert.downconvert(memoryview(log), 1), bytes)
    assert isinstance(downconvert.downconvert_at_once(memoryview(log), 1), bytes)
    assert same_without(bytes(log), 1)[0] == "made"


def test_checksums_are_zlibs() -> None:
    chance = random.Random(1)
    for size in (*range(200), 1000, 4097):
        content = chance.randbytes(size)
        data = before_a_wall(size, content)
        for begin in range(min(size, 9) + 1):
            found = int(crc_kernel.crc32(data, np.uint64(begin), np.uint64(size), KNOWN))
            assert found == zlib.crc32(content[begin:])
