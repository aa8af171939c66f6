"""Last offset of each key, for tens of millions of keys: an open-addressing table of 128-bit keyed hashes (24 bytes
a slot).

The hash is SipHash-1-3 with 128 bits under a random key per run: whoever chooses record keys cannot make two of
them meet.
"""

import secrets
from typing import Any

import numpy as np

from logyard.spark_jobs.jit import kernel
from logyard.spark_jobs.kernels import (
    BASE_OFFSET,
    COUNT,
    END,
    FAULT_LEFTOVER,
    FAULT_NONE,
    KEY_AT,
    KEY_SIZE,
    OFFSET,
    RECORD_COLUMNS,
    VALUE_SIZE,
    Array,
    _record,
)

_U8, _U13, _U16, _U17, _U21, _U32 = (np.uint64(n) for n in (8, 13, 16, 17, 21, 32))
_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_U64 = np.uint64(64)
_XEE, _XDD = np.uint64(0xEE), np.uint64(0xDD)
LOAD_MAX = 0.62
FIRST_SLOTS = 1 << 12


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
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(raw[at + 8 * i + k]) << np.uint64(8 * k)
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


@kernel
def _put(hashes: Array, offsets: Array, h0: Any, h1: Any, offset: int) -> int:
    """Set the last offset of a key; return 1 if the key is new."""
    mask = offsets.shape[0] - 1
    slot = np.int64(h0 & np.uint64(mask))
    while offsets[slot] >= 0:
        if hashes[slot, 0] == h0 and hashes[slot, 1] == h1:
            if offset > offsets[slot]:
                offsets[slot] = offset
            return 0
        slot = (slot + 1) & mask
    hashes[slot, 0] = h0
    hashes[slot, 1] = h1
    offsets[slot] = offset
    return 1


@kernel
def _rehash(hashes: Array, offsets: Array, into_hashes: Array, into_offsets: Array) -> None:
    for slot in range(offsets.shape[0]):
        if offsets[slot] >= 0:
            _put(into_hashes, into_offsets, hashes[slot, 0], hashes[slot, 1], offsets[slot])


@kernel
def _feed(
    raw: Array,
    payloads: Array,
    headers: Array,
    wanted: Array,
    hashes: Array,
    offsets: Array,
    seeds: Array,
    tombstones: Array,
    tallies: Array,
) -> tuple[int, int]:
    """Put every keyed record of the wanted batches; list tombstones (offset, batch); tally new keys, keyless,
    tombstones, records."""
    row = np.empty(RECORD_COLUMNS, np.int64)
    for i in range(headers.shape[0]):
        if not wanted[i]:
            continue
        at = payloads[i, 0]
        end = payloads[i, 1]
        for _ in range(headers[i, COUNT]):
            fault = _record(raw, at, end, row)
            if fault != FAULT_NONE:
                return i, fault
            at = row[END]
            tallies[3] += 1
            if row[KEY_SIZE] < 0:
                tallies[1] += 1
                continue
            offset = row[OFFSET] + headers[i, BASE_OFFSET]
            h0, h1 = hash_key(raw, row[KEY_AT], row[KEY_SIZE], seeds[0], seeds[1])
            tallies[0] += _put(hashes, offsets, h0, h1, offset)
            if row[VALUE_SIZE] < 0:
                tombstones[tallies[2], 0] = offset
                tombstones[tallies[2], 1] = i
                tallies[2] += 1
        if at != end:
            return i, FAULT_LEFTOVER
    return -1, FAULT_NONE


class KeyTable:
    """Maps the hash of a key to its last offset; grows by doubling."""

    def __init__(self, seed: bytes | None = None) -> None:
        self._seeds = np.frombuffer(seed or secrets.token_bytes(16), np.uint64)
        self._hashes, self._offsets = _slots(FIRST_SLOTS)
        self.count = 0
        self.keyless = 0
        self.records = 0

    @property
    def bytes_held(self) -> int:
        return int(self._hashes.nbytes + self._offsets.nbytes)

    def feed(self, raw: Array, payloads: Array, headers: Array, wanted: Array) -> tuple[Array, int, int]:
        """Take the records of the wanted batches (bool per batch); see kernels.walk_records for the arrays.

        Returns tombstones (n, 2: offset, index of the batch), the index of the first damaged batch (-1: none) and
        its fault.
        """
        expected = int(headers[wanted, COUNT].sum())
        self._make_room(expected)
        tombstones = np.empty((expected, 2), np.int64)
        tallies = np.zeros(4, np.int64)
        damaged, fault = _feed(
            raw, payloads, headers, wanted, self._hashes, self._offsets, self._seeds, tombstones, tallies
        )
        self.count += int(tallies[0])
        self.keyless += int(tallies[1])
        self.records += int(tallies[3])
        return tombstones[: tallies[2]], damaged, fault

    def last_offsets(self) -> Array:
        """Return the last offsets of all keys, ascending (int64)."""
        return np.sort(self._offsets[self._offsets >= 0])

    def _make_room(self, more: int) -> None:
        slots = self._offsets.shape[0]
        while (self.count + more) > slots * LOAD_MAX:
            slots *= 2
        if slots != self._offsets.shape[0]:
            hashes, offsets = _slots(slots)
            _rehash(self._hashes, self._offsets, hashes, offsets)
            self._hashes, self._offsets = hashes, offsets


def _slots(count: int) -> tuple[Array, Array]:
    return np.empty((count, 2), np.uint64), np.full(count, -1, np.int64)
