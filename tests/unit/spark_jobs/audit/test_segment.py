import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from logyard.broker.compiled import chunks
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.segment import SegmentAudit, SegmentAuditor
from logyard.spark_jobs.segments.files import of_directory
from tests.support.batches import Batch, Rec, batch
from tests.support.segment_files import write_partition

LOG = [
    batch([Rec(3 * i + j, b"k%d" % j, b"v" * 20, 1000 + 10 * i + j) for j in range(3)], codec=i % 5) for i in range(12)
]


def audit(directory: Path, number: int = 0, **given: Any) -> tuple[list[Finding], list[dict[str, Any]]]:
    segment = of_directory(str(directory), 1)[number]
    usual: dict[str, Any] = {"deep": True, "leader_epochs": ((0, 0),), "compacted": False, "now_ms": 10_000}
    fields = usual | given
    if "last_offset" in fields:
        segment = replace(segment, last_offset=fields.pop("last_offset"))
    auditor = SegmentAuditor(SegmentAudit(segment, **fields))
    return auditor.findings, auditor.run().to_pylist()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_partition(tmp_path, "t-0", [LOG[:8], LOG[8:]])


def test_a_sound_segment_has_a_row_per_batch_and_no_finding(directory: Path) -> None:
    findings, rows = audit(directory, last_offset=23)
    assert findings == []
    assert [(r["base"], r["last"], r["records"]) for r in rows] == [(b.base, b.last, 3) for b in LOG[:8]]
    assert all(r["content"] != 0 for r in rows)
    assert (directory / f"{0:020d}.index").stat().st_size >= 16


def test_what_unpacks_to_much_is_audited_in_parts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit(directory)
    monkeypatch.setattr(chunks, "PART_BYTES", 100)
    assert audit(directory) == whole
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = len(LOG[0].encode() + LOG[1].encode())
    data[at + 61] ^= 0x7F
    data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : at + len(LOG[2].encode())])).to_bytes(4, "big")
    path.write_bytes(data)
    (finding,), rows = audit(directory)
    assert (finding.check, finding.offset) == ("records", 6)
    assert [row["content"] != 0 for row in rows] == [True, True, False, *[True] * 5]


def test_the_active_segment_is_audited_without_its_preallocated_indexes(directory: Path) -> None:
    findings, rows = audit(directory, 1)
    assert findings == []
    assert len(rows) == 4


def test_any_flipped_byte_of_the_log_is_found(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    good = path.read_bytes()
    second = len(LOG[0].encode())
    for at in range(second, second + len(LOG[1].encode())):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x04]) + good[at + 1 :])
        findings, _ = audit(directory, leader_epochs=((0, 0),))
        assert any(f.level == BAD for f in findings) or 0 <= at - second < 8, f"byte {at - second}"


def test_damage_in_one_batch_does_not_hide_the_others(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    second = len(LOG[0].encode())
    data[second + 70] ^= 1
    path.write_bytes(data)
    findings, rows = audit(directory)
    assert [(f.level, f.check, f.position, f.offset) for f in findings] == [(BAD, "crc", second, 3)]
    assert findings[0].file == str(path)
    assert [r["base"] for r in rows] == [b.base for b in LOG[:8]]
    assert [r["content"] != 0 for r in rows] == [True, False] + [True] * 6


def rewrite(directory: Path, batches: list[Batch]) -> None:
    (directory / f"{0:020d}.log").write_bytes(b"".join(b.encode() for b in batches))
    for kind in ("index", "timeindex"):
        (directory / f"{0:020d}.{kind}").write_bytes(b"")


def test_records_out_of_order_or_out_of_their_batch(directory: Path) -> None:
    swapped = Batch(0, 2, (Rec(1, b"a", b""), Rec(0, b"a", b""), Rec(2, b"a", b"")))
    outside = Batch(3, 1, (Rec(3, b"a", b""), Rec(5, b"a", b"")))
    rewrite(directory, [swapped, outside])
    findings, _ = audit(directory, now_ms=-1)
    assert [(f.check, f.offset) for f in findings] == [("records", 0)]
    rewrite(directory, [outside])
    findings, _ = audit(directory, now_ms=-1)
    assert [(f.check, f.offset) for f in findings] == [("records", 3)]


def test_headers_that_contradict_themselves(directory: Path) -> None:
    rewrite(directory, [Batch(0, 0, (Rec(0, b"a", b"", 50), Rec(1, b"a", b"", 60)), max_timestamp=70)])
    findings, _ = audit(directory)
    assert {(f.level, f.check) for f in findings} == {(BAD, "offsets"), (BAD, "records"), (WARN, "timestamps")}


def test_timestamps_far_ahead_and_missing_keys_are_warnings(directory: Path) -> None:
    rewrite(directory, [batch([Rec(0, None, b"x", 10_000 + 3_600_001)])])
    findings, _ = audit(directory, compacted=True)
    assert {(f.level, f.check) for f in findings} == {(WARN, "timestamps"), (WARN, "keys")}


def test_epochs_are_held_against_the_epoch_file(directory: Path) -> None:
    findings, _ = audit(directory, leader_epochs=((0, 0), (4, 9)))
    assert [(f.check, f.offset) for f in findings] == [("epochs", b.base) for b in LOG[3:8]]
    assert "epoch is 0, the epoch file says 4" in findings[0].message
    assert audit(directory, leader_epochs=())[0] == []


def test_batches_that_an_epoch_file_need_not_tell_of(tmp_path: Path) -> None:
    """Records that DeleteRecords took lie in the first segment still; old messages end what is known of epochs."""
    epochs = [replace(each, epoch=number // 3) for number, each in enumerate(LOG)]
    directory = write_partition(tmp_path, "t-0", [epochs[:8], epochs[8:]])
    assert audit(directory, leader_epochs=((1, 12), (2, 18), (3, 27)), log_start_offset=12)[0] == []
    assert audit(directory, leader_epochs=((2, 18), (3, 27)))[0] == []
    findings, _ = audit(directory, leader_epochs=((1, 12), (2, 18), (3, 27)))
    assert [(f.check, f.offset) for f in findings] == [("epochs", 9)]


def test_the_segment_ends_where_the_broker_says(directory: Path) -> None:
    findings, _ = audit(directory, last_offset=26)
    assert [(f.check, f.offset) for f in findings] == [("offsets", 23)]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(5, 1)], "points at no batch"),
        ([(2, 0), (2, 500)], "not larger"),
        ([(99, 0)], "begins at 0"),
    ],
)
def test_offset_index_against_the_log(directory: Path, entries: list[tuple[int, int]], words: str) -> None:
    path = directory / f"{0:020d}.index"
    path.write_bytes(b"".join(struct.pack(">ii", *e) for e in entries))
    findings, _ = audit(directory)
    assert [(f.level, f.check, f.file) for f in findings] == [(BAD, "index", str(path))]
    assert words in findings[0].message


