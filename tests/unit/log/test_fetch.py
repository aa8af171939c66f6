"""PartitionLog: reads by offset and by time, while segments are added and removed."""

from collections.abc import Callable

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.log.segment import index_builder
from logyard.broker.log.segment.open_segments import OpenSegments
from tests.support.logs import (
    NOW,
    SMALL,
    content,
    fill,
    new_log,
    offsets,
    opened,
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
        whole = content(log)
        for most in (one, one * 3, one * 3 + 1, one * 4 - 1):
            # As with Apache Kafka the last batch may be incomplete, but never the first.
            assert log.read(0, most, limit_offset=20, min_one=False).load() == whole[:most]
            assert log.read(8, most, limit_offset=20, min_one=False).load() == whole[one * 4 : one * 4 + most]
        assert log.read(0, one * 3 + 1, limit_offset=6, min_one=False).load() == whole[: one * 3]
        assert log.read(0, one - 1, limit_offset=20, min_one=False).size == 0
        assert log.read(0, 0, limit_offset=20, min_one=True).size == one
        limited = log.read(2, 1 << 20, limit_offset=6, min_one=True)
        assert offsets(limited.load()) == [(2, 3), (4, 5)]
        assert log.read(6, 1 << 20, limit_offset=6, min_one=True).size == 0
        inside_a_batch = log.read(0, 1 << 20, limit_offset=5, min_one=True)
        assert offsets(inside_a_batch.load()) == [(0, 1), (2, 3)]

    @pytest.mark.parametrize("limit", [70, 71, 80])
    def test_where_a_limit_far_behind_lies_is_not_looked_for(self, limit: int) -> None:
        disk = MemoryDisk()
        log = new_log(disk, TopicConfig(index_interval_bytes=1))
        fill(log, 40)
        log.close()
        log = opened(disk)  # nothing is remembered of it
        segment, places = log.segments.active, []
        file = segment.log_file()

        class Noted:
            def read_nowait(self, size: int, position: int) -> memoryview | None:
                places.append(position)
                return file.read_nowait(size, position)

        segment.file = Noted()  # type: ignore[assignment]
        whole = content(log)
        places.clear()
        one = len(whole) // 40
        assert log.read(60, one * 3, limit_offset=limit, min_one=True).size == one * 3
        assert max(places) <= one * 30

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

    @pytest.mark.parametrize("cold", [False, True])
    def test_few_small_batches_are_read_once_and_not_after_a_truncation(self, cold: bool) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        fill(log, 40)
        log.close()
        log = opened(disk)  # nothing is remembered of it
        disk.cold = cold
        segment, reads = log.segments.active, []
        segment.file = InterruptedFile(segment.log_file(), lambda: None, on_read=lambda: reads.append(1))  # type: ignore[assignment]
        for taken, cut in ((30, False), (40, True)):
            reads.clear()
            piece = log.read(taken, 1, limit_offset=80, min_one=True)
            if cut:
                log.truncate_to(20)
                fill(log, 40)
            data = piece.load() if cold else piece.load_nowait()
            assert data is not None
            assert offsets(data) == ([] if cut else [(30, 31)])
            assert cut or len(reads) == 1, "what came along with the header was read again"

    def test_what_is_not_cached_is_left_to_load(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        whole = content(log)
        disk.cold = True
        for segment in list(log.segments)[:-1]:
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
        for segment in list(log.segments)[:-1]:
            segment.release()
            disk.open(segment.path(".index"), write=True).write_at(b"\xff\xff\xff", 0)
        assert content(log) == whole

    def test_a_slice_reads_on_after_its_segment_was_deleted_but_not_after_a_truncation(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 40)
        content(log)
        piece = log.read(0, 100, limit_offset=80, min_one=True)
        tail = log.read(70, 100, limit_offset=80, min_one=True)
        assert delete_old_segments(log, NOW + 5000) > 1
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
        assert log.timestamp_search(log.max_timestamp)() == (NOW + 290, 87, 2)

    def test_nothing_below_the_log_start(self) -> None:
        log = new_log()
        log.append_as_leader(produced([b"v"] * 3), 0, now_ms=NOW)
        log.set_high_watermark(3)
        log.advance_log_start(2)
        assert log.timestamp_search(0)() == (NOW, 2, 0)

    def test_an_empty_log_has_none(self) -> None:
        assert new_log().timestamp_search(0)() is None
        assert new_log().timestamp_search(new_log().max_timestamp)() is None


def test_a_thread_keeps_what_it_reads_though_the_segment_lets_go_of_it() -> None:
    log = new_log(config=SMALL)
    fill(log, 40)
    segment = log.segments[0]

    class Impatient(MemoryDisk):
        """Releases the segment whenever a file of it is opened, as another reader's turn might."""

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


class InterruptedFile:
    """A file; during one of its reads, after so many others, something else happens."""

    def __init__(
        self,
        file: DiskFile,
        happen: Callable[[], object],
        reads: int = 0,
        on_read: Callable[[], object] = lambda: None,
    ) -> None:
        self._file, self._happen, self._reads, self._on_read = file, happen, reads, on_read

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        data = self._file.read_nowait(size, position)
        if data is not None:
            self._on_read()
        return data

    def read_at(self, size: int, position: int) -> bytes:
        data = self._file.read_at(size, position)
        self._on_read()
        self._reads -= 1
        if self._reads == -1:
            self._happen()
        return data


class InterruptedDisk(MemoryDisk):
    """`happen` is called while a thread reads the file whose name ends so."""

    def __init__(self) -> None:
        super().__init__()
        self.happen: tuple[str, Callable[[], object]] | None = None

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        file = super().open(path, create=create, write=write)
        if self.happen is None or not path.endswith(self.happen[0]):
            return file
        (_, happen), self.happen = self.happen, None
        return InterruptedFile(file, happen)  # type: ignore[return-value]


class TestCutUnderALookUp:
    """The event loop truncates a log while a thread looks something up in it."""

    def _is_whole(self, log: PartitionLog) -> None:
        """Whatever is asked now, the answer begins with the requested batch, and ends below the limit."""
        end = log.log_end_offset
        for offset in range(log.log_start_offset, end):
            for limit in range(offset + 1, end + 1):
                piece = log.read(offset, 1 << 20, limit_offset=limit, min_one=True)
                data = piece.load_nowait()
                found = offsets(piece.load() if data is None else data)
                assert all(last < limit for _, last in found)
                if found:
                    assert found[0][0] <= offset <= found[0][1]

    @pytest.mark.parametrize(("max_bytes", "reads"), [(1 << 20, 0), (1, 1)])
    def test_positions_are_not_remembered_by_what_was_cut(self, max_bytes: int, reads: int) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        for number in range(8):
            log.append_as_leader(produced([b"x" * 2000 * (number + 1)]), 0, now_ms=NOW)
        log.close()
        log = opened(disk)  # nothing is remembered of it
        disk.cold = True
        # A file of a test in the place of the class that the segment names.
        log.segments.active.file = InterruptedFile(log.segments.active.log_file(), lambda: log.truncate_to(2), reads)  # type: ignore[assignment]
        piece = log.read(2, max_bytes, limit_offset=4, min_one=True)
        assert piece.load() == b""
        assert log.log_end_offset == 2
        fill(log, 3, values=3, epoch=1)
        self._is_whole(log)

    @pytest.mark.parametrize("kind", [".timeindex", ".index"])
    @pytest.mark.parametrize("damaged", [False, True])
    def test_an_index_loaded_during_a_cut_is_not_kept(self, kind: str, damaged: bool) -> None:
        disk = InterruptedDisk()
        log = new_log(disk, SMALL)
        fill(log, 40)
        log.flush()
        segment = log.segments[1]
        cut_at = segment.base_offset + 2
        segment.release()
        if damaged:
            disk.open(segment.path(kind), write=True).write_at(b"\xff\xff\xff", 0)

        def cut() -> None:
            log.truncate_to(cut_at)
            fill(log, 2, values=3, epoch=1)

        piece = log.read(segment.base_offset, 1 << 20, limit_offset=80, min_one=True)
        disk.happen = (f"{segment.base_offset:020}{kind}", cut)
        assert piece.load() == b""
        assert log.log_end_offset == cut_at + 6
        self._is_whole(log)
        assert segment.file is not None, "it is the active one now"
        fill(log, 40, epoch=1)
        assert segment is not log.segments.active
        segment.release()
        index_builder.load(segment, log.config.index_interval_bytes)
        self._is_whole(log)
        assert content(opened(disk, SMALL)) == content(log)

    def test_a_search_by_time_is_asked_again(self) -> None:
        log = new_log(InterruptedDisk(), SMALL)
        for number in range(40):
            log.append_as_leader(produced([b"x" * 50], timestamp=NOW + number), 0, now_ms=NOW)
        search = log.timestamp_search(NOW + 30)
        log.truncate_to(20)
        with pytest.raises(ApiError) as refused:
            search()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log.timestamp_search(NOW + 30)() is None

    def test_nothing_is_read_from_another_log_of_that_name(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 40)
        disk.cold = True
        for segment in list(log.segments)[:-1]:
            segment.release()
        piece = log.read(0, 1 << 20, limit_offset=80, min_one=True)
        log.discard("deleted")
        assert piece.load() == b""


def test_a_damaged_index_is_mended_on_the_disk_too() -> None:
    disk = MemoryDisk()
    log = new_log(disk, SMALL)
    fill(log, 60)
    log.flush()
    segment = log.segments[0]
    sound = bytes(disk.open(segment.path(".index")).read_at(1 << 20, 0))
    segment.release()
    disk.open(segment.path(".index"), write=True).write_at(b"\xff\xff\xff", 0)
    piece = log.read(0, 100, limit_offset=120, min_one=True)
    assert offsets(piece.load())
    assert segment.cache.is_mended
    assert log.read(0, 100, limit_offset=120, min_one=True).load_nowait()
    assert not segment.cache.is_mended
    segment.release()
    segment.load_indexes()
    assert segment.index.floor(segment.base_offset + 9) > 0
    assert bytes(disk.open(segment.path(".index")).read_at(1 << 20, 0))[:3] == sound[:3]
