"""The keys of a log's dirty part, and what they decide, over chunks: the rules of broker/compaction/dirty_keys.py.

Rule 1: a batch of the dirty part whose records were all taken is not opened again: a record of it survives if it is the
        last of its key, and the table has the offsets of these.
Rule 2: it is opened again where the survey has to know more: in a chunk with tombstones, and in a transaction, about
        which the survey decides anew because it sees the log from its beginning.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from logyard.broker.compaction.batch_facts import marker_type
from logyard.broker.compaction.decision import CONTROL, TRANSACTIONAL, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.transactions import AbortedTransaction, Fate, TransactionFilter
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunk_survey import flags_of, offset_set, wanted_batches
from logyard.broker.compiled.chunks import Chunk, CorruptBatch, check_crcs, checked_parts
from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.records.header import parse_header

# 24 bytes a slot, at the lowest load 36; the sorted offsets, and what finding them takes.
BYTES_PER_KEY = 56

NamedChunk = tuple[str, Chunk]
"""A chunk, and the name of its segment."""


class DirtyTable:
    """The last offset of each key of the dirty part."""

    def __init__(self, keys_max: int) -> None:
        """Take at most `keys_max` keys, but always those of one batch, so that every cleaning makes progress."""
        self._keys_max = keys_max
        self._table = KeyTable()
        self._start = 0
        self._last_offsets: Array = np.empty(0, np.int64)
        self._with_tombstones: set[tuple[str, int]] = set()

    def read(self, chunks: Iterable[NamedChunk], start: int, end: int, aborted: Iterable[AbortedTransaction]) -> int:
        """Take the keys of the batches in [start, end); returns the offset below which all were taken.

        Raises CorruptBatch.
        """
        self._start = start
        transactions = TransactionFilter(aborted)
        for name, chunk in chunks:
            headers = chunk.headers
            last = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
            inside = (last >= start) & (headers[:, k.BASE_OFFSET] < end)
            part = chunk if inside.all() else chunk.select(inside)
            for damage in check_crcs(part):
                raise CorruptBatch(damage, name)
            stopped_at = self._take_chunk(name, part, _data_batches(part, transactions))
            if stopped_at is not None:
                end = stopped_at
                break
            if headers[-1, k.BASE_OFFSET] >= end:
                break
        self._last_offsets = self._table.last_offsets()
        return end

    def _take_chunk(self, name: str, chunk: Chunk, wanted: Array) -> int | None:
        for part, rows in _parts(name, chunk, wanted):
            stopped_at = self._take(name, part, rows)
            if stopped_at is not None:
                return stopped_at
        return None

    def _take(self, name: str, chunk: Chunk, wanted: Array) -> int | None:
        """Take the keys of the wanted batches; returns the offset of the batch whose keys may not fit, None if all
        were taken."""
        headers = chunk.headers
        counts = np.where(wanted, headers[:, k.COUNT], 0).cumsum()
        done, before = 0, 0
        while done < len(headers):
            room = self._keys_max - self._table.count
            following = int(np.searchsorted(counts, before + room, side="right"))
            if following <= done:
                ahead = np.flatnonzero(wanted[done:])
                if not len(ahead):
                    return None
                following = done + int(ahead[0]) + 1
                if self._table.count:
                    return int(headers[following - 1, k.BASE_OFFSET])
            self._feed(name, chunk, wanted, slice(done, following))
            done, before = following, int(counts[following - 1])
        return None

    def _feed(self, name: str, chunk: Chunk, wanted: Array, rows: slice) -> None:
        assert chunk.payloads is not None
        tombstones, damaged, fault = self._table.feed(
            chunk.raw, chunk.payloads[rows], chunk.headers[rows], wanted[rows], self._start
        )
        if damaged >= 0:
            raise CorruptBatch(chunk.damage(rows.start + damaged, k.FAULT_TEXT[fault]), name)
        if len(tombstones):
            self._with_tombstones.add((name, chunk.file_position))

    def survey(self, chunks: Iterable[NamedChunk], survey: Survey) -> Decision:
        """Run pass 1 over the chunks of one group, cut as they were for `read`; raises CorruptBatch."""
        kept = [np.empty(0, np.int64)]
        for name, chunk in chunks:
            for damage in check_crcs(chunk):
                raise CorruptBatch(damage, name)
            kept += self._kept(name, chunk, survey)
        return survey.decide_offsets(offset_set(np.concatenate(kept)))

    def _kept(self, name: str, chunk: Chunk, survey: Survey) -> list[Array]:
        """Return the offsets of the chunk's records that are the last of their keys, ascending; adds tombstones to the
        survey."""
        headers = chunk.headers
        wanted = wanted_batches(chunk, survey)
        opened = wanted & ((headers[:, k.BASE_OFFSET] < self._start) | (headers[:, k.ATTRIBUTES] & TRANSACTIONAL != 0))
        if (name, chunk.file_position) in self._with_tombstones:
            opened = wanted
        known = self._known(headers, wanted & ~opened)
        if not opened.any():
            return [known]
        kept = [self._looked_up(name, part, rows, survey) for part, rows in _parts(name, chunk, opened)]
        if not len(known):
            return kept
        both = np.concatenate([known, *kept])
        both.sort()
        return [both]

    def _looked_up(self, name: str, part: Chunk, wanted: Array, survey: Survey) -> Array:
        headers = part.headers
        kept, tombstones, damaged, fault = self._table.look_up(part.raw, part.payloads, headers, wanted)
        if damaged >= 0:
            raise CorruptBatch(part.damage(damaged, k.FAULT_TEXT[fault]), name)
        for offset, index in tombstones.tolist():
            survey.tombstone(offset, int(flags_of(headers[index])), int(headers[index, k.BASE_TIMESTAMP]))
        return kept

    def _known(self, headers: Array, batches: Array) -> Array:
        """Return the last offsets of keys that lie in these batches (bool per batch)."""
        first, last = headers[0, k.BASE_OFFSET], headers[-1, k.BASE_OFFSET] + headers[-1, k.LAST_DELTA]
        found = self._last_offsets[slice(*np.searchsorted(self._last_offsets, (first, last + 1)))]
        if batches.all():
            return found
        return found[batches[np.searchsorted(headers[:, k.BASE_OFFSET], found, side="right") - 1]]


def _parts(name: str, chunk: Chunk, wanted: Array) -> Iterator[tuple[Chunk, Array]]:
    """Yield a chunk in parts in which the wanted batches (a mask) are decompressed, and which those are in each."""
    for part in checked_parts(chunk, name, wanted):
        yield part, wanted[: len(part.headers)]
        wanted = wanted[len(part.headers) :]


def _data_batches(chunk: Chunk, transactions: TransactionFilter) -> Array:
    """Return a mask of the batches whose keys count: not markers, nor data of aborted transactions."""
    attributes = chunk.headers[:, k.ATTRIBUTES]
    wanted = attributes & CONTROL == 0
    for index in np.flatnonzero(attributes & (CONTROL | TRANSACTIONAL)).tolist():
        batch = chunk.batch(index)
        header = parse_header(batch)
        if header.attributes & CONTROL:
            transactions.marker(header.producer_id, header.last_offset, marker_type(header, batch))
        elif transactions.data(header.producer_id, header.last_offset) is Fate.ABORTED:
            wanted[index] = False
    return wanted