def test_an_index_entry_must_not_lead_behind_its_offset(directory: Path) -> None:
    position = len(LOG[0].encode())
    (directory / f"{0:020d}.index").write_bytes(struct.pack(">ii", 1, position))
    findings, _ = audit(directory)
    assert "begins at 3" in findings[0].message


@pytest.mark.parametrize(
    ("entries", "level", "words"),
    [
        ([(1000, 8)], BAD, "skips a record of 1012"),
        ([(5000, 99)], BAD, "behind the segment's end"),
        ([(1002, 2), (1002, 5)], BAD, "not larger"),
        ([(1002, 2)], WARN, "largest timestamp 1072"),
    ],
)
def test_time_index_against_the_log(directory: Path, entries: list[tuple[int, int]], level: str, words: str) -> None:
    path = directory / f"{0:020d}.timeindex"
    path.write_bytes(b"".join(struct.pack(">qi", *e) for e in entries))
    findings, _ = audit(directory)
    assert (findings[0].level, findings[0].check, findings[0].file) == (level, "timeindex", str(path))
    assert words in findings[0].message


def test_half_entries_and_a_missing_file_are_found(directory: Path) -> None:
    with (directory / f"{0:020d}.index").open("ab") as file:
        file.write(b"\0\0\0")
    (directory / f"{0:020d}.txnindex").write_bytes(b"half")
    findings, _ = audit(directory)
    assert [f.check for f in findings] == ["index", "txnindex"]
    segment = of_directory(str(directory), 1)[0]
    (directory / f"{0:020d}.log").unlink()
    auditor = SegmentAuditor(SegmentAudit(segment, True, (), False, -1))
    assert auditor.run().num_rows == 0
    assert [(f.level, f.check) for f in auditor.findings] == [(BAD, "readable")]


def test_epochs_on_a_live_brokers_disk_are_those_it_believes(directory: Path) -> None:
    segment = of_directory(str(directory), 1)[1]
    path = directory / f"{segment.base_offset:020d}.epochs"

    def found(text: str) -> list[tuple[str, str, int]]:
        path.write_text(text)
        leased = replace(segment, last_offset=35, files={"log": segment.size, "epochs": len(text)})
        auditor = SegmentAuditor(SegmentAudit(leased, True, ((0, 0),), False, 10_000))
        auditor.run()
        return [(f.level, f.file, f.offset) for f in auditor.findings]

    name = str(directory / "leader-epoch-checkpoint")
    assert found("0\n1\n0 0\n") == []
    assert found("0\n2\n0 0\n4 36\n") == [], "it began after the lease"
    assert found("0\n1\n0 8\n") == [(BAD, name, 8)]
    assert found("0\n1\n0 x\n") == [(BAD, name, -1)]


def test_a_damaged_snapshot_is_found(directory: Path) -> None:
    (directory / f"{0:020d}.snapshot").write_bytes(b"\0\1" + bytes(12))
    (finding,), _ = audit(directory)
    assert (finding.level, finding.check, Path(finding.file).suffix) == (BAD, "snapshot", ".snapshot")
