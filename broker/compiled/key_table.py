"""The last offset of each key, for tens of millions of keys: an open-addressing table of 128-bit keyed hashes (24 bytes
per slot).

The hash is SipHash-1-3 with 128 bits and a random seed per run, so that nobody can choose record keys that collide.
Slots are in the order of the hashes: growing copies the old table from one end to the other and frees its memory on the
way, so it never needs twice the memory.
"""

import mmap
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

from logyard.broker.compiled.jit import kernel, prefetch_row
from logyard.broker.compiled.kernels import (
    BASE_OFFSET,
    COUNT,
    END,
    FAULT_LEFTOVER,
    FAULT_NONE,
    KEY_AT,
    KEY_SIZE,
    LAST_DELTA,
    OFFSET,
    RECORD_COLUMNS,
    VALUE_SIZE,
    Array,
    _record,
)
from logyard.broker.compiled.siphash import hash_key
from logyard.broker.errors import LogyardError

_U32 = np.uint64(32)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
LOAD_MAX = 0.75
FIRST_SLOTS = 1 << 12
# Smaller tables grow by doubling, larger ones by an eighth.
DOUBLING_SLOTS = 1 << 20
# 24 bytes a slot, at the lowest load (just grown, two thirds) 36; and the memory for sorting
BYTES_PER_KEY = 40
STEP_RECORDS = 1 << 16
# This many keys are hashed and their slots prefetched before the first of them is put.
AHEAD = 64
_SLICES = 64
H0, H1, NEXT = 0, 1, 2  # a slot: the hash, and the last offset plus one (0: free)


@kernel
def _home(h0: Any, slots: int) -> Any:
    """The slot where the search for a hash begins: ascends with the hash."""
    return np.int64(((h0 >> _U32) * np.uint64(slots)) >> _U32)


@kernel
def _put(table: Array, h0: Any, h1: Any, offset: Any) -> int:
    """Set the last offset of a key; return 1 if the key is new."""
    slots = table.shape[0]
    slot = _home(h0, slots)
    following = np.uint64(offset + 1)
    while table[slot, NEXT] != 0:
        if table[slot, H0] == h0 and table[slot, H1] == h1:
            if following > table[slot, NEXT]:
                table[slot, NEXT] = following
            return 0
        slot += 1
        if slot == slots:
            slot = np.int64(0)
    table[slot, H0] = h0
    table[slot, H1] = h1
    table[slot, NEXT] = following
    return 1


@kernel
def _put_all(table: Array, entries: Array) -> int:
    """Add slots of another table, including free ones; return how many keys are new."""
    count = 0
    for i in range(entries.shape[0]):
        if entries[i, NEXT] != 0:
            count += _put(table, entries[i, H0], entries[i, H1], np.int64(entries[i, NEXT]) - 1)
    return count


@kernel
def _put_whole(table: Array, last_offset: int, seeds: Array) -> int:
    """Have a batch stay whatever comes: its last offset, as if it was that of a key that nobody else has."""
    number = np.uint64(last_offset)
    return _put(table, seeds[0] ^ (number * _SPREAD), seeds[1] ^ number, last_offset)


@kernel
def _feed(
    raw: Array,
    payloads: Array,
    headers: Array,
    wanted: Array,
    first: int,
    last: int,
    start: int,
    table: Array,
    seeds: Array,
    tombstones: Array,
    tallies: Array,
) -> tuple[int, int]:
    """Put every keyed record from offset `start` on of the wanted batches in [first, last); list tombstones (offset,
    batch, the hash's second half); tally new keys, keyless, tombstones, records, odd batches (old_formats.OddOffsets).

    A slot lies anywhere in the table, and waiting for it takes longer than all else: keys are put AHEAD at a time.
    """
    row = np.empty(RECORD_COLUMNS, np.int64)
    ahead = np.empty((AHEAD, 3), np.uint64)
    waiting = 0
    slots = table.shape[0]
    for i in range(first, last):
        if not wanted[i]:
            continue
        at, end = payloads[i, 0], payloads[i, 1]
        before, last_offset = headers[i, BASE_OFFSET] - 1, headers[i, BASE_OFFSET] + headers[i, LAST_DELTA]
        for _ in range(headers[i, COUNT]):
            fault = _record(raw, at, end, row)
            if fault != FAULT_NONE:
                return i, fault
            at = row[END]
            offset = row[OFFSET] + headers[i, BASE_OFFSET]
            if not before < offset <= last_offset:
                tallies[4] += _put_whole(table, last_offset, seeds)
                at = end
                break
            before = offset
            tallies[3] += 1
            if row[KEY_SIZE] < 0:
                tallies[1] += 1
                continue
            if offset < start:
                continue
            h0, h1 = hash_key(raw, row[KEY_AT], row[KEY_SIZE], seeds[0], seeds[1])
            prefetch_row(table, _home(h0, slots))
            ahead[waiting, H0], ahead[waiting, H1], ahead[waiting, NEXT] = h0, h1, np.uint64(offset + 1)
            waiting += 1
            if waiting == AHEAD:
                tallies[0] += _put_all(table, ahead)
                waiting = 0
            if row[VALUE_SIZE] < 0:
                tombstones[tallies[2], 0] = offset
                tombstones[tallies[2], 1] = i
                tombstones[tallies[2], 2] = np.int64(h1)
                tallies[2] += 1
        if at != end:
            return i, FAULT_LEFTOVER
    tallies[0] += _put_all(table, ahead[:waiting])
    return -1, FAULT_NONE


