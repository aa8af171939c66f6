"""The zigzag varints of records (v2), 32 and 64 bits alike."""

from logyard.broker.errors import CorruptData

_SIGN, _MASK = 1 << 63, (1 << 64) - 1


def write_varint(value: int) -> bytes:
    """Encode a signed number in zigzag form, seven bits a byte; one beyond 64 bits as `wrapped` has it."""
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
    """Decode at `pos`: value and next position; raises IndexError at the end, CorruptData beyond 64 bits."""
    byte = data[pos]
    pos += 1
    value = byte & 0x7F
    shift = 7
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
    """Return what is left of a sum in 64 bits, as Java's clients and brokers have it: times and deltas that a client
    chooses may go beyond."""
    return ((value + _SIGN) & _MASK) - _SIGN


def _encode_small(value: int) -> bytes:
    return bytes(((value << 1) ^ (value >> 63),))


_SMALL = [_encode_small(n) for n in range(-64, 64)]
