from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.errors import CorruptData
from tests.support.batches import (
    APPEND_TIME,
    CONTROL,
    HORIZON,
    TRANSACTIONAL,
    Batch,
    Rec,
    Seen,
    batch,
    marker,
    read_back,
)
from tests.support.whole_segments import rewrite_group, survey_segments

NOW = 1_700_000_000_000
DAY = 86_400_000


def survey(end: int, **fields: Any) -> Survey:
    return Survey("t", 0, 3, 0, end, NOW, DAY, **{"tombstone_cutoff": end, **fields})


def clean(batches: list[Batch], **fields: Any) -> list[Seen]:
    decision, out = clean_bytes(batches, **fields)
    seen = read_back(out)
    assert all(s.crc_ok for s in seen)
    assert seen[-1].last == batches[-1].last, "the new segment must end where the old ones did"
    assert decision.range_end == batches[-1].last + 1
    return seen


def clean_bytes(batches: list[Batch], **fields: Any) -> tuple[Decision, bytes]:
    buffers = [memoryview(b.encode()) for b in batches]
    decision = survey_segments(buffers, survey(batches[-1].last + 1, **fields))
    return decision, b"".join(bytes(piece) for piece in rewrite_group(buffers, decision, Tally()))


def offsets(seen: list[Seen]) -> list[int]:
    return [r.offset for s in seen for r in s.records]


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    seen = clean(
        [
            batch([Rec(0, b"a", b"1"), Rec(1, b"b", b"1"), Rec(2, b"a", b"2")]),
            batch([Rec(3, b"c", b"1"), Rec(4, b"b", b"2")]),
            batch([Rec(5, b"c", b"2"), Rec(6, b"d", b"1")]),
        ]
    )
    assert offsets(seen) == [2, 4, 5, 6]
    assert [(s.base, s.last) for s in seen] == [(0, 2), (3, 4), (5, 6)]


def test_a_batch_that_survives_whole_is_copied_verbatim() -> None:
    whole = batch([Rec(0, b"a", b"1"), Rec(1, b"b", b"1")], codec=3, epoch=4)
    partial = batch([Rec(2, b"c", b"1"), Rec(3, b"d", b"1")])
    _, out = clean_bytes([whole, partial, batch([Rec(4, b"c", b"2")])])
    assert out.startswith(whole.encode())


def test_records_without_a_key_go() -> None:
    assert offsets(clean([batch([Rec(0, None, b"x"), Rec(1, b"", b"empty key is a key")])])) == [1]


def test_rebuilt_batches_keep_codec_ids_and_timestamps() -> None:
    records = [Rec(0, b"a", b"1", 50), Rec(1, b"b", b"1", 70), Rec(2, b"a", b"2", 60, (("h", None),))]
    fields: dict[str, Any] = {"codec": 4, "producer_id": 9, "producer_epoch": 2, "sequence": 40, "epoch": 6}
    (seen, _) = clean([batch(records, **fields), batch([Rec(3, b"b", b"2")])])
    assert seen.records == [records[2]]
    assert (seen.attributes, seen.producer_id, seen.producer_epoch, seen.sequence) == (4, 9, 2, 40)
    assert (seen.base_timestamp, seen.max_timestamp) == (50, 60)


def test_log_append_time_keeps_its_timestamp() -> None:
    records = [Rec(0, b"a", b"1", 70), Rec(1, b"b", b"1", 70)]
    (seen, _) = clean([batch(records, flags=APPEND_TIME), batch([Rec(2, b"b", b"2")])])
    assert (seen.max_timestamp, seen.records) == (70, [records[0]])


def test_a_tombstone_is_stamped_first_and_goes_when_its_horizon_has_passed() -> None:
    log = [batch([Rec(0, b"a", b"1", 5), Rec(1, b"a", None, 6), Rec(2, b"b", b"1", 7)]), batch([Rec(3, b"c", b"1")])]
    first = clean(log)
    assert offsets(first) == [1, 2, 3]
    assert first[0].attributes & HORIZON
    assert (first[0].base_timestamp, first[0].max_timestamp) == (NOW + DAY, 7)
    assert [r.timestamp for r in first[0].records] == [6, 7]

    again = [
        Batch(s.base, s.last - s.base, tuple(s.records), 0, s.attributes, base_timestamp=s.base_timestamp)
        for s in first
    ]
    assert offsets(clean(again)) == [1, 2, 3], "before its horizon it stays"
    expired = [replace(again[0], base_timestamp=NOW), again[1]]
    assert offsets(clean(expired)) == [2, 3]
    assert offsets(clean(expired, tombstone_cutoff=1)) == [1, 2, 3], "a replica has not cleaned it yet"


