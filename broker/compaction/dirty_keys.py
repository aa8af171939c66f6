"""The keys of a log's dirty part, which decide about the whole log, as in Kafka's LogCleaner.

Rule 1: below the clean offset every key is there once, so only a record of the dirty part can supersede another.
Rule 2: if the dirty part has more keys than the limit, the range ends before the batch that does not fit, and the next
        cleaning goes on from there.
"""

from array import array
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

from logyard.broker.compaction.batch_facts import marker_type
from logyard.broker.compaction.decision import CONTROL, TRANSACTIONAL
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compaction.old_formats import OddOffsets, keys
from logyard.broker.compaction.passes import Batch
from logyard.broker.compaction.transactions import AbortedTransaction, Fate, TransactionFilter

# What a key costs in a dict of 16-byte digests: the digest, the offset, its slot, and the spare room of the dict.
BYTES_PER_KEY = 200


def digest(key: bytes | memoryview) -> bytes:
    """Return 128 bits that stand for a key, so that long keys cost no more than short ones."""
    return blake2b(key, digest_size=16).digest()


class DirtyKeys:
    """The last offset of each key of the dirty part."""

    def __init__(self, keys_max: int) -> None:
        """Take at most `keys_max` keys, but always those of one batch, so that every cleaning makes progress."""
        self._keys_max = keys_max
        self._last: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def last_of(self, key: bytes | memoryview) -> int:
        """Return the last offset of a key in the dirty part, -1 if it has none there."""
        return self._last.get(digest(key), -1)

    def read(self, batches: Iterable[Batch], start: int, end: int, aborted: Iterable[AbortedTransaction]) -> int:
        """Take the keys of the batches in [start, end); returns the offset below which all were taken.

        Raises CorruptData on a batch that does not parse.
        """
        transactions = TransactionFilter(aborted)
        for header, batch in batches:
            if header.last_offset < start:
                continue
            if header.base_offset >= end:
                break
            if header.attributes & CONTROL:
                transactions.marker(header.producer_id, header.last_offset, marker_type(header, batch))
                continue
            transactional = header.attributes & TRANSACTIONAL
            if transactional and transactions.data(header.producer_id, header.last_offset) is Fate.ABORTED:
                continue
            if self._last and len(self._last) + header.count > self._keys_max:
                return header.base_offset
            with suppress(OddOffsets):
                for offset, key, _has_value in keys(batch, header):
                    if key is not None and offset >= start:
                        self._last[digest(key)] = offset
        return end


class DirtyKeyMap:
    """A survey's key map: a record is the last of its key if the dirty part has no later one."""

    def __init__(self, dirty: DirtyKeys) -> None:
        self._dirty = dirty
        self._kept = array("q")

    def put(self, key: bytes | memoryview, offset: int) -> None:
        if self._dirty.last_of(key) <= offset:
            self._kept.append(offset)

    def drain(self) -> OffsetSet:
        """Return the records put since the last call that are the last of their key."""
        kept, self._kept = self._kept, array("q")
        return OffsetSet(kept, is_sorted=True)
