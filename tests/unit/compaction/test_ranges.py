from logyard.broker.compaction.ranges import SegmentRange, cleanable_end, dirty_ratio, group_segments, is_due

SEGMENTS = [SegmentRange(0, 9, 100, 1000), SegmentRange(10, 19, 100, 2000), SegmentRange(20, 29, 100, 3000)]


def end(**changes: int) -> int:
    fields = {
        "active_base": 30,
        "last_stable_offset": 40,
        "high_watermark": 40,
        "clean_offset": 0,
        "log_start_offset": 0,
        "now_ms": 10_000,
        "min_lag_ms": 0,
    }
    return cleanable_end(SEGMENTS, **(fields | changes))


def test_the_lowest_of_active_base_lso_and_high_watermark_bounds_the_range() -> None:
    assert end() == 30
    assert end(last_stable_offset=12) == 12
    assert end(high_watermark=11, last_stable_offset=12) == 11
    assert end(high_watermark=3, log_start_offset=5) == 5


def test_min_lag_stops_at_the_first_segment_that_is_too_young() -> None:
    assert end(min_lag_ms=7_999) == 30 - 10
    assert end(min_lag_ms=8_001) == 10
    assert end(min_lag_ms=8_000) == 20


def test_min_lag_does_not_look_at_segments_that_are_clean() -> None:
    assert end(min_lag_ms=9_500, clean_offset=10) == 10
    assert end(min_lag_ms=9_500) == 0


def test_dirty_ratio_is_by_whole_segments_below_the_end() -> None:
    assert dirty_ratio(SEGMENTS, clean_offset=0, end_offset=30) == 1.0
    assert dirty_ratio(SEGMENTS, clean_offset=10, end_offset=20) == 0.5
    assert dirty_ratio(SEGMENTS, clean_offset=15, end_offset=20) == 0.5
    assert dirty_ratio([], clean_offset=0, end_offset=0) == 0.0


def due(ratio: float, **changes: int) -> bool:
    fields = {"first_dirty_at_ms": 5_000, "max_lag_ms": 2**62, "now_ms": 10_000, "end_offset": 30, "clean_offset": 0}
    return is_due(ratio, min_ratio=0.5, **(fields | changes))


def test_due_by_ratio_or_by_age() -> None:
    assert due(0.51)
    assert not due(0.5)
    assert due(0.1, max_lag_ms=4_999)
    assert not due(0.1, max_lag_ms=5_000)
    assert not due(0.1, max_lag_ms=0, first_dirty_at_ms=-1)
    assert not due(1.0, end_offset=7, clean_offset=7)


def test_groups_fill_up_to_the_segment_size_and_the_index_span() -> None:
    def bases(segments: list[SegmentRange], **limits: int) -> list[list[int]]:
        return [[s.base_offset for s in g] for g in group_segments(segments, **limits)]

    assert bases(SEGMENTS, segment_bytes=200) == [[0, 10], [20]]
    assert bases(SEGMENTS, segment_bytes=99) == [[0], [10], [20]]
    assert bases(SEGMENTS, segment_bytes=1000) == [[0, 10, 20]]
    far = [SegmentRange(0, 9, 1), SegmentRange(10, 2**31 - 1, 1), SegmentRange(2**31, 2**31, 1)]
    assert bases(far, segment_bytes=1000) == [[0, 10], [2**31]]
    assert bases([s._replace(index_size=8) for s in SEGMENTS], segment_bytes=1000, index_bytes=16) == [[0, 10], [20]]
