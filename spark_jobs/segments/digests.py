"""A 64-bit digest of a record's contents (offset, timestamp, key, value, headers), the same however it is batched or
compressed.

It distinguishes replicas that should be equal; it does not protect against forged records.
"""

from typing import Any

import numpy as np

from logyard.broker.compiled.jit import kernel, load_word
from logyard.broker.compiled.kernels import BATCH, END, KEY_AT, KEY_SIZE, OFFSET, TIMESTAMP, Array
from logyard.broker.compiled.siphash import hash_key

_SEED0, _SEED1 = np.uint64(0x6C6F6779617264), np.uint64(0x7265636F726473)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


# Odd factors with irregular bits, one per lane.
_LANES = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)))
_LANE0, _LANE1, _LANE2, _LANE3 = _LANES
_HALF = np.uint64(32)


@kernel
def _mix(a: Any, b: Any) -> Any:
    mixed = (a ^ b) * _MIX
    return mixed ^ (mixed >> _SHIFT)


@kernel
def _step(lane: Any, word: Any, factor: Any) -> Any:
    """Mix a word into a lane; two different words never give the same lane."""
    mixed = (lane ^ word) * factor
    return mixed ^ (mixed >> _HALF)


@kernel
def _digest(raw: Array, at: int, size: int) -> Any:
    """Return a digest of raw[at : at + size]: four lanes, each word goes to the lane of its position."""
    a, b, c, d = _LANE0, _LANE1, _LANE2, _LANE3
    end = at + size
    while end - at >= 32:
        a = _step(a, load_word(raw, at), _LANE0)
        b = _step(b, load_word(raw, at + 8), _LANE1)
        c = _step(c, load_word(raw, at + 16), _LANE2)
        d = _step(d, load_word(raw, at + 24), _LANE3)
        at += 32
    while end - at >= 8:
        a = _step(a, load_word(raw, at), _LANE0)
        at += 8
    word, shift = np.uint64(0), np.uint64(0)
    while at < end:
        word |= np.uint64(raw[at]) << shift
        shift += np.uint64(8)
        at += 1
    b = _step(_step(b, word, _LANE1), np.uint64(size), _LANE1)
    return _step(_step(_step(a, b, _LANE2), c, _LANE3), d, _LANE0)


@kernel
def _record_hashes(raw: Array, records: Array, out: Array) -> None:
    for i in range(records.shape[0]):
        row = records[i]
        # From the key's length on, a record's bytes do not depend on its batch: key, value and headers with their
        # lengths. The length of the key stands right before it; null and empty differ by it, so take it in as a
        # number.
        digest = _digest(raw, row[KEY_AT], row[END] - row[KEY_AT])
        digest = _mix(digest, np.uint64(row[KEY_SIZE]))
        digest = _mix(digest, np.uint64(row[OFFSET]))
        out[i] = np.int64(_mix(digest, np.uint64(row[TIMESTAMP])))


@kernel
def _sum_by_batch(hashes: Array, records: Array, out: Array) -> None:
    for i in range(hashes.shape[0]):
        out[records[i, BATCH]] += hashes[i]


def record_hashes(raw: Array, records: Array) -> Array:
    """Return one int64 per row of the record matrix."""
    out = np.empty(len(records), np.int64)
    _record_hashes(raw, records, out)
    return out


def batch_hashes(raw: Array, records: Array, batches: int) -> Array:
    """Return the wrapping sum of the records' hashes per batch (int64); the total does not depend on the batches."""
    out = np.zeros(batches, np.int64)
    if len(records):
        _sum_by_batch(record_hashes(raw, records), records, out)
    return out


@kernel
def _key_hashes(raw: Array, records: Array, out: Array) -> None:
    for i in range(records.shape[0]):
        size = records[i, KEY_SIZE]
        if size < 0:
            out[i] = 0
        else:
            high, low = hash_key(raw, records[i, KEY_AT], size, _SEED0, _SEED1)
            out[i] = np.int64(_mix(high, low) | np.uint64(1))


@kernel
def _key_entries(raw: Array, bounds: Array, offsets: Array, seeds: Array, out: Array) -> None:
    for i in range(offsets.shape[0]):
        at = int(bounds[i])
        high, low = hash_key(raw, at, int(bounds[i + 1]) - at, seeds[0], seeds[1])
        out[i, 0] = high
        out[i, 1] = low
        out[i, 2] = np.uint64(offsets[i] + 1)


def key_entries(raw: Array, bounds: Array, offsets: Array, seed: bytes) -> Array:
    """Return the hashes of keys and their offsets plus one, as `KeyTable.merge` takes them (n, 3: uint64).

    :param bounds: where each key begins in `raw`, and the last ends (int32).
    :param seed: 16 bytes.
    """
    out = np.empty((len(offsets), 3), np.uint64)
    _key_entries(raw, bounds, offsets, np.frombuffer(seed, np.uint64), out)
    return out


def key_hashes(raw: Array, records: Array) -> Array:
    """Return one int64 per row: a digest of the key, never 0; 0 if there is no key."""
    out = np.empty(len(records), np.int64)
    _key_hashes(raw, records, out)
    return out
