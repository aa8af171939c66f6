"""The compiled look at a batch's records finds what C and Python find, and what it does not accept they decide."""

import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.compiled import record_look
from logyard.broker.errors import ApiError, RecordErrors
from logyard.broker.log.validation import validate, validate_at_once
from logyard.broker.records import batch, compiled_look, compression, pauses, record_validation
from logyard.broker.records.batch import Bounds, Record
from logyard.broker.records.crc import crc32c
from logyard.broker.records.decompression_stream import PIECE_BYTES
from tests.support.lengths import examples
from tests.support.odd_batches import requests

NOW = 1_700_000_000_000
CODECS = range(5)
LARGE = 2 << 20
BOUNDS = (
    Bounds(max_message_bytes=LARGE),
    Bounds(max_message_bytes=LARGE, keys_wanted=True, validate_records=True),
    Bounds(max_message_bytes=LARGE, timestamp_before_max_ms=50, timestamp_after_max_ms=2**63 - 1),
    Bounds(max_message_bytes=LARGE, log_append_time=True),
)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop is loaded, and looks at small batches too."""
    record_look.compile_and_keep()
    monkeypatch.setattr(record_validation, "COMPILED_RECORDS", 1)
    compiled_look.use(record_look.Look)
    yield
    compiled_look.use(None)


def outcome(sent: bytes | bytearray, bounds: Bounds, *, piecewise: bool = False) -> tuple[Any, ...]:
    """What becomes of a batch: its bytes, or the refusal in all its words."""
    try:
        return ("kept", bytes(validate(memoryview(bytearray(sent)), bounds, NOW, piecewise=piecewise)))
    except RecordErrors as refused:
        return ("refused", refused.code, refused.message, refused.records)
    except ApiError as refused:
        return ("refused", refused.code, refused.message)


def same_without(sent: bytes | bytearray, bounds: Bounds, *, piecewise: bool = False) -> tuple[Any, ...]:
    """The outcome, which C and Python have too."""
    compiled_look.use(record_look.Look)
    found = outcome(sent, bounds, piecewise=piecewise)
    compiled_look.use(None)
    try:
        assert outcome(sent, bounds, piecewise=piecewise) == found
    finally:
        compiled_look.use(record_look.Look)
    return found


def signed(sent: bytearray) -> bytearray:
    """The batch with the length and checksum of its bytes."""
    struct.pack_into(">i", sent, 8, len(sent) - 12)
    struct.pack_into(">I", sent, 17, crc32c(memoryview(sent)[21:]))
    return sent


def looked_at(sent: bytearray) -> compiled_look.Found | None:
    return compiled_look.look(memoryview(sent), batch.parse_header(sent))


times = st.one_of(st.integers(NOW - 200, NOW + 200), st.just(-1), st.integers(-(2**63), 2**63 - 1))
some_bytes = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 300).map(bytes))
headers = st.lists(st.tuples(st.sampled_from(["", "h", "ü", "\udcff"]), some_bytes), max_size=3).map(tuple)


@given(
    st.lists(st.tuples(times, some_bytes, some_bytes, headers), min_size=1, max_size=12),
    st.sampled_from(CODECS),
    st.sampled_from(BOUNDS),
    st.booleans(),
)
@settings(max_examples=examples(600), deadline=None)
def test_it_finds_what_c_and_python_find(
    fields: list[tuple[int, Any, Any, Any]], codec: int, bounds: Bounds, piecewise: bool
) -> None:
    made = batch.build([Record(n, *each) for n, each in enumerate(fields)], compression=codec)
    same_without(made, bounds, piecewise=piecewise)


@given(st.randoms(use_true_random=False), st.sampled_from(CODECS), st.sampled_from(BOUNDS))
@settings(max_examples=examples(900), deadline=None)
def test_what_is_damaged_has_the_same_outcome(chance: random.Random, codec: int, bounds: Bounds) -> None:
    """Records, header and compressed bytes; the checksum is made right again, so that the look decides."""
    some = [Record(n, NOW + n, b"k" * (n % 3) or None, bytes(n * 7), (("h", b"v"),) * (n % 2)) for n in range(20)]
    body = bytearray(batch.build(some)[batch.HEADER_SIZE :])
    for _ in range(chance.randrange(4)):
        body[chance.randrange(len(body))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
    if chance.random() < 0.3:
        del body[chance.randrange(1, len(body)) :]
    sent = bytearray(batch.build(some, compression=codec)[: batch.HEADER_SIZE]) + compression.compress(codec, body)
    if chance.random() < 0.3:
        sent[chance.randrange(batch.HEADER_SIZE, len(sent))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        struct.pack_into(">i", sent, 57, chance.choice((-1, 0, 1, 19, 21, 2**31 - 1)))
    same_without(signed(sent), bounds, piecewise=chance.random() < 0.5)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_odd_batches_have_the_same_outcome(bounds: Bounds) -> None:
    kept = sum(same_without(odd.records, bounds)[0] == "kept" for odd in requests(3, 700, {"plain": {}}, NOW))
    assert kept > 20


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_accepted(codec: int) -> None:
    """By the loop itself: the outcome would be the same if Python had read it."""
    records = [Record(n, NOW + n % 7, None, os.urandom(50) + bytes(50), (("h", None),)) for n in range(20_000)]
    for made in (batch.build(records[:7000], compression=codec), batch.build(records, compression=codec)):
        header = batch.parse_header(made)
        assert looked_at(made) == (NOW + 6, NOW, NOW, False, True, True), header.length
        assert same_without(made, Bounds(max_message_bytes=16 << 20), piecewise=True)[0] == "kept"


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_record_larger_than_a_window_is_left_to_python(codec: int) -> None:
    made = batch.build(
        [Record(0, NOW, b"k", os.urandom(5 * PIECE_BYTES)), Record(1, NOW, b"k", b"v")], compression=codec
    )
    assert looked_at(made) is None
    assert same_without(made, BOUNDS[0], piecewise=True)[0] == "kept"


def test_pieces_of_a_byte_make_up_a_record() -> None:
    """A client writes blocks of any size."""
    record = batch.build([Record(0, NOW, b"k", os.urandom(50_000))])
    blocks = [compression.xerial_block(memoryview(record)[n : n + 1]) for n in range(batch.HEADER_SIZE, len(record))]
    sent = bytearray(record[: batch.HEADER_SIZE]) + compression.XERIAL_HEAD + b"".join(blocks)
    sent[22] |= compression.SNAPPY
    assert looked_at(signed(sent)) == (NOW, NOW, NOW, False, True, False)


def test_what_it_accepts_is_validated_on_the_event_loop() -> None:
    def done(sent: bytearray, **bounds: Any) -> bool:
        before = bytes(sent)
        at_once = validate_at_once(memoryview(sent), Bounds(max_message_bytes=LARGE, **bounds), lambda: NOW)
        if not at_once:
            assert bytes(sent) == before
        return at_once

    good = [Record(n, NOW, b"k", b"v" * 50) for n in range(3000)]
    assert done(batch.build(good))
    assert done(batch.build(good), keys_wanted=True, timestamp_before_max_ms=5)
    assert not done(batch.build([*good[:-1], good[-1]._replace(key=None)]), keys_wanted=True), "Python names it"
    assert not done(batch.build(good), timestamp_before_max_ms=-1), "Python names them"
    assert not done(batch.build(good), recoding=compression.Recoding(compression.ZSTD))
    assert not done(batch.build(good) + batch.build(good)), "two batches"
    assert not done(batch.build(good)[:-1])
    damaged = batch.build(good)
    damaged[-1] = 5
    assert not done(damaged), "the checksum is wrong"
    assert not done(signed(damaged)), "Python decides"
    assert not done(batch.build([Record(n, NOW, b"k", bytes(90)) for n in range(12_000)])), "more than a megabyte"


@pytest.mark.parametrize("codec", range(1, 5))
def test_little_compressed_batches_are_validated_there_too(codec: int) -> None:
    def done(count: int, share: int = 50) -> bool:
        records = [Record(n, NOW, b"k", os.urandom(share) + bytes(100 - share)) for n in range(count)]
        sent = batch.build(records, compression=codec)
        return validate_at_once(memoryview(sent), Bounds(max_message_bytes=LARGE), lambda: NOW)

    assert done(1)
    assert done(200)
    assert done(4000) == (codec != compression.GZIP), "gzip is slow"
    assert not done(20_000), "two megabytes, decompressed"
    assert done(500, 0), "64 KB, however few they were"
    assert not done(4000, 0), "a bomb"
    spoilt = batch.build([Record(0, NOW, b"k", bytes(100))], compression=codec)
    del spoilt[-5:]
    assert not validate_at_once(memoryview(signed(spoilt)), BOUNDS[0], lambda: NOW)


def test_a_wrong_largest_time_is_mended_on_the_event_loop_too() -> None:
    sent = batch.build([Record(n, NOW + n, None, bytes(100)) for n in range(3000)])
    right = bytes(sent)
    struct.pack_into(">q", sent, 35, 5)
    assert validate_at_once(memoryview(signed(sent)), BOUNDS[0], lambda: NOW)
    assert bytes(sent) == right


def test_four_megabytes_in_one_request_are_for_a_thread() -> None:
    """Of four partitions, each small enough by itself."""
    large = memoryview(batch.build([Record(0, NOW, None, bytes(1_000_000))]))
    assert 2 * record_validation.effort(large) <= record_validation.EFFORT_MAX < 3 * record_validation.effort(large)


def test_work_without_the_interpreter_is_not_rested_from() -> None:
    rests: list[int] = []
    aparts: list[int] = []
    pauses.use(lambda: rests.append(1), lambda: aparts.append(1))
    try:
        records = [Record(n, NOW, None, os.urandom(500) + bytes(500)) for n in range(900)]
        for codec in (compression.LZ4, compression.ZSTD):
            assert looked_at(batch.build(records, compression=codec))
        assert (len(rests), len(aparts) > 1) == (0, True)
        many = [Record(n, NOW, None, os.urandom(500) + bytes(500)) for n in range(3000)]
        assert looked_at(batch.build(many, compression=compression.ZSTD))
        assert rests, "more than a megabyte: hostile batches take turns as before"
    finally:
        pauses.use(pauses.go_on)


KEPT = """
from logyard.broker.compiled import record_look
print(record_look.is_kept(), record_look.look.made.stats.cache_misses or 0)
"""


def test_a_broker_never_compiles_it(tmp_path: Path) -> None:
    """That would hold the interpreter for seconds."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run("-c", KEPT).startswith("False")
    assert run("-m", "logyard.broker.compiled.prepared") == ""
    assert run("-c", KEPT).startswith("True")
