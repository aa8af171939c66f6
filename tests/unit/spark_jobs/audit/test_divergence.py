from pathlib import Path

import pytest
from crc32c import crc32c

from logyard.broker.compiled.chunks import Chunk, walk
from logyard.broker.compiled.kernels import Array
from logyard.spark_jobs.audit import divergence
from logyard.spark_jobs.audit.divergence import Extent, compare_partition, merged, records_of
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import TRANSACTIONAL, Batch, Rec, batch
from tests.support.segment_files import write_partition
from tests.support.steps import lines_run

FULL = [
    batch([Rec(0, b"a", b"1"), Rec(1, b"b", b"1"), Rec(2, b"a", b"2")]),
    batch([Rec(3, b"c", None), Rec(4, None, b"x")]),
    batch([Rec(5, b"z", b"1")], flags=TRANSACTIONAL, producer_id=3),
    batch([Rec(6, b"b", b"2"), Rec(7, b"d", b"1")]),
]
CLEANED = [Batch(0, 2, (FULL[0].records[2],)), FULL[3]]


def replica(tmp_path: Path, broker: int, batches: list[Batch], clean_offset: int | None = None) -> Replica:
    directory = write_partition(tmp_path / str(broker), "t-0", [batches], clean_offset=clean_offset)
    return of_partition_directory(str(directory), broker)


def compare(*replicas: Replica) -> list[tuple[str, int, int]]:
    found = compare_partition(replicas, [Extent(0, 100)], 8)
    assert all(isinstance(f, Finding) and f.check == "replicas" for f in found)
    return [(f.level, f.replica, f.offset) for f in found]


def test_what_cleaning_explains_is_one_warning(tmp_path: Path) -> None:
    assert compare(replica(tmp_path, 1, FULL), replica(tmp_path, 2, CLEANED, 8)) == [(WARN, 2, 8)]


def test_the_same_records_in_other_batches_are_equal(tmp_path: Path) -> None:
    other = [
        Batch(0, 2, (FULL[0].records[2],), codec=3, base_timestamp=1),
        batch([FULL[3].records[0]]),
        batch([FULL[3].records[1]]),
    ]
    assert compare(replica(tmp_path, 1, CLEANED, 8), replica(tmp_path, 2, other, 8)) == []


def test_a_record_that_nothing_superseded_is_missing(tmp_path: Path) -> None:
    lost = [Batch(6, 1, (FULL[3].records[0],))]
    assert compare(replica(tmp_path, 1, CLEANED, 8), replica(tmp_path, 2, lost, 8)) == [(BAD, 2, 2), (BAD, 2, 7)]


def test_nothing_may_be_missing_above_the_checkpoint(tmp_path: Path) -> None:
    found = compare(replica(tmp_path, 1, FULL), replica(tmp_path, 2, CLEANED, 4))
    assert found == [(BAD, 2, 4), (BAD, 2, 5), (WARN, 2, 4)]


def test_different_records_at_one_offset(tmp_path: Path) -> None:
    changed = [CLEANED[0], batch([Rec(6, b"b", b"2"), Rec(7, b"d", b"other")])]
    assert compare(replica(tmp_path, 1, CLEANED, 8), replica(tmp_path, 2, changed, 8)) == [(BAD, 1, 7)]


def test_batches_whose_records_do_not_parse_are_tried_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk may hold tens of thousands of batches, and all may be damaged."""
    found = replica(tmp_path, 1, [batch([Rec(i, b"k", b"v")]) for i in range(200)])
    size = len(batch([Rec(0, b"k", b"v")]).encode())
    path = Path(found.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 2 * size):
        data[at + 61] = 0x7F
        data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : at + size])).to_bytes(4, "big")
    path.write_bytes(data)
    walked: list[int] = []

    def counted(chunk: Chunk) -> Array:
        walked.append(len(chunk.headers))
        return walk(chunk)

    monkeypatch.setattr(divergence, "walk", counted)
    (part,) = records_of(found.segments[0])
    assert part.offset.tolist() == list(range(1, 200, 2))
    assert sum(walked) <= 3 * 200


def test_a_record_costs_no_step_of_its_own(tmp_path: Path) -> None:
    """A partition has hundreds of millions."""

    def lines_of(count: int) -> int:
        records = [Rec(i, b"k%d" % (i % 7), b"v%d" % i) for i in range(count)]
        full = replica(tmp_path / str(count), 1, [batch(records)])
        cleaned = replica(tmp_path / str(count), 2, [Batch(0, count - 1, tuple(records[-7:]))], count)
        found: list[Finding] = []
        extents = [Extent(0, count)]
        lines = lines_run(divergence, lambda: found.extend(compare_partition([full, cleaned], extents, count)))
        assert [(f.level, f.replica) for f in found] == [(WARN, 2)]
        assert found[0].message.startswith(f"{count - 7} records")
        return lines

    assert lines_of(5000) == lines_of(50)


def test_the_first_records_that_differ_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    full = [batch([Rec(i, b"k%d" % i, b"v") for i in range(40)])]
    other = [Batch(0, 39, tuple(Rec(i, b"k%d" % i, b"w") for i in range(0, 40, 2)))]
    replicas = replica(tmp_path, 1, full), replica(tmp_path, 2, other, 40)
    found = compare_partition(replicas, [Extent(0, 39)], 40)
    assert [(f.replica, f.offset) for f in found] == [(1 + n % 2, n) for n in range(21)]
    assert found[0].message == "replicas hold different records (held by 1, 2)"
    assert found[1].message == "the record is missing here (held by 1)"
    assert found[20].message == "and 20 more records that differ"


def test_spans_are_merged() -> None:
    assert merged([(5, 9), (0, 2), (3, 4), (20, 21), (8, 12)]) == [Extent(0, 12), Extent(20, 21)]
