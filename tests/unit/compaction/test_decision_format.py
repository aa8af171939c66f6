import json
from array import array
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.errors import CorruptData


def decision(survivors: list[int]) -> Decision:
    return Decision("t", 1, 4, 0, 100, 5, 10, 50, OffsetSet(survivors), OffsetSet([7]), OffsetSet())


@pytest.mark.parametrize("values", [[], [5], [0, 1, 2], [3, 200, 70_000], [1, 2**33, 2**62]])
def test_offset_sets_survive_the_wire(values: list[int]) -> None:
    assert list(OffsetSet.decode(OffsetSet(values).encode())) == values


def test_offset_set_answers_ranges() -> None:
    offsets = OffsetSet([9, 2, 5, 5])
    assert list(offsets) == [2, 5, 9]
    assert 5 in offsets
    assert 6 not in offsets
    assert list(offsets.between(3, 9)) == [5, 9]
    assert list(offsets.between(6, 8)) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"X" + bytes(16),
        OffsetSet([1, 2]).encode()[:-1],
        b"B" + (9).to_bytes(8, "little") + bytes(8),
        OffsetSet([5]).encode()[:9] + b"\xff" * 8 + OffsetSet([5]).encode()[17:],
    ],
)
def test_a_damaged_offset_set_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        OffsetSet.decode(data)


def test_decision_survives_the_wire_and_its_digest_tells_decisions_apart() -> None:
    one, other = decision([1, 2, 90]), decision([1, 2, 91])
    assert Decision.decode(one.encode()) == one
    assert one.sha256 == decision([1, 2, 90]).sha256 != other.sha256
    assert one.horizon_ms == 15
    assert one.summary() == {
        "sha256": one.sha256,
        "range_start": 0,
        "range_end": 100,
        "now_ms": 5,
        "tombstone_cutoff": 50,
        "survivors": 3,
    }


def with_head(**changed: object) -> bytes:
    """A decision with other fields in its head; None leaves one out."""
    data = decision([1, 2]).encode()
    end = 9 + int.from_bytes(data[5:9], "big")
    fields = {name: value for name, value in {**json.loads(data[9:end]), **changed}.items() if value is not None}
    head = json.dumps(fields).encode()
    return data[:5] + len(head).to_bytes(4, "big") + head + data[end:]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LYCD\x02",
        decision([1]).encode()[:20],
        decision([1]).encode()[:-20],
        with_head(range_end="100"),
        with_head(range_end=1e2),
        with_head(topic=1),
        with_head(partition=True),
        with_head(now_ms=None),
        with_head(more=1),
        with_head(sets=None),
        with_head(sets=[1, 2, 3]),
        with_head(sets=["1", 2, 3]),
        with_head(sets=5),
    ],
)
def test_a_damaged_decision_is_refused(data: bytes) -> None:
    for decode in (Decision.decode, Decision.decode_head):
        with pytest.raises(CorruptData):
            decode(data)


def test_a_decision_names_no_more_offsets_than_its_range_has() -> None:
    """A megabyte of gaps of 1 is a thousand million offsets: 9 GB in the process that would apply it."""
    many = OffsetSet(array("q", range(2_000_000)), is_sorted=True)
    assert len(many.encode()) < 20_000
    assert Decision.decode(replace(decision([]), survivors=many, range_end=2_000_000).encode()).survivors == many
    for name in ("survivors", "stamped", "kept_batches"):
        too_many: dict[str, Any] = {name: many}
        data = replace(decision([]), **too_many).encode()
        with pytest.raises(CorruptData, match="2000000 offsets"):
            Decision.decode(data)


def test_no_more_is_unpacked_than_a_set_says_it_has() -> None:
    data = OffsetSet(array("q", range(2_000_000)), is_sorted=True).encode()
    with pytest.raises(CorruptData, match="4 gaps are expected, 5 found"):
        OffsetSet.decode(data[:1] + (5).to_bytes(8, "little") + data[9:])


def test_the_head_of_a_decision_is_read_without_its_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    data = decision([1, 2, 90]).encode()
    monkeypatch.delattr(OffsetSet, "decode")
    head = Decision.decode_head(data)
    assert (head.topic, head.partition, head.range_end, head.tombstone_cutoff) == ("t", 1, 100, 50)
    assert not len(head.survivors)


def test_what_is_gone_is_left_out() -> None:
    offsets = OffsetSet([1, 3, 5, 8])
    assert list(offsets.without([0, 3, 4, 8, 9])) == [1, 5]
    assert list(offsets.without([])) == [1, 3, 5, 8]


def test_a_large_set_is_packed_piece_by_piece() -> None:
    values = [n * 7 + n % 5 for n in range(200_000)]
    offsets = OffsetSet(values, is_sorted=True)
    assert OffsetSet.decode(offsets.encode()) == offsets
    assert len(offsets.encode()) < len(values)
