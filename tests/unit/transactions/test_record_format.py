"""The bytes of __transaction_state."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.protocol.primitives import compact_string
from logyard.broker.transactions import record_format
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored

PARTITIONS = frozenset({TopicPartition("b", 1), TopicPartition("a", 7), TopicPartition("a", 3)})
OPEN = Stored(4711, 3, 60_000, State.ONGOING, PARTITIONS, 2_000, 1_000)


def test_a_key_is_kafkas_bytes() -> None:
    assert record_format.key("idé") == b"\x00\x00\x00\x04id\xc3\xa9"
    assert record_format.decode_key(b"\x00\x00\x00\x04id\xc3\xa9") == "idé"
    assert record_format.decode_key(b"\x00\x01anything") is None


def test_a_value_is_kafkas_bytes() -> None:
    head = b"\x00\x00" + (4711).to_bytes(8, "big") + b"\x00\x03" + (60_000).to_bytes(4, "big")
    times = (2_000).to_bytes(8, "big") + (1_000).to_bytes(8, "big")
    topics = b"\x00\x00\x00\x02" + b"\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x07"
    topics += b"\x00\x01b\x00\x00\x00\x01\x00\x00\x00\x01"
    assert record_format.value(OPEN) == head + b"\x01" + topics + times
    assert record_format.decode_value(record_format.value(OPEN)) == OPEN


def test_partitions_are_null_where_the_state_is_empty_and_none_where_it_is_complete() -> None:
    empty = Stored(1, 0, 5, State.EMPTY, updated_ms=9)
    assert record_format.value(empty)[17:21] == b"\xff" * 4
    complete = Stored(1, 0, 5, State.COMPLETE_COMMIT, updated_ms=9, start_ms=8)
    assert record_format.value(complete)[17:21] == b"\x00" * 4
    for stored in (empty, complete):
        assert record_format.decode_value(record_format.value(stored)) == stored


def test_the_flexible_version_is_read() -> None:
    head = b"\x00\x01" + (4711).to_bytes(8, "big") + b"\x00\x03" + (60_000).to_bytes(4, "big") + b"\x01"
    topics = b"\x03" + compact_string("a") + b"\x03\x00\x00\x00\x03\x00\x00\x00\x07\x00"
    topics += compact_string("b") + b"\x02\x00\x00\x00\x01\x00"
    times = (2_000).to_bytes(8, "big") + (1_000).to_bytes(8, "big")
    assert record_format.value(OPEN, 1) == head + topics + times + b"\x00"
    assert record_format.decode_value(head + topics + times + b"\x00") == OPEN
    # Previous and next producer id, the client's transaction version, and what a later Kafka may add.
    ids = b"\x00\x08" + (7).to_bytes(8, "big") + b"\x01\x08" + (8).to_bytes(8, "big")
    tags = ids + b"\x02\x02\x00\x02"
    raised = OPEN._replace(previous_id=7, next_id=8, client_version=2)
    assert record_format.value(raised, 1) == head + topics + times + b"\x03" + tags
    assert record_format.decode_value(record_format.value(raised, 1)) == raised
    assert record_format.decode_value(head + topics + times + b"\x04" + tags + b"\x09\x01?") == raised
    assert record_format.decode_value(record_format.value(raised)) == OPEN, "version 0 has none of the three"


@pytest.mark.parametrize("tag", [b"\x00\x07" + b"\x00" * 7, b"\x02\x01\x02", b"\x01\x09" + b"\x00" * 9])
def test_a_tagged_field_of_another_size_is_refused(tag: bytes) -> None:
    with pytest.raises(CorruptData):
        record_format.decode_value(record_format.value(OPEN, 1)[:-1] + b"\x01" + tag)


@pytest.mark.parametrize("version", [-1, 2, 255])
def test_an_unknown_version_of_a_value_is_refused(version: int) -> None:
    with pytest.raises(CorruptData, match="0 and 1 are known"):
        record_format.decode_value(version.to_bytes(2, "big", signed=True) + record_format.value(OPEN)[2:])


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE, 8, 255])
def test_a_state_that_is_never_stored_is_refused(state: int) -> None:
    value = bytearray(record_format.value(OPEN))
    value[16] = state
    with pytest.raises(CorruptData):
        record_format.decode_value(bytes(value))


@pytest.mark.parametrize("version", [0, 1])
def test_a_cut_value_is_refused(version: int) -> None:
    whole = record_format.value(OPEN._replace(previous_id=7), version)
    for size in range(len(whole)):
        with pytest.raises(CorruptData):
            record_format.decode_value(whole[:size])
