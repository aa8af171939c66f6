"""Odd and damaged logs through the built-in cleaner and through the Spark jobs: the same records stay, and the same
damage is named."""

import os
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from logyard.broker.cleaner import cleaning, compiled_passes
from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.compiled import chunks
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.errors import CorruptData
from logyard.broker.log.disk.real import OsDisk
from logyard.spark_jobs.compact import rewrite
from logyard.spark_jobs.compact import survey as spark_survey
from logyard.spark_jobs.segments.files import SegmentFile, of_directory
from tests.support.batches import APPEND_TIME, HORIZON, TRANSACTIONAL, Batch, Rec, batch, marker
from tests.support.old_logs import AnyBatch, old, read_any, sizes

NOW, DAY = 1_700_000_000_000, 86_400_000
TX = TRANSACTIONAL
A, B, C = b"a", b"b", b"c"


def r(offset: int, key: bytes | None, value: bytes | None = b"v", timestamp: int = NOW - DAY) -> Rec:
    return Rec(offset, key, value, timestamp)


def tx(base: int, key: bytes, producer: int, sequence: int = 0) -> Batch:
    return batch([r(base, key)], flags=TX, producer_id=producer, producer_epoch=0, sequence=sequence)


class Log:
    """Segments of a partition on disk, and what a lease says of them."""

    def __init__(self, root: Path, segments: Sequence[Sequence[AnyBatch]], **fields: Any) -> None:
        self.root, self.fields = root, fields
        self.path = root / "flights-3"
        self.path.mkdir(parents=True)
        for segment in segments:
            self.file(segment[0].base).write_bytes(b"".join(b.encode() for b in segment))
        self.last = {segment[0].base: segment[-1].last for segment in segments}
        self.end = fields.pop("end", segments[-1][-1].last + 1)

    def file(self, base: int) -> Path:
        return self.path / f"{base:020d}.log"

    def by_the_cleaner(self, limit: int = 1 << 30) -> dict[int, bytes]:
        links, parts = self.root / "links", self.root / "parts"
        shutil.copytree(self.path, links)
        parts.mkdir()
        fields = {"clean_offset": 0, "aborted": (), "producers": {}, **self.fields}
        sized = {base: self.file(base).stat().st_size for base in self.last}
        lease = {
            "topic": "flights",
            "partition": 3,
            "leader_epoch": 0,
            "now_ms": NOW,
            "clean_offset": fields["clean_offset"],
            "end_offset": self.end,
            "segments": [
                {"base_offset": base, "last_offset": last, "size": sized[base], "max_timestamp": -1, "mtime_ms": 0}
                | {"files": {"log": sized[base]}}
                for base, last in self.last.items()
            ],
            "links_dir": str(links),
            "parts_dir": str(parts),
            "producers": [
                {"producer_id": p, "last_offset": a.last_offset, "producer_epoch": a.producer_epoch}
                for p, a in fields["producers"].items()
            ],
            "aborted_transactions": [a._asdict() for a in fields["aborted"]],
            "config": {"segment.bytes": limit, "segment.index.bytes": 10**7, "delete.retention.ms": DAY},
        }
        made = cleaning.clean(lease, 10**6, OsDisk(), cleaning.unthrottled)
        plain = [(parts / f"{group['segments'][0]:020d}.part").read_bytes() for group in made["groups"]]
        again = cleaning.clean(lease, 10**6, OsDisk(), cleaning.unthrottled, compiled_passes.ENGINE)
        assert {**again, "bytes_read": 0} == {**made, "bytes_read": 0}
        assert plain == [(parts / f"{group['segments'][0]:020d}.part").read_bytes() for group in again["groups"]]
        out = {base: self.file(base).read_bytes() for base in self.last}
        for group in made["groups"]:
            first = group["segments"][0]
            for base in group["segments"]:
                del out[base]
            out[first] = (parts / f"{first:020d}.part").read_bytes()
            assert len(read_any(out[first])) == group["part"]["records"]
        return dict(sorted(out.items()))

    def by_spark(self, limit: int = 1 << 30) -> dict[int, bytes]:
        fields = {"clean_offset": 0, "aborted": (), "producers": {}, **self.fields}
        found = [f for f in of_directory(str(self.path)) if f.base_offset in self.last]
        files: list[SegmentFile] = [replace(f, active=False, last_offset=self.last[f.base_offset]) for f in found]
        first = min(self.last)
        survey = Survey(
            *("flights", 3, 0, first, self.end, NOW, DAY, fields["clean_offset"]),
            aborted=fields["aborted"],
            producers=fields["producers"],
        )
        decision = spark_survey.survey_segments(files, survey, KeyTable())
        rewriter = rewrite.Rewriter(decision, str(self.root))
        out = {base: self.file(base).read_bytes() for base in self.last}
        for group in rewrite.plan_groups(files, decision, {"segment.bytes": limit}):
            part = rewriter.rewrite(group)
            if part is not None:
                for base in part.segments:
                    del out[base]
                out[part.segments[0]] = Path(part.path).read_bytes()
        return dict(sorted(out.items()))


