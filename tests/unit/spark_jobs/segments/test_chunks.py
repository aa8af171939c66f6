import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from logyard.broker.compiled import chunks
from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.spark_jobs.segments import arrow
from logyard.spark_jobs.segments.files import LocalFile
from tests.support.batches import Batch, Rec, batch, marker
from tests.support.opened import open_trusted
from tests.support.steps import lines_run

CODECS = [0, 1, 2, 3, 4]


class Bytes:
    """A source in memory."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = np.frombuffer(data, np.uint8), len(data)

    def read(self, position: int, size: int) -> Any:
        return self._data[position : position + size].copy()


def foreign_log(rng: random.Random, codec: int) -> bytes:
    """Batches built by aiokafka: null and empty keys and values, headers, wild timestamps."""
    out = bytearray()
    offset = 0
    for number in range(30):
        builder = DefaultRecordBatchBuilder(
            2, codec, int(number % 5 == 0), 77 if number % 5 == 0 else -1, 1, 3, 1 << 20
        )
        count = rng.randrange(1, 12)
        for i in range(count):
            key = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(20))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(300))
            headers = [(f"h{j}é", rng.randbytes(3) if j else None) for j in range(rng.randrange(3))]
            builder.append(i, rng.randrange(0, 2**41), key, value, headers)
        made = bytearray(builder.build())
        made[0:8] = offset.to_bytes(8, "big")
        out += made
        offset += count
    return bytes(out)


def oracle(data: bytes) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        reader = DefaultRecordBatch(bytearray(data[at : at + size]))
        rows += [(r.offset, r.timestamp, r.key, r.value, [(h, v) for h, v in r.headers]) for r in reader]
        at += size
    return rows


def decoded(data: bytes, chunk_bytes: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for chunk in chunks.read_chunks(Bytes(data), chunk_bytes=chunk_bytes):
        assert isinstance(chunk, chunks.Chunk)
        opened = open_trusted(chunk, "memory")
        table = arrow.record_batch(opened, chunks.walk(opened))
        plain = table.set_column(1, "timestamp", table.column("timestamp").cast("int64")).to_pylist()
        rows += [
            (r["offset"], r["timestamp"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]])
            for r in plain
        ]
    return rows


@pytest.mark.parametrize("codec", CODECS)
def test_columns_equal_what_aiokafka_reads(codec: int) -> None:
    data = foreign_log(random.Random(codec), codec)
    assert decoded(data, 1 << 20) == oracle(data)
    assert decoded(data, 100) == oracle(data), "a chunk smaller than a batch grows to it"


def test_batch_columns() -> None:
    log = [
        batch([Rec(5, b"a", b"1"), Rec(7, b"b", None)], epoch=3, producer_id=9, producer_epoch=2, sequence=2**31 - 2),
        marker(8, 9, commit=True, producer_epoch=2),
        batch([Rec(9, None, b"x", 70), Rec(10, None, b"y", 70)], flags=0x08, base_timestamp=60, max_timestamp=70),
    ]
    (chunk,) = chunks.read_chunks(Bytes(b"".join(b.encode() for b in log)))
    assert isinstance(chunk, chunks.Chunk)
    opened = open_trusted(chunk, "m")
    rows = arrow.record_batch(opened, chunks.walk(opened)).to_pylist()
    assert [r["offset"] for r in rows] == [5, 7, 8, 9, 10]
    assert [r["sequence"] for r in rows] == [2**31 - 2, 0, -1, -1, -1], "sequences wrap"
    assert [r["leaderEpoch"] for r in rows] == [3, 3, 0, 0, 0]
    assert [r["isControl"] for r in rows] == [False, False, True, False, False]
    assert [r["isTransactional"] for r in rows] == [False, False, True, False, False]
    assert [r["timestampType"] for r in rows] == [0, 0, 0, 1, 1]
    assert [r["timestamp"].timestamp() * 1000 for r in rows[-2:]] == [70, 70]


def chunk_of(data: bytes) -> chunks.Chunk:
    (chunk,) = chunks.read_chunks(Bytes(data))
    assert isinstance(chunk, chunks.Chunk)
    return chunk


def test_every_flipped_byte_of_a_batch_is_found_or_harmless() -> None:
    """Offset and leader epoch stand outside the checksum (a broker stamps them); all else must be found."""
    good = batch([Rec(0, b"a", b"1"), Rec(1, b"b", b"2")]).encode()
    for at in [*range(8, 12), *range(16, len(good))]:
        for flip in (0x01, 0x80):
            data = bytearray(good)
            data[at] ^= flip
            found = [
                c if isinstance(c, chunks.Damage) else damage
                for c in chunks.read_chunks(Bytes(bytes(data)))
                for damage in ([c] if isinstance(c, chunks.Damage) else chunks.check_crcs(c))
            ]
            assert found, f"byte {at}"


def test_a_cut_file_and_garbage_are_placed() -> None:
    one = batch([Rec(0, b"a", b"1")]).encode()
    first, end = chunks.read_chunks(Bytes(one + one[:30]))
    assert isinstance(first, chunks.Chunk)
    assert end == chunks.Damage(len(one), 0, "the file ends inside it (30 bytes are left)")
    _, garbage = chunks.read_chunks(Bytes(one + bytes(100)))
    assert isinstance(garbage, chunks.Damage)
    assert garbage.position == len(one)
    assert list(chunks.read_chunks(Bytes(b""))) == []


def damaged_record_batch(records: bytes, count: int, codec: int = 0) -> bytes:
    b = Batch(0, count - 1, ())
    raw = bytearray(b.encode() + records)
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[21:23] = codec.to_bytes(2, "big")
    raw[57:61] = count.to_bytes(4, "big", signed=True)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def test_records_that_do_not_parse_are_named_not_followed() -> None:
    record = bytes([12, 0, 0, 0, 1, 1, 0])  # length 6: attributes, two deltas, null key, null value, no headers
    cases = {
        record + b"\0": "left after its last record",
        bytes([120]) + record[1:]: "runs over",
        bytes([12, 0, 0, 0, 1, 90, 0]): "runs over",
        bytes([12, 0, 0, 0, 90, 1, 0]): "runs over",
        bytes([12, 0, 0, 0, 1, 1, 2]): "runs over",
        bytes([255] * 12): "does not end",
        bytes([12, 255, 255, 255, 255, 255, 255]): "does not end",
    }
    for records, reason in cases.items():
        with pytest.raises(chunks.CorruptBatch, match=reason):
            chunks.walk(open_trusted(chunk_of(damaged_record_batch(records, 1)), "m"))
    for count in (-1, 2, 2**31 - 1):
        ((_, (damage,)),) = chunks.opened_parts(chunk_of(damaged_record_batch(record, count)))
        assert "do not fit" in damage.reason


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_a_payload_that_does_not_decompress_is_named(codec: int) -> None:
    ((_, (damage,)),) = chunks.opened_parts(chunk_of(damaged_record_batch(b"not compressed at all", 1, codec)))
    assert "does not decompress" in damage.reason


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (b"\2\2A\12", "runs over"),  # one header, key "A", a value longer than what is left
        (b"\2\1\1", "runs over"),  # no key
        (b"\2\2A\1\0", "runs over"),  # a byte more
        (b"\4\2A\1", "does not end"),  # the second is not there
        (b"\2\2A\377\377", "does not end"),
    ],
)
def test_headers_that_do_not_fill_their_record(headers: bytes, reason: str) -> None:
    body = b"\0\0\0\1\1" + headers  # attributes, two deltas, null key, null value
    chunk = open_trusted(chunk_of(damaged_record_batch(bytes([2 * len(body)]) + body, 1)), "m")
    with pytest.raises(chunks.CorruptBatch, match=reason):
        chunks.walk(chunk)


def test_visible_hides_control_and_aborted_batches() -> None:
    log = [
        batch([Rec(0, b"a", b"1")], flags=0x10, producer_id=5),
        batch([Rec(1, b"a", b"1")], producer_id=5),
        marker(2, 5, commit=False),
        batch([Rec(3, b"a", b"1")], flags=0x10, producer_id=5),
        batch([Rec(4, b"a", b"1")], flags=0x10, producer_id=6),
    ]
    headers = chunk_of(b"".join(b.encode() for b in log)).headers
    assert chunks.visible(headers, chunks.AbortedSpans([(5, 0, 2)]), committed_only=False).tolist() == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert chunks.visible(headers, chunks.AbortedSpans([(5, 0, 2)]), committed_only=True).tolist() == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_a_look_at_batches_costs_the_same_with_many_aborted_transactions() -> None:
    log = [batch([Rec(i, b"a", b"1")], flags=0x10, producer_id=5) for i in range(20)]
    headers = chunk_of(b"".join(b.encode() for b in log)).headers
    many = [(producer, 0, 2) for producer in range(6, 3000)] + [(5, 10 * i, 10 * i + 1) for i in range(1, 3000)]
    lines = []
    for aborted in map(chunks.AbortedSpans, ([(5, 10, 11)], many)):
        look = partial(chunks.visible, headers, aborted, committed_only=True)
        assert look().tolist() == [i not in (10, 11) for i in range(20)]
        lines.append(lines_run(chunks, look))
    assert lines[0] == lines[1]


def test_spans_of_one_producer_that_overlap_hide_all_that_any_does() -> None:
    """Only a damaged index has such."""
    spans = chunks.AbortedSpans([(5, 0, 9), (5, 2, 3), (5, 20, 21)])
    assert [n for n in range(25) if spans.cover(5, n)] == [*range(10), 20, 21]
    assert not spans.cover(6, 1)


def test_local_file_reads_no_further_than_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert bytes(LocalFile(str(path), 6).read(4, 100)) == b"45"
    assert len(LocalFile(str(path), 6).read(6, 100)) == 0
    with pytest.raises(CorruptData, match="it ends at 10"):
        LocalFile(str(path), 12).read(8, 100)


def test_old_formats_are_told_apart() -> None:
    old = bytearray(batch([Rec(0, b"a", b"1")]).encode())
    old[16] = 1
    (damage,) = chunks.check_crcs(chunk_of(bytes(old)))
    assert damage.reason == "its checksum (CRC-32) is wrong"
    old[16] = 3
    (damage,) = chunks.check_crcs(chunk_of(bytes(old)))
    assert "magic 3 is not known" in damage.reason


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_become_much_larger_and_too_large(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(batch([Rec(i, b"k", b"%d" % i * 90_000)], codec=codec).encode() for i in range(12))
    assert decoded(data, 1 << 20) == oracle(data)
    monkeypatch.setattr(compression, "DECOMPRESSED_BYTES_MAX", 100_000)
    (chunk,) = chunks.read_chunks(Bytes(data))
    assert isinstance(chunk, chunks.Chunk)
    ((_, damages),) = chunks.opened_parts(chunk)
    large = [d.base_offset for d in damages if "decompresses to more than 100000 bytes" in d.reason]
    assert large == ([10, 11] if codec else [])
    assert len(damages) == len(large)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_decompressed_in_parts(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of 4 MiB may become hundreds of GiB: a batch of 20 KB may be one of 256 MiB."""
    assert chunks.PART_BYTES + compression.DECOMPRESSED_BYTES_MAX < 2**31
    data = b"".join(batch([Rec(i, b"k", b"%d" % (i % 10) * 50_000)], codec=codec).encode() for i in range(7))
    chunk = chunk_of(data)
    monkeypatch.setattr(chunks, "PART_BYTES", 90_000)
    parts = [part for part, damages in chunks.opened_parts(chunk) if not damages]
    assert [len(part.headers) for part in parts] == ([2, 2, 2, 1] if codec else [7])
    rows = [row for part in parts for row in arrow.record_batch(part, chunks.walk(part)).to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(i, b"%d" % i * 50_000) for i in range(7)]


def test_a_damaged_batch_is_told_with_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = bytearray(batch([Rec(1, b"k", b"v" * 50_000)], codec=1).encode())
    broken[80:] = bytes(len(broken) - 80)
    good = [batch([Rec(i, b"k", b"v" * 50_000)], codec=1).encode() for i in (0, 2, 3)]
    chunk = chunk_of(good[0] + bytes(broken) + good[1] + good[2])
    monkeypatch.setattr(chunks, "PART_BYTES", 40_000)
    found = [(len(part.headers), [d.base_offset for d in damages]) for part, damages in chunks.opened_parts(chunk)]
    assert [number for number, _ in found] == [1, 2, 1]
    assert [told for _, told in found] == [[], [1], []]
