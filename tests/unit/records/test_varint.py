import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.records.varint import read_varint, wrapped, write_varint

EDGES = [
    0,
    1,
    -1,
    63,
    64,
    -64,
    -65,
    8191,
    8192,
    -8192,
    -8193,
    2**20 - 1,
    2**20,
    -(2**20),
    -(2**20) - 1,
    2**31,
    -(2**31),
    2**62,
    -(2**62),
    2**63 - 1,
    -(2**63),
]


@pytest.mark.parametrize("value", EDGES)
def test_numbers_of_64_bits_come_back(value: int) -> None:
    data = write_varint(value)
    assert read_varint(data, 0) == (value, len(data))
    assert len(data) <= 10


@pytest.mark.parametrize(("value", "left"), [(2**63, -(2**63)), (-(2**63) - 1, 2**63 - 1), (2**64 + 7, 7)])
def test_a_sum_beyond_64_bits_wraps_as_javas_does(value: int, left: int) -> None:
    assert wrapped(value) == left
    assert read_varint(write_varint(value), 0)[0] == left


def test_bits_beyond_64_are_nothing_and_bytes_beyond_ten_are_damage() -> None:
    assert read_varint(b"\xff" * 9 + b"\x7f", 0)[0] == read_varint(b"\xff" * 9 + b"\x01", 0)[0] == -(2**63)
    with pytest.raises(CorruptData):
        read_varint(b"\xff" * 11, 0)
    for present in range(5):
        with pytest.raises(IndexError):
            read_varint(b"\xff" * present, 0)