def horizon(b: Batch, at: int) -> Batch:
    return replace(b, flags=b.flags | HORIZON, base_timestamp=at)


ABORTED = (AbortedTransaction(5, 1, 2, 3),)
FAR = 2**40
Case = tuple[list[list[AnyBatch]], dict[str, Any], list[int]]

CASES: dict[str, Case] = {
    "one record": ([[batch([r(0, A)])]], {}, [0]),
    "one key in three segments": ([[batch([r(0, A)])], [batch([r(1, A)])], [batch([r(2, A)])]], {}, [2]),
    "nothing has a key": ([[batch([r(0, None), r(1, None)])], [batch([r(2, None)])]], {}, []),
    "an empty key": ([[batch([r(0, b""), r(1, b""), r(2, None)])]], {}, [1]),
    "a key of a megabyte": ([[batch([r(0, b"k" * 2**20), r(1, b"k" * 2**20), r(2, A)])]], {}, [1, 2]),
    "keys that differ in their last byte": (
        [[batch([r(n, b"k" * 99 + bytes([n])) for n in range(9)])]],
        {},
        list(range(9)),
    ),
    "keys that one is the beginning of": ([[batch([r(0, b"k"), r(1, b"k\0"), r(2, b"k\0\0")])]], {}, [0, 1, 2]),
    "an empty value is a value": ([[batch([r(0, A, b""), r(1, B)])]], {}, [0, 1]),
    "a tombstone stays at first": ([[batch([r(0, A), r(1, A, None), r(2, B)])]], {}, [1, 2]),
    "a tombstone whose horizon has not passed": (
        [[horizon(batch([r(0, A, None), r(1, B)]), NOW + 1)]],
        {"clean_offset": 9},
        [0, 1],
    ),
    "a tombstone whose horizon is now": ([[horizon(batch([r(0, A, None), r(1, B)]), NOW)]], {"clean_offset": 9}, [1]),
    "a tombstone above the cut-off": ([[horizon(batch([r(0, A, None), r(1, B)]), NOW - 1)]], {}, [0, 1]),
    "a tombstone superseded by a value": ([[batch([r(0, A, None)])], [batch([r(1, A)])]], {}, [1]),
    "offsets far apart": ([[batch([r(0, A)])], [batch([r(FAR, A), r(FAR + 1, B)])]], {}, [FAR, FAR + 1]),
    "offsets beyond an index in one group": (
        [[batch([r(0, A)])], [batch([r(2**31 - 2, B)])], [batch([r(2**31 + 5, C)])]],
        {},
        [0, 2**31 - 2, 2**31 + 5],
    ),
    "gaps inside a batch": ([[Batch(0, 9, (r(3, A), r(7, B))), batch([r(10, A)])]], {}, [7, 10]),
    "a record far above its batch": (
        [[batch([r(0, A)]), Batch(1, 0, (r(1000, A),))], [batch([r(2, A), r(3, B)])], [batch([r(4, A)])]],
        {},
        [1000, 3, 4],
    ),
    "records in the wrong order": (
        [[batch([r(0, A), r(1, B)]), Batch(2, 2, (r(3, A), r(2, B), r(4, C)))], [batch([r(5, C)])]],
        {},
        [1, 3, 2, 4, 5],
    ),
    "an empty batch at the end": ([[batch([r(0, A)]), Batch(1, 4, ())]], {}, [0]),
    "only empty batches": ([[Batch(0, 4, ()), Batch(5, 2, ())]], {}, []),
    "a batch that loses all but its last": ([[batch([r(n, A) for n in range(50)], codec=3)]], {}, [49]),
    "every codec": (
        [[batch([r(2 * n, A), r(2 * n + 1, b"%d" % n)], codec=n) for n in range(5)]],
        {},
        [1, 3, 5, 7, 8, 9],
    ),
    "log append time": ([[batch([r(0, A), r(1, B), r(2, A)], flags=APPEND_TIME)]], {}, [1, 2]),
    "times that wrap": ([[batch([r(0, A, b"v", -(2**62)), r(1, B, b"v", 2**62), r(2, A, b"v", 0)])]], {}, [1, 2]),
    "a time of -1": ([[batch([r(0, A, b"v", -1), r(1, A, b"v", -1), r(2, B, None, -1)])]], {}, [1, 2]),
    "headers of a record": (
        [[batch([Rec(0, A, b"v", NOW, (("h", b"x" * 300), ("é", None))), r(1, B)])], [batch([r(2, B)])]],
        {},
        [0, 2],
    ),
    "an aborted transaction": (
        [[batch([r(0, A)]), tx(1, A, 5), marker(2, 5, commit=False)]],
        {"aborted": ABORTED},
        [0, 2],
    ),
    "a committed one": ([[batch([r(0, A)]), tx(1, A, 5), marker(2, 5, commit=True)]], {}, [1, 2]),
    "two of one producer": (
        [[tx(1, A, 5), marker(2, 5, commit=False), tx(3, B, 5, 1), marker(4, 5, commit=True)]],
        {"aborted": ABORTED},
        [2, 3, 4],
    ),
    "an aborted one across segments": (
        [[batch([r(0, A)]), tx(1, A, 5)], [marker(2, 5, commit=False), batch([r(3, B)])]],
        {"aborted": ABORTED},
        [0, 2, 3],
    ),
    "the last batch of a producer": (
        [[batch([r(0, A)], producer_id=5, producer_epoch=0, sequence=0), batch([r(1, A)])]],
        {"producers": {5: ActiveProducer(0, 0)}},
        [1],
    ),
    "the dirty part alone supersedes": ([[batch([r(0, A), r(1, B)])], [batch([r(2, B), r(3, C)])]], {}, [0, 2, 3]),
    "v0 then v1 then v2": (
        [[old([r(0, A)], 0, 0), old([r(1, A), r(2, B)], 0)], [old([r(3, A), r(4, C)])], [batch([r(5, C), r(6, B)])]],
        {},
        [3, 5, 6],
    ),
    "v2 between v1": ([[old([r(0, A)])], [batch([r(1, A), r(2, B)])], [old([r(3, B)])]], {}, [1, 3]),
    "old messages and transactions": (
        [[old([r(0, A)], 0, 0), tx(1, A, 5), marker(2, 5, commit=False)], [old([r(3, B)])]],
        {"aborted": ABORTED},
        [0, 2, 3],
    ),
    "a wrapper of a thousand": (
        [[old([r(n, b"%d" % (n % 7)) for n in range(1000)], 1, 2)]],
        {},
        list(range(993, 1000)),
    ),
    "old tombstones nobody has cleaned yet": ([[old([r(0, A), r(1, A, None)], 0)], [old([r(2, B)], 0)]], {}, [1, 2]),
}