@kernel
def _last_of(table: Array, h0: Any, h1: Any) -> Any:
    """Return the last offset of a key, -1 if it has none."""
    slots = table.shape[0]
    slot = _home(h0, slots)
    while table[slot, NEXT] != 0:
        if table[slot, H0] == h0 and table[slot, H1] == h1:
            return np.int64(table[slot, NEXT]) - 1
        slot += 1
        if slot == slots:
            slot = np.int64(0)
    return np.int64(-1)


@kernel
def _look_up(
    raw: Array,
    payloads: Array,
    headers: Array,
    wanted: Array,
    table: Array,
    seeds: Array,
    kept: Array,
    tombstones: Array,
    tallies: Array,
) -> tuple[int, int]:
    """List the records of the wanted batches whose key has no later offset, and the tombstones among them (offset,
    batch); tally both. Of odd batches the last offset is listed. Returns as `_feed`."""
    row = np.empty(RECORD_COLUMNS, np.int64)
    for i in range(headers.shape[0]):
        if not wanted[i]:
            continue
        at, end = payloads[i, 0], payloads[i, 1]
        before, last_offset = headers[i, BASE_OFFSET] - 1, headers[i, BASE_OFFSET] + headers[i, LAST_DELTA]
        for _ in range(headers[i, COUNT]):
            fault = _record(raw, at, end, row)
            if fault != FAULT_NONE:
                return i, fault
            at = row[END]
            offset = row[OFFSET] + headers[i, BASE_OFFSET]
            if not before < offset <= last_offset:
                if tallies[0] == 0 or kept[tallies[0] - 1] != last_offset:
                    kept[tallies[0]] = last_offset
                    tallies[0] += 1
                at = end
                break
            before = offset
            if row[KEY_SIZE] < 0:
                continue
            h0, h1 = hash_key(raw, row[KEY_AT], row[KEY_SIZE], seeds[0], seeds[1])
            if _last_of(table, h0, h1) > offset:
                continue
            kept[tallies[0]] = offset
            tallies[0] += 1
            if row[VALUE_SIZE] < 0:
                tombstones[tallies[1], 0] = offset
                tombstones[tallies[1], 1] = i
                tallies[1] += 1
        if at != end:
            return i, FAULT_LEFTOVER
    return -1, FAULT_NONE


class TooManyKeys(LogyardError):
    """More keys than the table may hold."""


