"""PartitionLog: what is read, by offset and by time, while segments come and go."""

import pytest

from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.log.disk import DiskFile
from logyard.broker.log.memory_disk import MemoryDisk
from logyard.broker.log.open_segments import OpenSegments
from logyard.broker.topic_config import TopicConfig
from tests.support.logs import (
    NOW,
    SMALL,
    content,
    fill,
    new_log,
    offsets,
    produced,
    refusal,
)


class TestRead:
    def test_a_fetch_inside_a_batch_gets_the_whole_batch(self) -> None:
        log = new_log()
        fill(log, 3, values=10)
        piece = log.read(15, 1, limit_offset=30, min_one=True)
        assert offsets(piece.load()) == [(10, 19)]

    def test_bounds(self) -> None:
        log = new_log()
        fill(log, 10)
        one = len(content(log)) // 10
        sized = log.read(0, one * 3 + 1, limit_offset=20, min_one=False)
        assert offsets(sized.load()) == [(0, 1), (2, 3), (4, 5)]
        assert sized.size == one * 3
        assert log.read(0, one - 1, limit_offset=20, min_one=False).size == 0
        assert log.read(0, 0, limit_offset=20, min_one=True).size == one
        limited = log.read(2, 1 << 20, limit_offset=6, min_one=True)
        assert offsets(limited.load()) == [(2, 3), (4, 5)]
        assert log.read(6, 1 << 20, limit_offset=6, min_one=True).size == 0
        inside_a_batch = log.read(0, 1 << 20, limit_offset=5, min_one=True)
        assert offsets(inside_a_batch.load()) == [(0, 1), (2, 3)]

    def test_out_of_range(self) -> None:
        log = new_log(start_offset=10)
        assert log.read(10, 100, limit_offset=10, min_one=True).load_nowait() == b""
        assert refusal(log.read, 9, 100, limit_offset=10, min_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refusal(log.read, 11, 100, limit_offset=10, min_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize("max_bytes", [1, 150, 333, 5000])
    def test_sealed_segments_are_found_and_let_go_of(self, max_bytes: int) -> None:
        log = new_log(config=SMALL, open_segments=OpenSegments(files_max=2))
        fill(log, 60)
        log.flush()
        whole = b"".join(bytes(s.read(s.size, 0)) for s in log.segments)
        assert content(log, max_bytes=max_bytes) == whole
        assert sum(segment.file is not None for segment in log.segments) <= 3

    def test_what_is_not_cached_is_left_to_load(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        whole = content(log)
        disk.cold = True
        for segment in log.segments[:-1]:
            segment.release()
        piece = log.read(0, 200, limit_offset=120, min_one=True)
        assert piece.is_cold
        assert piece.load_nowait() is None
        assert offsets(piece.load()) == [(0, 1), (2, 3)]
        assert content(log, max_bytes=300) == whole

    def test_a_damaged_index_is_made_again(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        whole = content(log)
        for segment in log.segments[:-1]:
            segment.release()
            disk.open(segment.path(".index"), write=True).write_at(b"\xff\xff\xff", 0)
        assert content(log) == whole

    def test_a_slice_reads_on_after_its_segment_was_deleted_but_not_after_a_truncation(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 40)
        content(log)
        piece = log.read(0, 100, limit_offset=80, min_one=True)
        tail = log.read(70, 100, limit_offset=80, min_one=True)
        assert log.delete_old_segments(NOW + 5000) > 1
        assert offsets(piece.load()) == [(0, 1)]
        log = new_log()
        fill(log, 40)
        tail = log.read(70, 100, limit_offset=80, min_one=True)
        log.truncate_to(60)
        fill(log, 40)
        assert tail.load_nowait() == b""
        assert tail.load() == b""

    def test_a_segment_that_somebody_removed_is_a_storage_error_of_its_own(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        log.segments[0].release()
        disk.remove(log.segments[0].path(".log"))
        with pytest.raises(StorageError, match="00000000000000000000"):
            log.read(0, 100, limit_offset=120, min_one=True)
        assert log.read(100, 100, limit_offset=120, min_one=True).size > 0


class TestTimestamps:
    def test_the_first_record_that_is_not_older(self) -> None:
        log = new_log(config=SMALL)
        for number in range(30):
            log.append_as_leader(produced([b"v"] * 3, timestamp=NOW + number * 10), 2, now_ms=NOW)
        assert log.timestamp_search(0)() == (NOW, 0, 2)
        assert log.timestamp_search(NOW + 101)() == (NOW + 110, 33, 2)
        assert log.timestamp_search(NOW + 290)() == (NOW + 290, 87, 2)
        assert log.timestamp_search(NOW + 291)() is None
        assert log.max_timestamp_search()() == (NOW + 290, 87, 2)

    def test_nothing_below_the_log_start(self) -> None:
        log = new_log()
        log.append_as_leader(produced([b"v"] * 3), 0, now_ms=NOW)
        log.set_high_watermark(3)
        log.advance_log_start(2)
        assert log.timestamp_search(0)() == (NOW, 2, 0)

    def test_an_empty_log_has_none(self) -> None:
        assert new_log().timestamp_search(0)() is None
        assert new_log().max_timestamp_search()() is None


def test_a_thread_keeps_what_it_reads_though_the_segment_lets_go_of_it() -> None:
    log = new_log(config=SMALL)
    fill(log, 40)
    segment = log.segments[0]

    class Impatient(MemoryDisk):
        """Lets the segment go whenever a file of it is opened, as another reader's turn might."""

        def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
            found = log.disk.open(path, create=create, write=write)
            segment.release()
            return found

    segment.release()
    segment.disk = Impatient()
    assert segment.index.floor(segment.base_offset) == 0
    assert segment.time_index.floor(0) == segment.base_offset
    assert segment.log_file().size() == segment.size
    assert log.timestamp_search(NOW)() == (NOW, 0, 0)