@pytest.mark.parametrize("limit", [1, 1 << 30])
@pytest.mark.parametrize("name", CASES)
def test_what_stays(name: str, limit: int, tmp_path: Path) -> None:
    segments, fields, expected = CASES[name]
    log = Log(tmp_path / "log", segments, **fields)
    by_the_cleaner, by_spark = log.by_the_cleaner(limit), log.by_spark(limit)
    assert by_the_cleaner == by_spark
    whole = b"".join(by_spark.values())
    assert [record.offset for record in read_any(whole)] == expected
    before = {record.offset: record for s in segments for record in read_any(b"".join(b.encode() for b in s))}
    assert [before[record.offset] for record in read_any(whole)] == read_any(whole)
    ends = [sizes(data)[-1][1] for data in by_spark.values()]
    assert ends[-1] == segments[-1][-1].last
    if limit == 1:
        assert ends == [s[-1].last for s in segments]


def two_segments(root: Path) -> Log:
    return Log(
        root,
        [
            [batch([r(3 * n + i, b"k%d" % i) for i in range(3)], codec=n % 5) for n in range(6)],
            [old([r(18 + 3 * n + i, b"k%d" % i) for i in range(3)], n % 2, 1) for n in range(6)],
        ],
    )


def at(log: Log, base: int, number: int) -> int:
    position, data = 0, log.file(base).read_bytes()
    for _ in range(number):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


