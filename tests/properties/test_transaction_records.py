"""Any value of __transaction_state is read as it was written, and any other bytes are refused or read, never worse."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.protocol.primitives import compact_string, uvarint
from logyard.broker.transactions import record_format
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
int64, int32, int16 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (64, 32, 16))
partitions = st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=12)


@st.composite
def values(draw: st.DrawFn) -> Stored:
    state = draw(st.sampled_from([s for s in State if s < State.DEAD]))
    held = frozenset() if state is State.EMPTY else draw(partitions)
    return Stored(draw(int64), draw(int16), draw(int32), state, held, draw(int64), draw(int64))


@st.composite
def tagged(draw: st.DrawFn) -> Stored:
    return draw(values())._replace(previous_id=draw(int64), next_id=draw(int64), client_version=draw(int16))


def flexible(stored: Stored, tags: bytes) -> bytes:
    """The value as version 1, with these tags, of which the first three numbers are left out."""
    topics: dict[str, list[int]] = {}
    for topic, number in stored.partitions:
        topics.setdefault(topic, []).append(number)
    body = b"".join(
        compact_string(topic) + uvarint(len(numbers) + 1) + b"".join(n.to_bytes(4, "big") for n in numbers) + b"\x00"
        for topic, numbers in topics.items()
    )
    count = b"\x00" if stored.state is State.EMPTY else uvarint(len(topics) + 1)
    old = record_format.value(stored)
    return b"\x00\x01" + old[2:17] + count + body + old[-16:] + tags


@given(names)
def test_keys(name: str) -> None:
    assert record_format.decode_key(record_format.key(name)) == name


@given(values(), st.lists(st.binary(max_size=9), max_size=4))
def test_values_of_both_versions(stored: Stored, tags: list[bytes]) -> None:
    assert record_format.decode_value(record_format.value(stored)) == stored
    unknown = b"".join(uvarint(n) + uvarint(len(tag)) + tag for n, tag in enumerate(tags, start=3))
    assert record_format.decode_value(flexible(stored, uvarint(len(tags)) + unknown)) == stored


@given(tagged())
def test_values_with_tagged_fields(stored: Stored) -> None:
    assert record_format.decode_value(record_format.value(stored, 1)) == stored


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    with suppress(CorruptData):
        record_format.decode_key(data)
    for version in (b"\x00\x00", b"\x00\x01", b""):
        with suppress(CorruptData):
            record_format.decode_value(version + data)


@given(values(), st.data())
def test_a_value_with_a_changed_byte(stored: Stored, data: st.DataObject) -> None:
    for whole in (record_format.value(stored), flexible(stored, b"\x00")):
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged = bytearray(whole)
        damaged[at] = data.draw(st.integers(0, 255))
        with suppress(CorruptData):
            record_format.decode_value(bytes(damaged))
