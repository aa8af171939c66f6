"""xxHash32 with seed 0: the checksum of the descriptors of lz4 frames, and of blocks that have one."""

import struct

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF


def xxhash32(data: bytes) -> int:
    """Return the digest; it takes about 0.3 µs per byte, which is enough for descriptors and rare checksums."""
    size = len(data)
    if size >= 16:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        whole = size - size % 16
        for words in struct.iter_unpack("<4I", data[:whole]):
            lanes = [
                _turned((lane + word * _P2) & _MASK, 13) * _P1 & _MASK for lane, word in zip(lanes, words, strict=True)
            ]
        digest = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    else:
        whole, digest = 0, _P5
    digest = (digest + size) & _MASK
    words_end = whole + (size - whole) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[whole:words_end]):
        digest = _turned((digest + word * _P3) & _MASK, 17) * _P4 & _MASK
    for byte in data[words_end:]:
        digest = _turned((digest + byte * _P5) & _MASK, 11) * _P1 & _MASK
    digest = (digest ^ digest >> 15) * _P2 & _MASK
    digest = (digest ^ digest >> 13) * _P3 & _MASK
    return digest ^ digest >> 16


def _turned(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _MASK