class KeyTable:
    """Maps the hash of a key to its last offset."""

    def __init__(self, seed: bytes | None = None, keys_max: int | None = None) -> None:
        """Take at most about `keys_max` keys (a step of records more); the seed is 16 bytes."""
        self._seeds = np.frombuffer(seed or secrets.token_bytes(16), np.uint64)
        self._keys_max = keys_max
        self._memory, self._table = _slots(FIRST_SLOTS)
        self.count = 0
        self._odd = 0  # batches, which have a slot too
        self.keyless = 0
        self.records = 0

    def feed(
        self, raw: Array, payloads: Array, headers: Array, wanted: Array, start: int = 0
    ) -> tuple[Array, int, int]:
        """Add the records of the wanted batches (bool per batch) from offset `start` on; kernels.walk_records explains
        the arrays.

        Returns tombstones (n, 3: offset, index of the batch, half of the key's hash), the index of the first damaged
        batch (-1: none) and its fault. Raises TooManyKeys.
        """
        tombstones = [np.empty((0, 3), np.int64)]
        counts = np.where(wanted, headers[:, COUNT], 0).cumsum()
        first = 0
        while first < len(headers):
            before = int(counts[first - 1]) if first else 0
            last = max(int(np.searchsorted(counts, before + STEP_RECORDS, side="right")), first + 1)
            expected = int(counts[last - 1]) - before
            found, damaged, fault = self._step(raw, payloads, headers, wanted, first, last, start, expected)
            tombstones.append(found)
            if damaged >= 0:
                return np.concatenate(tombstones), damaged, fault
            first = last
        return np.concatenate(tombstones), -1, FAULT_NONE

    def _step(
        self,
        raw: Array,
        payloads: Array,
        headers: Array,
        wanted: Array,
        first: int,
        last: int,
        start: int,
        expected: int,
    ) -> tuple[Array, int, int]:
        self._make_room(expected)
        tombstones = np.empty((expected, 3), np.int64)
        tallies = np.zeros(5, np.int64)
        damaged, fault = _feed(
            raw, payloads, headers, wanted, first, last, start, self._table, self._seeds, tombstones, tallies
        )
        self.count += int(tallies[0])
        self.keyless += int(tallies[1])
        self.records += int(tallies[3])
        self._odd += int(tallies[4])
        return tombstones[: tallies[2]].copy(), damaged, fault

    def look_up(self, raw: Array, payloads: Array, headers: Array, wanted: Array) -> tuple[Array, Array, int, int]:
        """Return the offsets of the wanted batches' records whose key has no later offset here, the tombstones among
        them (n, 2: offset, index of the batch), the index of the first damaged batch (-1: none) and its fault."""
        expected = int(headers[wanted, COUNT].sum())
        kept, tombstones = np.empty(expected, np.int64), np.empty((expected, 2), np.int64)
        tallies = np.zeros(2, np.int64)
        damaged, fault = _look_up(raw, payloads, headers, wanted, self._table, self._seeds, kept, tombstones, tallies)
        return kept[: tallies[0]], tombstones[: tallies[1]], damaged, fault

    def last_offsets(self) -> Array:
        """Return the last offsets of all keys, ascending (int64)."""
        held = self._table[:, NEXT]
        offsets: Array = held[held != 0].view(np.int64)
        offsets -= 1
        offsets.sort()
        return offsets

    def merge(self, entries: Array) -> None:
        """Add the `entries` of another table with the same seed (n, 3: uint64). Raises TooManyKeys."""
        self._make_room(len(entries))
        self.count += int(_put_all(self._table, entries))

    def entries(self) -> Array:
        """Return the keys' hashes and last offsets plus one (n, 3: uint64), in the order of the hashes."""
        return self._table[self._table[:, NEXT] != 0]

    def drain(self) -> Array:
        """Return the last offsets of all keys, ascending (int64), and free the table, which cannot be used after."""
        found = []
        for start, end, part in _slices(self._table):
            held = part[:, NEXT]
            found.append(held[held != 0].astype(np.int64))
            _give_back(self._memory, start, end)
        offsets: Array = np.concatenate(found)
        offsets.sort()
        offsets -= 1
        return offsets

    def _make_room(self, more: int) -> None:
        if self._keys_max is not None and self.count > self._keys_max:
            raise TooManyKeys(f"{self.count} keys and more: {self._keys_max} at most are kept in one task")
        slots = len(self._table)
        while (self.count + self._odd + more) > slots * LOAD_MAX:
            slots = slots * 2 if slots < DOUBLING_SLOTS else slots + slots // 8
        if slots != len(self._table):
            memory, table = _slots(slots)
            for start, end, part in _slices(self._table):
                _put_all(table, part)
                _give_back(self._memory, start, end)
            self._memory, self._table = memory, table


def _slots(count: int) -> tuple[mmap.mmap, Array]:
    """Return the mapping and its zeroed slots; a page takes memory only once it is written."""
    memory = mmap.mmap(-1, count * 24, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memory, np.frombuffer(memory, np.uint64).reshape(count, 3)


def _slices(table: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield the table's slots in pieces: bytes from, to, and the piece."""
    step = -(-len(table) // _SLICES)
    for first in range(0, len(table), step):
        piece = table[first : first + step]
        yield first * 24, first * 24 + piece.nbytes, piece


def _give_back(memory: mmap.mmap, start: int, end: int) -> None:
    """Free the whole pages of [start, end); they read as zeros afterwards."""
    start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = end // mmap.PAGESIZE * mmap.PAGESIZE
    if start < end:
        memory.madvise(mmap.MADV_DONTNEED, start, end - start)
