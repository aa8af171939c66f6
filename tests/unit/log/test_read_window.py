"""A look-up in a thread and the bytes it finds are one read of the disk."""

from bisect import bisect
from itertools import accumulate
from random import Random

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.read_window import Window
from logyard.broker.records.batch import iter_headers
from tests.support.logs import NOW, content, new_log, offsets, opened, produced


class CountedFile:
    """A log file none of which is in memory; `reads` has the size of each read."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        return None

    def read_at(self, size: int, position: int) -> bytes:
        self.reads.append(size)
        return self._file.read_at(size, position)


def cold_log(sizes: list[int], settings: TopicConfig | None = None) -> tuple[PartitionLog, MemoryDisk]:
    """A log with a batch of one record of each of these sizes, opened anew: nothing is remembered of it."""
    disk = MemoryDisk()
    log = new_log(disk, settings)
    for size in sizes:
        log.append_as_leader(produced([b"x" * size]), 0, now_ms=NOW)
    log.close()
    disk.cold = True
    return opened(disk, settings), disk


def counted(log: PartitionLog) -> CountedFile:
    file = CountedFile(log.segments.active.log_file())
    # A file of a test in the place of the class that the segment names.
    log.segments.active.file = file  # type: ignore[assignment]
    return file


def test_who_reads_on_waits_for_the_disk_once_a_fetch() -> None:
    log, _ = cold_log([16_000] * 200)
    file, at, fetches = counted(log), 0, 0
    while at < 200:
        piece = log.read(at, 400_000, limit_offset=200, min_one=True)
        assert piece.is_cold
        found = offsets(piece.load())
        assert found[0][0] == at
        at, fetches = found[-1][1] + 1, fetches + 1
    assert fetches == 9
    assert len(file.reads) == fetches
    assert max(file.reads) < 400_000 + (128 << 10)


def test_who_begins_somewhere_reads_from_the_entry_before() -> None:
    log, _ = cold_log([16_000] * 200)
    file = counted(log)
    piece = log.read(77, 100_000, limit_offset=200, min_one=True)
    assert offsets(piece.load())[0] == (77, 77)
    assert len(file.reads) == 1


@pytest.mark.parametrize("size", [200_000, 1_000_000])
def test_a_batch_larger_than_was_asked_for_is_read_whole(size: int) -> None:
    log, _ = cold_log([size] * 3)
    file = counted(log)
    for offset in range(3):
        piece = log.read(offset, 50_000, limit_offset=3, min_one=True)
        assert offsets(piece.load()) == [(offset, offset)]
    assert max(file.reads) < size + 1000
    assert log.read(1, 50_000, limit_offset=3, min_one=False).load() == b""


def test_little_is_read_for_who_asks_for_little() -> None:
    log, _ = cold_log([100] * 5000)
    file = counted(log)
    assert offsets(log.read(2500, 1, limit_offset=5000, min_one=True).load()) == [(2500, 2500)]
    assert sum(file.reads) <= 16 << 10


@pytest.mark.parametrize("seed", range(6))
def test_the_same_bytes_as_from_memory(seed: int) -> None:
    """Whatever the sizes of batches, segments and fetches, and wherever it begins and has to end."""
    random = Random(seed)
    sizes = [random.choice([10, 100, 3000, 5000, 70_000, random.randrange(1, 30_000)]) for _ in range(60)]
    segment_bytes, interval = random.choice([80_000, 200_000, 1 << 30]), random.choice([1, 4096, 100_000])
    settings = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    cold, disk = cold_log(sizes, settings)
    whole = b"".join(bytes(segment.read(segment.size, 0)) for segment in cold.segments)
    ends = list(accumulate(header.length for _, header in iter_headers(whole)))  # a batch for each offset
    bases = [segment.base_offset for segment in cold.segments]
    for _ in range(150):
        offset = random.randrange(60)
        limit = random.choice([60, random.randrange(61)])
        most = random.choice([0, 1, 4000, 4096, 20_000, 90_000, 1 << 20, random.randrange(200_000)])
        min_one = random.random() < 0.5
        disk.cold = True
        piece = cold.read(offset, most, limit_offset=limit, min_one=min_one)
        data = bytes(piece.load())
        disk.cold = False
        again = cold.read(offset, most, limit_offset=limit, min_one=min_one).load_nowait()
        if again is None:  # a closed segment whose index is not loaded
            again = cold.read(offset, most, limit_offset=limit, min_one=min_one).load()
        assert data == again
        last = min(limit, bases[bisect(bases, offset)] if offset < bases[-1] else 60)
        begin, end = [0, *ends][offset], [0, *ends][max(last, offset)]
        if end - begin > most and ends[offset] - begin > most:
            most = ends[offset] - begin if min_one else 0  # the first batch comes whole, or not at all
        assert data == whole[begin : min(end, begin + most)]
        for segment in list(cold.segments)[:-1]:
            if random.random() < 0.3:
                segment.release()
    disk.cold = True
    assert len(offsets(content(cold, max_bytes=30_000))) == 60


def test_what_is_not_in_the_window_is_read_by_itself() -> None:
    kept = bytes(range(100))
    asked: list[tuple[int, int]] = []

    def read(size: int, position: int) -> bytes:
        asked.append((size, position))
        return kept[position : position + size]

    window = Window(read, 10, 20)
    assert window.read(20, 10) == kept[10:30]
    assert window.read(1, 29) == kept[29:30]
    assert asked == [(20, 10)]
    assert window.read(2, 29) == kept[29:31]
    assert window.read(5, 7) == kept[7:12]
    assert window.part(2, 29) is None
    assert window.part(5, 7) is None
    assert asked == [(20, 10), (2, 29), (5, 7)]
    at_the_end = Window(read, 90, 20)
    assert at_the_end.part(10, 90) == kept[90:]
    assert at_the_end.part(11, 90) is None
    assert at_the_end.read(11, 90) == kept[90:]
