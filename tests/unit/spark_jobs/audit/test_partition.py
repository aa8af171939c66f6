from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logyard.broker.compiled.chunks import ByteSource, read_chunks
from logyard.spark_jobs.audit.findings import BAD, WARN
from logyard.spark_jobs.audit.framing import OPEN_END, Blind, BlindOffsets
from logyard.spark_jobs.audit.partition import (
    PartitionVerdict,
    audit_bin,
    judge_rows,
    order_findings,
    sequence_findings,
)
from logyard.spark_jobs.audit.quarantine import suspects
from logyard.spark_jobs.audit.report import FINDINGS_SCHEMA
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import CONTROL, Batch, Rec, batch, marker
from tests.support.segment_files import write_partition

LOG = [batch([Rec(3 * i + j, b"k%d" % j, b"v%d" % i, 1000 + i) for j in range(3)]) for i in range(12)]


def replica(tmp_path: Path, broker: int, segments: Sequence[Sequence[Batch]], **fields: Any) -> Replica:
    directory = write_partition(tmp_path / str(broker), "t-0", segments)
    return replace(of_partition_directory(str(directory), broker), leader_epochs=(), **fields)


def judge(*replicas: Replica) -> PartitionVerdict:
    work = [SegmentAudit(s, True, r.leader_epochs, False, -1) for r in replicas for s in r.segments]
    # The shuffle brings segments in any order.
    return judge_rows(replicas, [rows for _tp, rows in audit_bin(reversed(work))])


def found(*replicas: Replica) -> list[tuple[str, str, int, int]]:
    return [(f.level, f.check, f.replica, f.offset) for f in judge(*replicas).findings]


def test_equal_replicas_cut_into_other_segments_are_sound(tmp_path: Path) -> None:
    verdict = judge(replica(tmp_path, 1, [LOG[:5], LOG[5:]]), replica(tmp_path, 2, [LOG[:9], LOG[9:]]))
    assert verdict.findings == []
    first, second = verdict.totals
    assert (first["records"], first["batches"], first["segments"], first["last_offset"]) == (36, 12, 2, 35)
    assert first["digest"] == second["digest"] != f"{0:016x}"


def test_gaps_repeats_and_falling_epochs(tmp_path: Path) -> None:
    holey = replica(tmp_path, 1, [LOG[:2], LOG[4:6]])
    assert found(holey) == [(BAD, "gap", 1, 6)]
    finding = judge(holey).findings[0]
    text = "offsets 6 to 11 are missing, and nothing cleaned there: this segment lost its tail, or segment 12 its front"
    assert finding.message == text
    size = sum(len(b.encode()) for b in LOG[:2])
    assert (finding.file, finding.position) == (f"{holey.directory}/{0:020d}.log", size)
    assert found(replace(holey, clean_offset=12)) == []
    assert found(replace(holey, clean_offset=11)) == [(BAD, "gap", 1, 6)]
    inside = replica(tmp_path, 4, [[*LOG[:2], *LOG[4:6]]])
    assert [(f.offset, f.position, f.message) for f in judge(inside).findings] == [
        (12, size, "offsets 6 to 11 are missing, and nothing cleaned there")
    ]
    twice = replica(tmp_path, 2, [[LOG[0], LOG[1], LOG[1]]])
    assert found(twice) == [(BAD, "offsets", 2, 3)]
    fallen = replica(tmp_path, 3, [[replace(LOG[0], epoch=4), replace(LOG[1], epoch=3)]])
    assert found(fallen) == [(BAD, "epochs", 3, 3)]


def test_a_replica_that_was_fetched_from_a_cleaned_one_has_gaps_too(tmp_path: Path) -> None:
    """It was moved away and back: its directory has no line in the cleaner's checkpoint any more."""
    kept = [*LOG[:2], *LOG[4:6]]
    cleaned = replica(tmp_path, 1, [kept], clean_offset=12)
    fetched = replica(tmp_path, 2, [kept], clean_offset=0)
    assert found(fetched, cleaned) == []
    assert found(fetched, replace(cleaned, clean_offset=11)) == [(BAD, "gap", 2, 12), (BAD, "gap", 1, 12)]
    moved = [replace(r, clean_offset=0, policy="compact") for r in (cleaned, fetched)]
    assert found(*moved) == [(WARN, "gap", 1, 12), (WARN, "gap", 2, 12)]


