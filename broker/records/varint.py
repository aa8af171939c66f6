"""The zigzag varints of v2 records, of 32 and 64 bits."""

from logyard.broker.errors import CorruptData

_SIGN, _MASK = 1 << 63, (1 << 64) - 1


def write_varint(value: int) -> bytes:
    """Encode a signed number in zigzag form, seven bits a byte; a larger one is wrapped to 64 bits."""
    if -64 <= value < 64:
        return _SMALL[value + 64]
    if not -_SIGN <= value < _SIGN:
        value = wrapped(value)
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: memoryview | bytes | bytearray, pos: int) -> tuple[int, int]:
    """Decode the varint at `pos`: value and next position. Raises IndexError at the end, CorruptData above 64 bits."""
    byte = data[pos]
    # Hot path: nearly all varints have one to three bytes, and a loop takes twice as long.
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value = byte & 0x7F
    byte = data[pos + 1]
    if byte < 128:
        value |= byte << 7
        return (value >> 1) ^ -(value & 1), pos + 2
    value |= (byte & 0x7F) << 7
    byte = data[pos + 2]
    if byte < 128:
        value |= byte << 14
        return (value >> 1) ^ -(value & 1), pos + 3
    value |= (byte & 0x7F) << 14
    pos += 3
    shift = 21
    while byte > 127:
        if shift > 63:
            raise CorruptData("a varint is longer than 64 bits")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift > 63:
        value &= _MASK
    return (value >> 1) ^ -(value & 1), pos


def wrapped(value: int) -> int:
    """Return the number wrapped to signed 64 bits, as in Java: the sum of a client's time and delta may be larger."""
    return ((value + _SIGN) & _MASK) - _SIGN


def _encode_small(value: int) -> bytes:
    return bytes(((value << 1) ^ (value >> 63),))


_SMALL = [_encode_small(n) for n in range(-64, 64)]