def test_aborted_data_goes_and_supersedes_nothing() -> None:
    log = [
        batch([Rec(0, b"a", b"old")]),
        batch([Rec(1, b"a", b"aborted")], flags=TRANSACTIONAL, producer_id=5, producer_epoch=0, sequence=0),
        marker(2, 5, commit=False),
        batch([Rec(3, b"a", b"committed"), Rec(4, b"b", b"1")], flags=TRANSACTIONAL, producer_id=5, sequence=1),
        marker(5, 5, commit=True),
    ]
    aborted = [AbortedTransaction(5, 1, 2, 3)]
    assert offsets(clean(log[:3], aborted=aborted)) == [0, 2]
    assert offsets(clean(log, aborted=aborted)) == [2, 3, 4, 5], "markers are never compared by key"


def test_a_spent_marker_is_stamped_and_then_goes() -> None:
    log = [marker(0, 5, commit=True), batch([Rec(1, b"a", b"1")])]
    stamped, _ = clean(log)
    assert stamped.attributes == TRANSACTIONAL | CONTROL | HORIZON
    assert stamped.base_timestamp == NOW + DAY
    again = replace(log[0], flags=stamped.attributes, base_timestamp=NOW - 1)
    assert offsets(clean([again, log[1]])) == [1]
    assert offsets(clean([again, log[1]], tombstone_cutoff=0)) == [0, 1]


def test_the_last_batch_of_a_live_producer_stays_empty() -> None:
    log = [
        batch([Rec(0, b"a", b"1")], producer_id=5, producer_epoch=1, sequence=7, flags=HORIZON),
        batch([Rec(1, b"a", b"2")]),
    ]
    kept, _ = clean(log, producers={5: ActiveProducer(0, 1)})
    assert (kept.records, kept.producer_id, kept.producer_epoch, kept.sequence) == ([], 5, 1, 7)
    assert kept.attributes == 0
    again = [Batch(0, 0, (), producer_id=5, producer_epoch=1, sequence=7), log[1]]
    assert len(clean(again, producers={5: ActiveProducer(0, 1)})) == 2
    assert len(clean(again)) == 1


def test_the_last_marker_of_a_producer_without_data_stays_empty() -> None:
    log = [
        replace(marker(0, 5, commit=True, producer_epoch=3), flags=0x70, base_timestamp=1),
        batch([Rec(1, b"a", b"1")]),
    ]
    kept, _ = clean(log, producers={5: ActiveProducer(-1, 3)})
    assert (kept.records, kept.is_control, kept.producer_epoch) == ([], True, 3)
    assert len(clean(log, producers={5: ActiveProducer(-1, 4)})) == 1


def test_the_end_of_a_group_is_held_by_a_batch_that_opens_no_transaction() -> None:
    log = [
        batch([Rec(0, b"a", b"1")]),
        batch([Rec(1, b"x", b"aborted")], flags=TRANSACTIONAL, producer_id=5, producer_epoch=0, sequence=0),
    ]
    _, end = clean(log, aborted=[AbortedTransaction(5, 1, 2)])
    assert (end.records, end.attributes, end.producer_id, end.producer_epoch, end.sequence) == ([], 0, -1, -1, -1)


def test_what_lies_outside_the_range_stays_as_it_is() -> None:
    log = [batch([Rec(o, b"a", b"%d" % o)]) for o in range(4)]
    decision = Decision("t", 0, 0, 1, 3, NOW, DAY, 0, OffsetSet([2]))
    out = b"".join(bytes(p) for p in rewrite_group([memoryview(b.encode()) for b in log], decision, Tally()))
    assert [s.base for s in read_back(out)] == [0, 2, 3]


def test_pass_one_does_not_look_beyond_the_range() -> None:
    log = [memoryview(batch([Rec(o, b"a", b"%d" % o)]).encode()) for o in range(4)]
    assert list(survey_segments(log, survey(2)).survivors) == [1]


def test_damage_is_named_by_offset() -> None:
    good = batch([Rec(7, b"a", b"1"), Rec(8, b"a", b"2")]).encode()
    with pytest.raises(CorruptData, match="offset 7"):
        survey_segments([memoryview(good[:-6] + b"\xff" * 6)], survey(10))
    old_format = bytearray(good)
    old_format[16] = 1
    with pytest.raises(CorruptData, match="offset 7: the checksum"):
        survey_segments([memoryview(old_format)], survey(10))