def test_a_log_must_begin_and_end_where_its_broker_says(tmp_path: Path) -> None:
    late = replica(tmp_path, 1, [LOG[2:4]], log_start_offset=3)
    assert found(replace(late, clean_offset=0)) == [(BAD, "gap", 1, 6)]
    assert found(replace(late, log_start_offset=7)) == [], (
        "records below the log's start may still be in its first segment"
    )
    assert found(replace(late, log_start_offset=6, log_end_offset=15)) == [(BAD, "end", 1, 9)]
    assert found(replace(late, log_start_offset=6, log_end_offset=12)) == []


def test_a_directory_whose_log_ends_before_its_high_watermark_lost_records(tmp_path: Path) -> None:
    short = replica(tmp_path, 1, [LOG[:2], LOG[2:4]], high_watermark=13)
    (finding,) = judge(short).findings
    assert (finding.level, finding.check, finding.offset, finding.file) == (BAD, "checkpoint", 13, short.directory)
    assert finding.message == "its high watermark 13 lies beyond its log's end 12: acknowledged records were lost"
    assert found(replace(short, high_watermark=12)) == []
    empty = replica(tmp_path, 2, [LOG[:2]], high_watermark=9)
    log = Path(empty.directory) / f"{0:020d}.log"
    log.write_bytes(b"")
    empty = replace(of_partition_directory(empty.directory, 2), high_watermark=9)
    assert found(empty) == [(BAD, "checkpoint", 2, 9)]
    assert found(replace(empty, high_watermark=0)) == []


def test_where_damage_hides_a_logs_end_its_high_watermark_is_no_finding(tmp_path: Path) -> None:
    torn = replica(tmp_path, 1, [LOG[:4]], high_watermark=12)
    log = Path(torn.directory) / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    torn = replace(of_partition_directory(torn.directory, 1), high_watermark=12)
    assert found(torn) == [(BAD, "framing", 1, 9)]


def test_sequences_go_on_wrap_and_start_again_with_an_epoch(tmp_path: Path) -> None:
    def written(at: int, sequence: int, epoch: int = 0) -> Batch:
        return replace(LOG[at], producer_id=7, producer_epoch=epoch, sequence=sequence)

    sound = [written(0, 2**31 - 2), written(1, 1), written(2, 0, epoch=1), replace(LOG[3], producer_id=8, sequence=5)]
    end = marker(12, 7, commit=True, producer_epoch=1)
    assert end.flags & CONTROL
    assert found(replica(tmp_path, 1, [[*sound, end]])) == []
    gap = replica(tmp_path, 2, [[written(0, 0), written(1, 3), written(2, 7)]])
    assert found(gap) == [(WARN, "sequence", 2, 6)]
    assert "continues with sequence 7, 6 is expected" in judge(gap).findings[0].message
    assert found(replace(gap, clean_offset=6)) == []


def test_replicas_that_differ_are_bad_where_nothing_was_cleaned(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, [LOG])
    other = [
        *LOG[:3],
        batch([*LOG[3].records[:2], Rec(11, b"k2", b"other", 1003)]),
        *LOG[4:7],
        replace(LOG[7], epoch=1),
        *LOG[8:],
    ]
    two = replica(tmp_path, 2, [[replace(b, epoch=max(b.epoch, int(i > 7))) for i, b in enumerate(other)]])
    messages = {f.offset: f.message for f in judge(one, two).findings}
    assert "checksums differ (held by 1, 2)" in messages[9]
    assert "leader epochs differ" in messages[21]
    assert sorted(messages) == [9, 21, 24, 27, 30, 33]


