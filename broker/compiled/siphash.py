"""SipHash-1-3 with 128 bits, for kernels: the keyed hash of record keys."""

from typing import Any

import numpy as np

from logyard.broker.compiled.jit import kernel, load_word
from logyard.broker.compiled.kernels import Array

_U13, _U16, _U17, _U21, _U32 = (np.uint64(n) for n in (13, 16, 17, 21, 32))
_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_U64 = np.uint64(64)
_XEE, _XDD = np.uint64(0xEE), np.uint64(0xDD)


@kernel
def _rotate(x: Any, by: Any) -> Any:
    return (x << by) | (x >> (_U64 - by))


@kernel
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0 += v1
    v1 = _rotate(v1, _U13) ^ v0
    v0 = _rotate(v0, _U32)
    v2 += v3
    v3 = _rotate(v3, _U16) ^ v2
    v0 += v3
    v3 = _rotate(v3, _U21) ^ v0
    v2 += v1
    v1 = _rotate(v1, _U17) ^ v2
    v2 = _rotate(v2, _U32)
    return v0, v1, v2, v3


@kernel
def hash_key(raw: Array, at: int, size: int, seed0: Any, seed1: Any) -> tuple[Any, Any]:
    """Return the two halves (uint64) of SipHash-1-3-128 of raw[at : at + size]."""
    v0, v1, v2, v3 = seed0 ^ _V0, seed1 ^ _V1 ^ _XEE, seed0 ^ _V2, seed1 ^ _V3
    whole = size // 8
    for i in range(whole):
        word = load_word(raw, at + 8 * i)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = np.uint64(size & 255) << np.uint64(56)
    for k in range(size - 8 * whole):
        word |= np.uint64(raw[at + 8 * whole + k]) << np.uint64(8 * k)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _XEE
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    high = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _XDD
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return high, v0 ^ v1 ^ v2 ^ v3
