"""Messages of formats v0 and v1 through both passes: what stays, under which offsets, in which bytes."""

from collections.abc import Sequence
from typing import Any

import pytest

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.dirty_keys import DirtyKeys
from logyard.broker.compaction.old_formats import expired_offsets
from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.errors import CorruptData
from tests.support.batches import Batch, Rec, batch
from tests.support.old_logs import AnyBatch, OldBatch, old, read_any, seen, sizes
from tests.support.whole_segments import batches_of, rewrite_group, survey_segments

NOW = 1_700_000_000_000
DAY = 86_400_000


def clean(batches: Sequence[AnyBatch], **fields: Any) -> tuple[bytes, Tally]:
    end = batches[-1].last + 1
    survey = Survey("t", 0, 3, 0, end, NOW, DAY, **{"tombstone_cutoff": end, **fields})
    buffer = memoryview(b"".join(b.encode() for b in batches))
    decision = survey_segments([buffer], survey)
    tally = Tally()
    out = b"".join(bytes(piece) for piece in rewrite_group([buffer], decision, tally))
    assert sizes(out)[-1][1] == end - 1, "the new segment must end where the old one did"
    assert tally.records_out == len(read_any(out))
    assert tally.records_in == len(seen(batches))
    return out, tally


def r(offset: int, key: bytes | None, value: bytes | None = b"v") -> Rec:
    return Rec(offset, key, value)


