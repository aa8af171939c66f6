"""Indexes rule bytes out, never records in."""

import random
from pathlib import Path

import pytest

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import CorruptBatch, Damage, read_chunks
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.indexes import byte_window, may_hold_time, offset_of_time
from logyard.spark_jobs.segments.replicas import of_partition_directory
from tests.support.batches import CONTROL, Rec, batch
from tests.support.compaction_model import random_log
from tests.support.segment_files import write_partition


def offsets_in(segment: SegmentFile, window: tuple[int, int]) -> set[int]:
    found: set[int] = set()
    for chunk in read_chunks(segment.open(), *window):
        assert not isinstance(chunk, Damage), "a window begins and ends between batches"
        for row in chunk.headers:
            base = int(row[k.BASE_OFFSET])
            found.update(range(base, base + int(row[k.LAST_DELTA]) + 1))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_window_holds_all_of_its_range_and_little_more(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 80)
    directory = write_partition(tmp_path, "t-0", [log.batches[:60], log.batches[60:]])
    replica = of_partition_directory(str(directory))
    closed = replica.segments[0]
    everything = offsets_in(closed, (0, closed.size))
    for _ in range(40):
        start = rng.randrange(log.end)
        end = start + rng.randrange(1, 20)
        found = offsets_in(closed, byte_window(closed, start, end))
        assert everything & set(range(start, end)) <= found
    narrow = byte_window(closed, closed.base_offset + 5, closed.base_offset + 6)
    assert narrow[1] - narrow[0] < closed.size / 4
    active = replica.segments[1]
    assert byte_window(active, active.base_offset, active.base_offset + 1) == (0, active.size)


def test_zeros_behind_an_index_are_not_entries(tmp_path: Path) -> None:
    log = random_log(random.Random(3), 60)
    directory = write_partition(tmp_path, "t-0", [log.batches[:50], log.batches[50:]])
    replica = of_partition_directory(str(directory))
    wanted = byte_window(replica.segments[0], 20, 25), may_hold_time(replica.segments[0], 2**60)
    for suffix in (".index", ".timeindex"):
        path = directory / f"{replica.segments[0].base_offset:020d}{suffix}"
        path.write_bytes(path.read_bytes() + bytes(240))
    again = of_partition_directory(str(directory)).segments[0]
    assert (byte_window(again, 20, 25), may_hold_time(again, 2**60)) == wanted


@pytest.mark.parametrize("seed", range(5))
def test_a_time_leads_to_the_first_record_not_older(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 60)
    directory = write_partition(tmp_path, "t-0", [log.batches[:25], log.batches[25:45], log.batches[45:]])
    replica = of_partition_directory(str(directory))
    records = [r for b in log.batches if not b.flags & CONTROL for r in b.records]
    times = sorted({r.timestamp for r in records})
    for time in [times[0] - 1, *rng.sample(times, 12), times[-1], times[-1] + 1]:
        expected = next((r.offset for r in records if r.timestamp >= time), None)
        assert offset_of_time(replica, time) == expected


def test_damage_on_the_way_is_said(tmp_path: Path) -> None:
    batches = [batch([Rec(i, b"k", b"v" * 50, 1000 + i)]) for i in range(20)]
    directory = write_partition(tmp_path, "t-0", [batches[:10], batches[10:]])
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    replica = of_partition_directory(str(directory))
    with pytest.raises(CorruptBatch, match="offset 9"):
        offset_of_time(replica, 1009)
