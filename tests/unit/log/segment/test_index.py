"""The three indexes: bytes and look-ups."""

import random
import struct

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.log.segment.index import (
    AbortedTxn,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    encode_aborted,
    preallocated_size,
)


def test_offset_index_bytes() -> None:
    index = OffsetIndex(100)
    index.append(150, 4200)
    index.append(199, 2**31 - 1)
    data = bytes.fromhex("00000032 00001068 00000063 7fffffff")
    assert index.encode() == data
    assert index.encode(1) == data[8:]
    again = OffsetIndex.decode(100, data)
    assert [again.entry(0), again.entry(-1), len(again)] == [(150, 4200), (199, 2**31 - 1), 2]


def test_offset_index_look_ups() -> None:
    index = OffsetIndex(10)
    for offset, position in ((14, 100), (19, 200), (30, 300)):
        index.append(offset, position)
    assert [index.floor(offset) for offset in (10, 13, 14, 18, 19, 29, 30, 99)] == [0, 0, 100, 100, 200, 200, 300, 300]
    assert [index.ceiling_of_position(position) for position in (0, 100, 101, 300, 301)] == [14, 14, 19, 30, None]
    index = index.below(30, 400)
    assert len(index) == 2
    index = index.below(25, 200)
    assert [index.entry(n) for n in range(len(index))] == [(14, 100)]


@pytest.mark.parametrize("data", [b"\0" * 7, bytes.fromhex("00000002 00000001 00000001 00000002"), b"\xff" * 8])
def test_damaged_offset_index(data: bytes) -> None:
    with pytest.raises(CorruptData):
        OffsetIndex.decode(0, data)


def test_time_index_bytes_and_strict_growth() -> None:
    index = TimeIndex(100)
    index.maybe_append(1_700_000_000_000, 150)
    index.maybe_append(1_700_000_000_000, 160)
    index.maybe_append(1_600_000_000_000, 170)
    index.maybe_append(1_700_000_000_001, 180)
    data = bytes.fromhex("0000018bcfe56800 00000032 0000018bcfe56801 00000050")
    assert index.encode() == data
    again = TimeIndex.decode(100, data)
    assert (again.entry(-1), again.last_timestamp) == ((1_700_000_000_001, 180), 1_700_000_000_001)


def test_time_index_look_ups_never_start_too_late() -> None:
    index = TimeIndex(0)
    for timestamp, offset in ((10, 5), (20, 9), (30, 15)):
        index.maybe_append(timestamp, offset)
    assert [index.floor(t) for t in (5, 10, 11, 20, 25, 30, 31)] == [0, 0, 5, 5, 9, 9, 15]
    index = index.below(15)
    assert (len(index), index.last_timestamp) == (2, 20)
    index = index.below(0)
    assert (len(index), index.last_timestamp) == (0, -1)


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_time_index_is_what_its_bytes_say(count: int) -> None:
    rng = random.Random(count)
    times = sorted(rng.sample(range(1 << 62), count))
    entries = [(timestamp, rng.randrange(1 << 31)) for timestamp in times]
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    index = TimeIndex.decode(7, data)
    assert [index.entry(n) for n in range(len(index))] == [(timestamp, 7 + offset) for timestamp, offset in entries]
    assert index.encode() == data
    index.maybe_append((1 << 63) - 1, 8)
    assert index.encode() == data + bytes.fromhex("7fffffffffffffff 00000001")
    for timestamp in [*times, *(timestamp + 1 for timestamp in times), 0]:
        below = [offset for at, offset in entries if at < timestamp]
        assert index.floor(timestamp) == 7 + (below[-1] if below else 0)


@pytest.mark.parametrize("data", [b"\0" * 11, b"\0" * 24, b"\0" * 8 + b"\xff" * 4])
def test_damaged_time_index(data: bytes) -> None:
    with pytest.raises(CorruptData):
        TimeIndex.decode(0, data)


def test_transaction_index_bytes() -> None:
    entries = [AbortedTxn(7, 2, 5, 6), AbortedTxn(8, 3, 9, 10)]
    data = encode_aborted(entries)
    assert data[:34] == bytes.fromhex("0000 0000000000000007 0000000000000002 0000000000000005 0000000000000006")
    assert decode_aborted(data) == entries
    for damaged in (data[:-1], b"\0\1" + data[2:], data[34:] + data[:34]):
        with pytest.raises(CorruptData):
            decode_aborted(damaged)


def test_preallocated_sizes() -> None:
    assert preallocated_size(10_485_760, 8) == 10_485_760
    assert preallocated_size(10_485_760, 12) == 10_485_756
