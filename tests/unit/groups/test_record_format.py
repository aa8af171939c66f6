"""The bytes of __consumer_offsets."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.groups import record_format
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group, GroupState, Member


def test_offset_record_is_kafkas_bytes() -> None:
    key = record_format.offset_key("g", "t", 7)
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07"
    value = record_format.offset_value(OffsetCommit("t", 7, 5, 3, "m", 9))
    assert value == b"\x00\x03" + (5).to_bytes(8, "big") + b"\x00\x00\x00\x03\x00\x01m" + (9).to_bytes(8, "big")
    decoded = record_format.decode_key(key)
    assert decoded == record_format.OffsetKey("g", "t", 7)
    assert isinstance(decoded, record_format.OffsetKey)
    assert record_format.decode_offset(decoded, value) == OffsetCommit("t", 7, 5, 3, "m", 9)


def test_explicit_expiry_is_written_as_version_1() -> None:
    commit = OffsetCommit("t", 0, 5, -1, "", 9, 99)
    value = record_format.offset_value(commit)
    assert value[:2] == b"\x00\x01"
    assert record_format.decode_offset(record_format.OffsetKey("g", "t", 0), value) == commit


def test_group_record_round_trip() -> None:
    group = Group("g", GroupState.STABLE, 4, "consumer", "range", state_since_ms=12)
    group.add(Member("a", "i", "c", "/h", 10, 20, "consumer", (("range", b"meta"),)))
    back = record_format.decode_group("g", record_format.group_value(group, {"a": b"mine"}), 50)
    assert (back.generation, back.protocol, back.leader_id, back.state) == (4, "range", "a", GroupState.STABLE)
    assert back.members["a"].assignment == b"mine"
    assert back.members["a"].metadata("range") == b"meta"
    assert back.static_members == {"i": "a"}


@pytest.mark.parametrize("size", range(1, 40))
def test_cut_record_is_refused(size: int) -> None:
    group = Group("g", GroupState.STABLE, 4, "consumer", "range")
    group.add(Member("a", None, "c", "/h", 10, 20, "consumer", (("range", b"meta"),)))
    with pytest.raises(CorruptData):
        record_format.decode_group("g", record_format.group_value(group, {})[:size], 0)
