"""The primitive types of the protocol."""

import pytest

from logyard.broker.protocol.primitives import read_uvarint, uvarint


@pytest.mark.parametrize("bits", [0, 1, 6, 7, 8, 13, 14, 15, 20, 21, 22, 28, 29, 32])
def test_an_unsigned_varint_has_seven_bits_a_byte(bits: int) -> None:
    for value in {max(0, (1 << bits) - 2), (1 << bits) - 1, min(1 << bits, 0xFFFFFFFF)}:
        encoded = uvarint(value)
        assert len(encoded) == max(1, -(-value.bit_length() // 7))
        assert read_uvarint(memoryview(encoded + b"\xff"), 0) == (value, len(encoded))