A, B, C, END = b"a", b"b", b"c", b"end"
CASES: dict[str, tuple[list[AnyBatch], list[int]]] = {
    "plain v0": ([old([r(o, k)], 0, 0) for o, k in enumerate([A, B, A, END])], [1, 2, 3]),
    "plain v1": ([old([r(o, k)], 1, 0) for o, k in enumerate([A, B, A, END])], [1, 2, 3]),
    "inside one wrapper of v1": ([old([r(0, A), r(1, B), r(2, A)]), old([r(3, END)])], [1, 2, 3]),
    "inside one wrapper of v0": ([old([r(0, A), r(1, B), r(2, A)], 0), old([r(3, END)], 0)], [1, 2, 3]),
    "snappy": ([old([r(0, A), r(1, B), r(2, A)], 0, 2), old([r(3, END)], 1, 2)], [1, 2, 3]),
    "lz4": ([old([r(0, A), r(1, B), r(2, A)], 1, 3), old([r(3, END)], 1, 3)], [1, 2, 3]),
    "between wrappers": ([old([r(0, A), r(1, B)]), old([r(2, A), r(3, C)]), old([r(4, C)])], [1, 2, 4]),
    "v1 superseded by v2": ([old([r(0, A), r(1, B)]), batch([r(2, A), r(3, END)])], [1, 2, 3]),
    "v2 superseded by v1": ([batch([r(0, A), r(1, B)]), old([r(2, A), r(3, END)])], [1, 2, 3]),
    "v0, v1 and v2": ([old([r(0, A)], 0, 0), old([r(1, A), r(2, B)], 0), old([r(3, A)]), batch([r(4, B)])], [3, 4]),
    "a wrapper that goes whole": ([old([r(0, A), r(1, B)]), old([r(2, A), r(3, B)])], [2, 3]),
    "gaps that an earlier cleaning left": ([old([r(3, A), r(9, B), r(40, C)]), old([r(41, A)])], [9, 40, 41]),
    "gaps in v0": ([old([r(3, A), r(9, B), r(40, C)], 0), old([r(41, A)], 0)], [9, 40, 41]),
    "no key": ([old([r(0, None), r(1, A), r(2, None)]), old([r(3, END)])], [1, 3]),
    "an empty key is a key": ([old([r(0, b""), r(1, b"")]), old([r(2, END)])], [1, 2]),
    "a group that ends in a wrapper cut short": ([old([r(0, A), r(1, B)]), old([r(2, C), r(3, None)])], [0, 1, 2]),
    "a group that ends in nothing": ([old([r(0, A)]), old([r(1, None), r(2, None)], 0)], [0]),
    "a group that ends in a plain message that goes": ([old([r(0, A)], 0, 0), old([r(1, None)], 0, 0)], [0]),
    "a tombstone stays without a word of its segment's age": ([old([r(0, A), r(1, A, None)]), old([r(2, B)])], [1, 2]),
    "empty value is a value": ([old([r(0, A, b"")]), old([r(1, B)])], [0, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_stays(name: str) -> None:
    batches, expected = CASES[name]
    out, _ = clean(batches)
    before = {record.offset: record for record in seen(batches)}
    assert read_any(out) == [before[offset] for offset in expected]
    again, _ = clean(batches, tombstone_cutoff=0)
    assert again == out, "nothing here goes by a horizon"


def test_wrappers_keep_magic_codec_and_kind_of_time() -> None:
    first = old([r(0, A), r(1, B), r(2, A)], 1, 3, append_time=NOW + 5)
    second = old([r(3, A), r(4, C), r(5, A)], 0, 2)
    out, tally = clean([first, second, old([r(6, b"d")], 1, 0)])
    assert sizes(out) == [(1, 1, 3), (0, 5, 2), (1, 6, 0)]
    assert [(f.offset, f.timestamp) for f in read_any(out)][:1] == [(1, NOW + 5)]
    assert (tally.batches_in, tally.batches_verbatim, tally.records_in, tally.records_out) == (3, 1, 7, 4)


def test_a_wrapper_of_create_time_has_the_latest_of_what_is_left() -> None:
    wrapped = old([Rec(0, A, b"v", 70), Rec(1, B, b"v", 50), Rec(2, C, b"v", 60)])
    out, _ = clean([wrapped, old([r(3, A)])])
    assert int.from_bytes(out[18:26], "big") == 60


def test_a_wrapper_that_survives_whole_is_copied() -> None:
    whole = old([r(0, A), r(1, B)], 1, 2)
    out, _ = clean([whole, old([r(2, C)])])
    assert out.startswith(whole.encode())


def test_what_held_a_groups_end_is_held_by_a_batch_of_nothing() -> None:
    out, tally = clean([old([r(0, A), r(1, B)]), old([r(2, C), r(3, None), r(4, None)])])
    assert sizes(out) == [(1, 1, 1), (1, 2, 1), (2, 4, 0)]
    assert tally.batches_out == 3
    placeholder = out[-61:]
    assert int.from_bytes(placeholder[:8], "big") == 3
    assert int.from_bytes(placeholder[57:61], "big") == 0


def test_an_old_tombstone_goes_by_its_segments_age_below_the_cut_off() -> None:
    log = [old([r(0, A), r(1, A, None)]), old([r(2, B, None)], 0, 0), old([r(3, C, None)]), old([r(4, END)])]
    whole = [1, 2, 3, 4]
    assert [f.offset for f in read_any(clean(log)[0])] == whole
    assert [f.offset for f in read_any(clean(log, expired=[(0, 1)])[0])] == [2, 3, 4]
    assert [f.offset for f in read_any(clean(log, expired=[(0, 1), (2, 3)])[0])] == [4]
    assert [f.offset for f in read_any(clean(log, expired=[(2, 9)])[0])] == [1, 4]
    assert [f.offset for f in read_any(clean(log, expired=[(0, 9)], tombstone_cutoff=2)[0])] == [2, 3, 4]
    assert [f.offset for f in read_any(clean(log, expired=[(0, 9)], tombstone_cutoff=0)[0])] == whole


def test_a_batch_of_v2_goes_by_its_horizon_whatever_its_segments_age() -> None:
    log = [batch([r(0, A), r(1, A, None)]), batch([r(2, END)])]
    out, _ = clean(log, expired=[(0, 9)])
    assert [f.offset for f in read_any(out)] == [1, 2]


@pytest.mark.parametrize(
    ("ages", "clean_offset", "expected"),
    [
        ((0, 50, 100, 200), 0, ()),  # nothing has been cleaned
        ((0, 50, 100, 200), 10, ()),  # the horizon is the first one's age less the retention
        ((0, 50, 100, 200), 30, ((0, 9),)),
        ((0, 50, 150, 200), 30, ((0, 9), (10, 19))),
        ((0, 50, 150, 250), 40, ((0, 9), (10, 19), (20, 29))),
        ((300, 50, 150, 250), 35, ((10, 19), (20, 29))),
    ],
)
def test_which_segments_old_tombstones_may_go_of(
    ages: tuple[int, ...], clean_offset: int, expected: tuple[tuple[int, int], ...]
) -> None:
    segments = [(SegmentRange(n * 10, n * 10 + 9, 100), age) for n, age in enumerate(ages)]
    assert expired_offsets(segments, clean_offset, 100) == expected


def test_the_keys_of_the_dirty_part() -> None:
    log: list[Batch | OldBatch] = [
        old([r(0, A), r(1, B)]),
        old([r(2, A)], 0, 0),
        old([r(3, C), r(4, C)], 0, 2),
        batch([r(5, B)]),
    ]
    keys = DirtyKeys(100)
    batches = list(batches_of([memoryview(b"".join(b.encode() for b in log))]))
    assert keys.read(batches, 1, 6, ()) == 6
    assert [keys.last_of(key) for key in (A, B, C, b"x")] == [2, 5, 4, -1]
    few = DirtyKeys(3)
    assert few.read(batches, 0, 6, ()) == 3, "the wrapper that does not fit is not begun"


def test_damage_is_named() -> None:
    sound = old([r(7, A), r(8, B)]).encode()
    for at in (14, 30, len(sound) - 1):
        broken = bytearray(sound)
        broken[at] ^= 1
        with pytest.raises(CorruptData, match="offset 8"):
            survey_segments([memoryview(broken)], Survey("t", 0, 3, 0, 9, NOW, DAY, 9))