def test_replicas_are_compared_up_to_the_lowest_high_watermark_only(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, [LOG])
    short = replica(tmp_path, 2, [LOG[:8]], high_watermark=24)
    assert found(one, short) == []
    told = [(BAD, "checkpoint", 2, 27), (BAD, "replicas", 1, 24)]
    assert found(one, replace(short, high_watermark=27)) == told, "it lost what it knew to be acknowledged"


def test_cleaned_replicas_are_compared_by_record(tmp_path: Path) -> None:
    last_of_keys = [Batch(0, 2, (), sequence=-1), *LOG[10:]]
    full, cleaned = replica(tmp_path, 1, [LOG]), replica(tmp_path, 2, [last_of_keys], clean_offset=33)
    assert found(full, cleaned) == [(WARN, "replicas", 2, 33)]
    lost = replica(tmp_path, 3, [[LOG[0], *LOG[11:]]], clean_offset=33)
    assert found(full, lost) == [(WARN, "replicas", 3, 33)]
    missing = replica(tmp_path, 4, [LOG[:11]], clean_offset=36, high_watermark=36)
    checkpoints = [(BAD, "checkpoint", 4, 36)] * 2
    assert found(full, missing) == [*checkpoints, *((BAD, "replicas", 4, o) for o in (33, 34, 35))]


def test_many_findings_are_counted(tmp_path: Path) -> None:
    holes = replica(tmp_path, 1, [[batch([Rec(2 * i, b"k", b"v")]) for i in range(150)]])
    findings = judge(holes).findings
    assert len(findings) == 101
    assert findings[-1].message == "and 49 more of this kind"