def patch(log: Log, base: int, position: int, data: bytes) -> None:
    with log.file(base).open("r+b") as file:
        file.seek(position)
        file.write(data)


def sealed(log: Log, number: int, change: Callable[[bytearray], None]) -> None:
    position, end = at(log, 0, number), at(log, 0, number + 1)
    raw = bytearray(log.file(0).read_bytes()[position:end])
    change(raw)
    raw[17:21] = struct.pack(">I", crc32c(bytes(raw[21:])))
    patch(log, 0, position, bytes(raw))


@pytest.mark.parametrize("name", CASES)
def test_chunks_that_are_unpacked_in_parts_give_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments, fields, _ = CASES[name]
    log = Log(tmp_path, segments, **fields)
    whole = log.by_spark()
    monkeypatch.setattr(chunks, "PART_BYTES", 1)
    assert log.by_spark() == whole


def test_a_chunk_that_unpacks_to_too_much_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, [[batch([r(2 * n, A, bytes(50_000)), r(2 * n + 1, B)], codec=4) for n in range(5)]])
    whole = log.by_spark()
    monkeypatch.setattr(chunks, "PART_BYTES", 60_000)
    assert log.by_spark() == whole
    assert [record.offset for record in read_any(whole[0])] == [8, 9]


def count_of(raw: bytearray, count: int) -> None:
    raw[57:61] = struct.pack(">i", count)


DAMAGE: dict[str, tuple[Callable[[Log], Any], int, int]] = {
    "a flipped record": (lambda log: patch(log, 0, at(log, 0, 2) + 66, b"\xff"), 0, 2),
    "a flipped header": (lambda log: patch(log, 0, at(log, 0, 2) + 36, b"\xff"), 0, 2),
    "a flipped old message": (lambda log: patch(log, 18, at(log, 18, 3) + 30, b"\xff"), 18, 3),
    "a base offset too high": (lambda log: patch(log, 0, at(log, 0, 2), (50).to_bytes(8, "big")), 0, 2),
    "a base offset too low": (lambda log: patch(log, 0, at(log, 0, 2), (4).to_bytes(8, "big")), 0, 2),
    "a length of nothing": (lambda log: patch(log, 0, at(log, 0, 4) + 8, bytes(4)), 0, 4),
    "a length beyond the file": (lambda log: patch(log, 0, at(log, 0, 4) + 8, b"\x7f"), 0, 4),
    "an unknown format": (lambda log: patch(log, 18, at(log, 18, 1) + 16, b"\x05"), 18, 1),
    "a torn end": (lambda log: os.truncate(log.file(0), at(log, 0, 5) + 20), 0, 5),
    "a record that runs over": (lambda log: sealed(log, 0, lambda raw: raw.__setitem__(61, 0x7E)), 0, 0),
    "fewer records than said": (lambda log: sealed(log, 0, lambda raw: count_of(raw, 9)), 0, 0),
    "more records than said": (lambda log: sealed(log, 0, lambda raw: count_of(raw, 2)), 0, 0),
    "noise for compressed bytes": (
        lambda log: sealed(log, 3, lambda raw: raw.__setitem__(slice(61, 80), bytes(19))),
        0,
        3,
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    damage, base, number = DAMAGE[name]
    log = two_segments(tmp_path / "log")
    position = at(log, base, number)
    damage(log)
    with pytest.raises(CorruptData, match=rf"^flights-3, segment {base} \(.*position {position} \(offset "):
        log.by_spark()
    with pytest.raises(
        CorruptData, match=rf"^flights-3, segment {base}: batch at position \d+ \(offset \d+\) or beside it"
    ):
        log.by_the_cleaner()
    assert not list((tmp_path / "log").glob("**/*.part"))
