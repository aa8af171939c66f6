"""A search by time on the event loop finds what the thread finds, or leaves it to the thread."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from logyard.broker.errors import ApiError
from logyard.broker.log.disk.memory import MemoryFile
from logyard.broker.log.segment import timestamps
from logyard.broker.log.segment.scan import NotCached
from logyard.broker.log.segment.segment import Segment
from tests.support.logs import NOW, SMALL, new_log, produced


@pytest.mark.parametrize("seed", range(30))
def test_both_ways_find_the_same(seed: int) -> None:
    rng = random.Random(seed)
    log = new_log(config=SMALL)
    for number in range(60):
        codec = rng.choice([0, 0, 0, 2])
        values = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 5))]
        moment = NOW + number * 10 + rng.randrange(-30, 30)
        log.append_as_leader(produced(values, timestamp=moment, compression=codec), 0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(rng.randrange(log.log_end_offset // 2))
    seen = Counter[str]()
    for moment in range(NOW - 50, NOW + 700, 7):
        wanted = log.timestamp_search(moment)()
        try:
            assert log.find_late_now(moment) == wanted
            seen["now"] += 1
        except NotCached:
            seen["in a thread"] += 1
    assert seen["now"] > 5, seen
    assert seen["in a thread"] > 5, seen


def test_a_record_later_than_all_needs_no_thread() -> None:
    log = new_log()
    assert log.find_late_now(0) is None
    assert log.find_late_now(log.max_timestamp) is None
    log.append_as_leader(produced([b"v"], timestamp=NOW), 0, now_ms=NOW)
    assert log.find_late_now(NOW + 1) is None
    assert log.find_late_now(log.max_timestamp) == (NOW, 0, 0)


@pytest.mark.parametrize(
    "values",
    [[b"x" * timestamps.LITTLE_BYTES], [b"x"] * (timestamps.LITTLE_RECORDS + 1)],
    ids=["large", "many records"],
)
def test_what_a_client_made_large_is_left_to_the_thread(values: list[bytes]) -> None:
    log = new_log()
    log.append_as_leader(produced(values, timestamp=NOW), 0, now_ms=NOW)
    with pytest.raises(NotCached):
        log.find_late_now(NOW)
    assert log.timestamp_search(NOW)() == (NOW, 0, 0)


def test_a_log_that_was_cut_meanwhile_is_not_searched() -> None:
    log = new_log()
    for number in range(4):
        log.append_as_leader(produced([b"v"], timestamp=NOW + number), 0, now_ms=NOW)
    search = log.timestamp_search(NOW + 3)
    log.truncate_to(2)
    with pytest.raises(ApiError):
        search()


def test_a_segment_whose_index_is_not_loaded_is_left_to_the_thread() -> None:
    log = new_log(config=SMALL)
    for number in range(60):
        log.append_as_leader(produced([b"x" * 50], timestamp=NOW + number), 0, now_ms=NOW)
    log.flush()
    log.segments[0].release()
    with pytest.raises(NotCached):
        log.find_late_now(NOW)
    assert log.timestamp_search(NOW)() == (NOW, 0, 0)


def test_a_batch_of_which_only_the_header_is_in_memory_is_left_to_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs would hold up the event loop, and with it every client."""
    log = new_log()
    log.append_as_leader(produced([b"x" * 8000], timestamp=NOW), 0, now_ms=NOW)
    read_now = MemoryFile.read_nowait

    def first_page_alone(file: MemoryFile, size: int, position: int) -> memoryview | None:
        return read_now(file, size, position) if position + size <= 4096 else None

    monkeypatch.setattr(MemoryFile, "read_nowait", first_page_alone)
    with pytest.raises(NotCached):
        log.find_late_now(NOW)
    assert log.timestamp_search(NOW)() == (NOW, 0, 0)


class Counted(list[Segment]):
    """Counts the segments that are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[Segment]:
        for segment in super().__iter__():
            self.seen += 1
            yield segment

    def __getitem__(self, place: Any) -> Any:
        self.seen += not isinstance(place, slice)
        return super().__getitem__(place)


def test_segments_behind_the_first_that_may_have_it_are_not_looked_at() -> None:
    """A request may have a search for each partition, and a log ten thousand segments."""
    log = new_log(config=SMALL)
    for number in range(60):
        log.append_as_leader(produced([b"x" * 50], timestamp=NOW + number), 0, now_ms=NOW)
    assert len(log.segments) > 5
    log.segments.all = counted = Counted(log.segments.all)
    search = log.timestamp_search(NOW + 1)
    assert counted.seen == 2, "to look, and to take it"
    assert search() == (NOW + 1, 1, 0)
    assert counted.seen == 2


def test_segments_before_the_first_that_may_have_it_are_looked_at_once() -> None:
    log = new_log(config=SMALL)
    for number in range(60):
        log.append_as_leader(produced([b"x" * 50], timestamp=NOW + number), 0, now_ms=NOW)
    log.segments.all = counted = Counted(log.segments.all)
    for _ in range(20):
        assert log.find_late_now(NOW + 59) == (NOW + 59, 59, 0)
        log.timestamp_search(NOW + 60)
        assert log.max_timestamp == NOW + 59
    assert counted.seen < len(log.segments)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_segment_that_is_as_late_is_found_whatever_became_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    log = new_log(config=SMALL)
    for number in range(200):
        what = rng.randrange(20)
        end = log.log_end_offset
        if what == 0 and end > log.log_start_offset:
            log.truncate_to(rng.randrange(log.log_start_offset, end))
        elif what == 1 and len(log.segments) > 1:
            count = rng.randrange(1, len(log.segments))
            log.set_high_watermark(end)
            log.advance_log_start(log.segments[count].base_offset)
            log.segments.drop_oldest(count)
        elif what == 2 and rng.random() < 0.2:
            log.truncate_fully(end + 5)
        else:
            moment = NOW + rng.randrange(100)
            log.append_as_leader(produced([b"x" * rng.randrange(60)], timestamp=moment), 0, now_ms=NOW)
        moment = NOW + rng.randrange(-1, 101)
        expected = next((each for each in log.segments if each.max_timestamp >= moment), None)
        assert log.segments.first_as_late(moment) is expected, number
        assert log.segments.max_timestamp == max(each.max_timestamp for each in log.segments)


def test_where_the_first_segment_has_only_what_was_deleted_a_later_one_is_searched() -> None:
    log = new_log(config=SMALL)
    for number in range(60):
        late = number in (0, 40, 59)
        log.append_as_leader(produced([b"x" * 50], timestamp=NOW + 1000 * late + number), 0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(1)
    assert log.segments[0].max_timestamp == NOW + 1000
    assert log.timestamp_search(NOW + 999)() == (NOW + 1040, 40, 0)
    search = log.timestamp_search(NOW + 1050)
    log.segments.drop_oldest(3)
    assert search() == (NOW + 1059, 59, 0)
    assert log.timestamp_search(NOW + 1060)() is None
