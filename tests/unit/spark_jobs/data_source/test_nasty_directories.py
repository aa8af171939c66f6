"""Directories as crashes, bad disks and odd clients leave them, read by export and data source.

What is sound and wanted comes; what is damaged and wanted is named with topic, partition, segment, position and offset;
nothing else fails.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.data_source.rows import SCHEMA, SplitPartition, read_split
from logyard.spark_jobs.export.files import Output, write_split
from logyard.spark_jobs.export.partition_columns import NOWHERE, directories, parse
from logyard.spark_jobs.export.places.folder import FolderRun
from logyard.spark_jobs.segments.replicas import of_partition_directory
from logyard.spark_jobs.segments.splits import COLUMNS, Range, plan_splits, split_rows
from tests.support.batches import Batch, Rec, batch
from tests.support.old_logs import old
from tests.support.segment_files import write_partition

T = 1_600_000_000_000


def log(codec: int = 0) -> list[Batch]:
    return [batch([Rec(3 * n + i, b"k%d" % i, b"v%d" % n, T + n) for i in range(3)], codec=codec) for n in range(20)]


class Place:
    """A partition's directory: segments at 0, 21 and 42, ending at 60; the high watermark is 54."""

    def __init__(self, root: Path, codec: int = 0) -> None:
        batches = log(codec)
        self.path = write_partition(
            root / "log", "flights-3", [batches[:7], batches[7:14], batches[14:]], high_watermark=54
        )
        self.sizes = [len(b.encode()) for b in batches]

    def file(self, base: int) -> Path:
        return self.path / f"{base:020d}.log"

    def at(self, base: int, number: int) -> int:
        """The position of the batch of that number in the segment."""
        first = base // 3
        return sum(self.sizes[first : first + number])

    def patch(self, base: int, position: int, data: bytes) -> None:
        with self.file(base).open("r+b") as file:
            file.seek(position)
            file.write(data)

    def append(self, base: int, data: bytes) -> None:
        with self.file(base).open("ab") as file:
            file.write(data)

    def cut(self, base: int, size: int) -> None:
        os.truncate(self.file(base), size)

    def flip(self, base: int, number: int, byte: int, bits: int = 1) -> None:
        at = self.at(base, number) + byte
        self.patch(base, at, bytes([self.file(base).read_bytes()[at] ^ bits]))

    def offsets(self, start: int = 0, end: int | None = None) -> list[int]:
        replica = of_partition_directory(str(self.path))
        span = Range(replica, start, replica.high_watermark if end is None else end)
        splits = plan_splits(span, committed_only=True, columns=COLUMNS)
        return [o for split in splits for part, _ in split_rows(split) for o in part.column("offset").to_pylist()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def reseal(batch_bytes: bytearray) -> bytes:
    batch_bytes[17:21] = struct.pack(">I", crc32c(bytes(batch_bytes[21:])))
    return bytes(batch_bytes)


# --- what is damaged, and not wanted

HARMLESS: dict[str, Callable[[Place], Any]] = {
    "nothing is wrong": lambda p: None,
    "zeros behind the last batch": lambda p: p.append(42, bytes(5000)),
    "a few zeros": lambda p: p.append(42, bytes(5)),
    "a preallocated file": lambda p: p.append(42, bytes(1 << 20)),
    "a batch torn at its header": lambda p: p.append(42, log()[0].encode()[:30]),
    "a batch torn in its records": lambda p: p.cut(42, p.file(42).stat().st_size - 9),
    "the page behind the high watermark is zeros": lambda p: p.patch(42, p.at(42, 4), bytes(200)),
    "noise": lambda p: p.append(42, os.urandom(300)),
    "a length that is no length": lambda p: p.append(42, struct.pack(">qi", 60, -5) + bytes(60)),
    "a length beyond all": lambda p: p.append(42, struct.pack(">qi", 60, 2**31 - 1) + bytes(60)),
    "an unknown format": lambda p: p.append(42, struct.pack(">qiib", 60, 60, 0, 9) + bytes(60)),
    "a wrong checksum behind the high watermark": lambda p: p.flip(42, 4, 70),
    "a torn old message": lambda p: p.append(42, old([Rec(60, b"k", b"v")]).encode()[:-3]),
    "a damaged old message": lambda p: p.append(42, old([Rec(60, b"k", b"v")]).encode()[:-1] + b"\xff"),
    "an offset index of zeros": lambda p: (p.path / f"{0:020d}.index").write_bytes(bytes(800)),
    "an offset index that is gone": lambda p: (p.path / f"{21:020d}.index").unlink(),
    "an offset index cut within an entry": lambda p: os.truncate(p.path / f"{21:020d}.index", 5),
    "no time index": lambda p: (p.path / f"{0:020d}.timeindex").unlink(),
    "no epochs": lambda p: (p.path / "leader-epoch-checkpoint").unlink(),
    "epochs that are none": lambda p: (p.path / "leader-epoch-checkpoint").write_bytes(b"\xff\x00"),
    "a snapshot of noise": lambda p: (p.path / f"{21:020d}.snapshot").write_bytes(os.urandom(90)),
    "an empty segment at the end": lambda p: (p.path / f"{60:020d}.log").write_bytes(b""),
    "files of a swap and of a deletion": lambda p: [
        (p.path / f"{0:020d}.log{suffix}").write_bytes(b"x") for suffix in (".deleted", ".swap", ".cleaned")
    ],
    "a file of somebody": lambda p: (p.path / "notes.txt").write_text("hello"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_sound_and_wanted_comes(name: str, place: Place) -> None:
    HARMLESS[name](place)
    assert place.offsets() == list(range(54))


# --- what is damaged, and wanted: (what happens, segment, batch) or an expected position

WANTED: dict[str, tuple[Callable[[Place], Any], int, int]] = {
    "a flipped bit in a record": (lambda p: p.flip(0, 2, 70), 0, 2),
    "a flipped bit in the attributes": (lambda p: p.flip(21, 1, 22, 0x20), 21, 1),
    "a flipped bit in the count": (lambda p: p.flip(21, 0, 60), 21, 0),
    "a length of nothing": (lambda p: p.patch(0, p.at(0, 3) + 8, bytes(4)), 0, 3),
    "a length beyond the file": (lambda p: p.patch(0, p.at(0, 3) + 8, b"\x70\0\0\0"), 0, 3),
    "a page of zeros": (lambda p: p.patch(21, p.at(21, 4), bytes(200)), 21, 4),
    "a closed segment torn within a batch": (lambda p: p.cut(21, p.at(21, 6) + 20), 21, 6),
    "zeros below the high watermark": (lambda p: p.patch(42, p.at(42, 2), bytes(500)), 42, 2),
    "the file ends below the high watermark": (lambda p: p.cut(42, p.at(42, 3) + 9), 42, 3),
    "an unknown format": (lambda p: p.patch(0, p.at(0, 5) + 16, b"\x07"), 0, 5),
    "an offset far ahead": (lambda p: p.patch(0, p.at(0, 2), struct.pack(">q", 10**12)), 0, 3),
    "an offset from before": (lambda p: p.patch(21, p.at(21, 3), struct.pack(">q", 2)), 21, 3),
    "an offset a little ahead": (lambda p: p.patch(0, p.at(0, 2), struct.pack(">q", 8)), 0, 3),
    "a negative offset": (lambda p: p.patch(0, p.at(0, 2), struct.pack(">q", -8)), 0, 2),
}


@pytest.mark.parametrize("name", WANTED)
def test_what_is_damaged_and_wanted_is_named(name: str, place: Place) -> None:
    damage, base, number = WANTED[name]
    damage(place)
    position = place.at(base, number)
    offset = int.from_bytes(place.file(base).read_bytes()[position : position + 8], "big", signed=True)
    with pytest.raises(LogyardError) as refused:
        place.offsets()
    text = str(refused.value)
    assert text.startswith(f"flights-3, segment {base} ({place.file(base)}): "), text
    assert f"position {position} (offset {offset})" in text, text


def sealed(records: list[Rec], at: int, data: bytes) -> bytes:
    """A batch with bytes of its records changed and its checksum right: what a client can send."""
    made = bytearray(batch(records).encode())
    made[at : at + len(data)] = data
    return reseal(made)


def test_records_that_do_not_parse_are_named(place: Place) -> None:
    for number in (61, 65):
        place.patch(0, place.at(0, 1), sealed(list(log()[1].records), number, b"\xff"))
        with pytest.raises(LogyardError, match=rf"flights-3, segment 0 .*position {place.at(0, 1)} \(offset 3\)"):
            place.offsets()


# --- what is odd, and sound


def one_of(tmp_path: Path, *records: Rec) -> Any:
    write_partition(tmp_path / "odd", "flights-3", [[batch(list(records))]])
    replica = of_partition_directory(str(tmp_path / "odd" / "flights-3"))
    columns = tuple(f.name for f in SCHEMA)
    return plan_splits(Range(replica, 0, len(records)), committed_only=True, columns=columns)


def test_header_keys_that_are_no_text(tmp_path: Path) -> None:
    """As Java's client gives them: U+FFFD for what is not UTF-8."""
    replica = write_partition(tmp_path, "flights-3", [[batch([Rec(0, b"k", b"v", T, (("aXY", b"1"), ("b", None)))])]])
    path = replica / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = data.index(b"aXY")
    for raw, text in ((b"a\xff\xfe", "a��"), (b"\xc3(z", "�(z"), (b"\xe2\x82y", "�y"), (b"a\x00b", "a\x00b")):
        data[at : at + 3] = raw
        path.write_bytes(reseal(data))
        span = Range(of_partition_directory(str(replica)), 0, 1)
        ((part, _),) = [rows for s in plan_splits(span, committed_only=True, columns=COLUMNS) for rows in split_rows(s)]
        assert part.column("headers").to_pylist() == [[{"key": text, "value": b"1"}, {"key": "b", "value": None}]]


def test_headers_that_do_not_fill_their_record_are_named(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, "flights-3", [[batch([Rec(0, b"k", b"v", T, (("aXY", b"1"),))])]])
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"aXY") - 1] = 2  # a key of one byte
    path.write_bytes(reseal(data))
    span = Range(of_partition_directory(str(directory)), 0, 1)
    (split,) = plan_splits(span, committed_only=True, columns=COLUMNS)
    with pytest.raises(
        LogyardError, match=r"flights-3, segment 0 .*position 0 \(offset 0\): a record runs over its end"
    ):
        list(split_rows(split))


TIMES = {
    "no time": (-1, -1),
    "the year 1": (-62_135_596_800_000, -62_135_596_800_000),
    "before it": (-62_135_596_800_001, None),
    "the last of 9999": (253_402_300_799_999, 253_402_300_799_999),
    "the year 10000": (253_402_300_800_000, None),
    "beyond microseconds": (2**63 // 1000 + 1, None),
    "the largest": (2**63 - 1, None),
    "the smallest": (-(2**63), None),
    "microseconds sent for milliseconds": (T * 1000, None),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_that_no_table_holds_are_null(name: str, tmp_path: Path) -> None:
    sent, seen = TIMES[name]
    made = Batch(0, 1, (Rec(0, b"k", b"v", sent), Rec(1, b"k", b"v", sent)), base_timestamp=sent, max_timestamp=sent)
    write_partition(tmp_path / "log", "flights-3", [[made]])
    replica = of_partition_directory(str(tmp_path / "log" / "flights-3"))
    columns = tuple(f.name for f in SCHEMA)
    (split,) = plan_splits(Range(replica, 0, 2), committed_only=True, columns=columns)
    (rows,) = read_split(SplitPartition(split), columns)
    assert rows.schema == SCHEMA
    micros = None if seen is None else seen * 1000
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [micros] * 2
    output = Output(COLUMNS, partition_by=parse(["date"]))
    written = write_split(
        replace(split, columns=COLUMNS), output, FolderRun(str(tmp_path / "out"), str(tmp_path / "out" / "_s"))
    )
    assert written.rows == 2
    assert (seen is None) == any(NOWHERE in f.path for f in written.files), [f.path for f in written.files]


def test_a_time_without_a_calendar_has_a_directory() -> None:
    import numpy as np

    names, rows = directories(parse(["date"]), "t", np.array([2**62, 0], np.int64))
    assert names[rows[0]] == f"date={NOWHERE}"


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damage_in_compressed_batches_is_named(codec: int, tmp_path: Path) -> None:
    place = Place(tmp_path, codec)
    at = place.at(0, 2)
    made = bytearray(place.file(0).read_bytes()[at : at + place.sizes[2]])
    made[70:80] = os.urandom(10)
    place.patch(0, at, reseal(made))
    with pytest.raises(LogyardError, match=rf"flights-3, segment 0 .*position {at} \(offset 6\)"):
        place.offsets()
