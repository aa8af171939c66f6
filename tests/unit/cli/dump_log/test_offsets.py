"""Records of `__consumer_offsets` as JSON; tests/reference holds it against Kafka's own."""

import json

import pytest

from logyard.broker.groups import record_format
from logyard.broker.groups.events import OffsetCommit
from logyard.cli.dump_log import offsets


def test_an_offset_and_its_end() -> None:
    key = record_format.offset_key("g", "t", 3)
    commit = OffsetCommit("t", 3, offset=7, leader_epoch=2, metadata="m", commit_ms=9)
    assert offsets.decode(0, key, record_format.offset_value(commit)) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":3}}',
        '{"version":"3","data":{"offset":7,"leaderEpoch":2,"metadata":"m","commitTimestamp":9}}',
    )
    assert offsets.decode(0, key, None)[1] == "<DELETE>"


def string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else len(text).to_bytes(2, "big") + text.encode()


def blob(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def test_a_group_with_what_its_members_said() -> None:
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + string("t") + b"\xff\xff\xff\xff"
    assignment = b"\x00\x00\x00\x00\x00\x01" + string("t") + b"\x00\x00\x00\x01\x00\x00\x00\x02" + b"\xff\xff\xff\xff"
    member = string("m") + string(None) + string("c") + string("/h") + bytes(4) + bytes(4)
    value = b"\x00\x03" + string("consumer") + b"\x00\x00\x00\x05" + string("range") + string("m") + bytes(8)
    value += b"\x00\x00\x00\x02" + member + blob(subscription) + blob(assignment) + member + blob(b"?") + blob(b"")
    key, payload = offsets.decode(0, record_format.group_key("g"), value)
    assert key == '{"type":"2","data":{"group":"g"}}'
    assert payload is not None
    first, second = json.loads(payload)["data"]["members"]
    assert first["groupInstanceId"] is None
    assert first["subscription"] == {"topics": ["t"], "userData": None}
    assert first["assignment"] == {"assignedPartitions": [{"topic": "t", "partitions": [2]}], "userData": None}
    assert (second["subscription"], second["assignment"]) == ("Pw==", "")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"\x00\x09", b"", "Unknown record type 9 at offset 5, skipping."),
        (b"\x00\x01\x00", b"", "Error at offset 5, skipping. 3 bytes are too few"),
        (record_format.group_key("g"), b"\x00\x04", "Error at offset 5, skipping. version 4 is not supported"),
        (record_format.group_key("g"), b"\x00\x00", "Error at offset 5, skipping. 2 bytes are too few"),
    ],
)
def test_what_cannot_be_read(key: bytes, value: bytes, said: str) -> None:
    assert offsets.decode(5, key, value) == (said, None)


def test_a_record_without_a_key() -> None:
    with pytest.raises(ValueError, match="missing key"):
        offsets.decode(5, None, b"")