def test_many_findings_in_segments_are_counted(tmp_path: Path) -> None:
    """One for each batch of a large topic would be more than the driver holds."""
    one = replica(tmp_path, 1, [[batch([Rec(n, b"k", b"v" * 50)]) for n in range(150)]])
    path = Path(one.segments[0].directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    for end in range(len(data) // 150, len(data) + 1, len(data) // 150):
        data[end - 3] ^= 1
    path.write_bytes(data)
    crc = [f for f in judge(one).findings if f.check == "crc"]
    assert len(crc) == 101
    assert (crc[-1].level, crc[-1].message) == (BAD, "and 50 more of this kind")


def test_a_replica_without_batches(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, [LOG])
    empty = replace(one, broker_id=2, segments=(), high_watermark=0)
    assert found(one, empty) == []
    assert judge(empty).totals[0]["last_offset"] == -1


def test_a_partition_that_nobody_has_written_to(tmp_path: Path) -> None:
    """Its replicas have a segment each, and that no batch."""
    replicas = []
    for broker in (1, 2):
        (segment,) = replica(tmp_path, broker, [LOG[:1]]).segments
        (Path(segment.directory) / f"{segment.base_offset:020d}.log").write_bytes(b"")
        found = of_partition_directory(segment.directory, broker)
        assert len(found.segments) == 1
        replicas.append(replace(found, leader_epochs=(), log_end_offset=0, high_watermark=0))
    verdict = judge(*replicas)
    assert verdict.findings == []
    assert [(total["batches"], total["last_offset"]) for total in verdict.totals] == [(0, -1), (0, -1)]


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_inside_a_segment_comes_through(tmp_path: Path, damaged: int) -> None:
    one = replica(tmp_path, 1, [LOG[:6], LOG[6:]])
    path = Path(one.segments[damaged].directory) / f"{one.segments[damaged].base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert [(level, check) for level, check, _, _ in found(one)] == [(BAD, "crc")]


def test_a_gap_of_what_was_cleaned_and_of_damage_after_it_is_no_finding_of_its_own(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, [LOG[:2], LOG[4:8], LOG[8:]])
    with (Path(one.directory) / f"{12:020d}.log").open("r+b") as file:
        file.seek(8)
        file.write(bytes(4))
    assert found(replace(one, clean_offset=15)) == [(BAD, "framing", 1, 12)]
    assert found(replace(one, clean_offset=9)) == [(BAD, "framing", 1, 12), (BAD, "gap", 1, 6)]


def test_the_largest_offset_there_is_can_be_reported(tmp_path: Path) -> None:
    """No checksum covers a batch's offset, so any may stand there; the audit and its report end as usual."""
    one = replica(tmp_path, 1, [LOG[:6], LOG[6:]])
    path = Path(one.directory) / f"{0:020d}.log"
    data, last = bytearray(path.read_bytes()), sum(len(b.encode()) for b in LOG[:5])
    data[last : last + 8] = (2**63 - 3).to_bytes(8, "big")
    path.write_bytes(data)
    findings = judge(one).findings
    assert (BAD, "offsets", 18) in [(f.level, f.check, f.offset) for f in findings]
    assert pa.Table.from_pylist([f.to_json() for f in findings], FINDINGS_SCHEMA).num_rows == len(findings)


def test_many_gaps_are_not_each_held_against_all_others(tmp_path: Path) -> None:
    """As in a compacted partition whose checkpoint is lost: nearly every batch follows a gap, in sequences too."""
    one, count = replica(tmp_path, 1, [LOG[:1]]), 3000
    each = np.arange(count)
    names = ("segment", "position", "length", "epoch", "producer_id", "producer_epoch", "attributes")
    columns = dict.fromkeys(names, np.zeros(count, np.int64)) | {"base": 2 * each, "last": 2 * each}
    columns["sequence"] = 5 * each % 2**31
    for check in (order_findings, sequence_findings):
        spans = BlindOffsets(Blind(10**9 + 3 * n, 10**9 + 3 * n) for n in range(count))
        assert len(list(check(one, columns, spans))) == count - 1


@pytest.mark.parametrize(
    ("first", "last", "covered", "met"),
    [
        (0, 9, False, False),
        (10, 14, True, True),
        (12, 20, False, True),
        (16, 29, False, False),
        (30, 2**63, False, True),
    ],
)
def test_blind_spans_are_merged(first: int, last: int, covered: bool, met: bool) -> None:
    merged = BlindOffsets([Blind(30, OPEN_END), Blind(13, 15), Blind(10, 12), Blind(11, 11), Blind(25, 20)])
    assert (merged.covers(first, last), merged.meets(first, last)) == (covered, met)


@pytest.mark.parametrize("base", [0, 18])
@pytest.mark.parametrize("reads", [0, 1])
def test_what_could_not_be_read_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int, reads: int
) -> None:
    """A broken connection to a sound follower must not get it set aside."""
    written = [replace(b, producer_id=7, producer_epoch=0, sequence=b.base) for b in LOG]
    leader = replica(tmp_path, 1, [written], is_leader=True, log_end_offset=36)
    follower = replica(tmp_path, 2, [written[:6], written[6:]], log_end_offset=36)
    opened, module = SegmentFile.open, "logyard.spark_jobs.audit.segment.read_chunks"

    def breaking(segment: SegmentFile, kind: str = "log") -> ByteSource:
        source = opened(segment, kind)
        return Breaking(source, reads) if (segment.replica, segment.base_offset) == (2, base) else source

    monkeypatch.setattr(SegmentFile, "open", breaking)
    monkeypatch.setattr(module, partial(read_chunks, chunk_bytes=300))
    verdict = judge(leader, follower)
    assert [(f.level, f.check, f.replica) for f in verdict.findings] == [(BAD, "readable", 2)]
    assert suspects([leader, follower], verdict.findings) == []


class Breaking:
    """A file on a broker that no longer answers after some reads."""

    def __init__(self, source: ByteSource, reads: int) -> None:
        self._source, self._reads, self.size = source, reads, source.size

    def read(self, position: int, size: int) -> Any:
        self._reads -= 1
        if self._reads < 0:
            raise LeaseError("unreachable", "the connection broke")
        return self._source.read(position, size)
