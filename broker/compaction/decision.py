"""Pass 1 of a compaction: which records of a log survive.

Rule 1: a survey is fed batch by batch, in offset order, from the first leased segment to `range_end`.
Rule 2: a record survives if it is the last of its key and has a value. A tombstone that is the last of its key survives
        until its delete horizon has passed (KIP-534). Records without a key and aborted data are removed;
        transactions.py decides about markers.
Rule 3: a tombstone or marker is removed only below `tombstone_cutoff`, the offset up to which every assigned replica
        has been cleaned.
The keys are a port: the cleaner keeps those of the dirty part (dirty_keys.py), the Spark jobs have a compiled table.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compaction.transactions import AbortedTransaction, Fate, TransactionFilter
from logyard.broker.records.header import BatchHeader

TRANSACTIONAL = 0x10
CONTROL = 0x20
HORIZON = 0x40
# Not a bit of the protocol: the batch is of a format without a delete horizon (old_formats.py).
OLD_FORMAT = 0x10000


class BatchFacts(NamedTuple):
    """What the survey needs of a batch header; `marker_type` is None except for control batches with a record."""

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    producer_id: int
    producer_epoch: int
    marker_type: int | None = None


def flags_of(header: BatchHeader) -> int:
    """Return the attributes of a batch as `Survey.tombstone` takes them."""
    return header.attributes if header.magic >= 2 else header.attributes | OLD_FORMAT


class KeyMap(Protocol):
    """Last offset of each key."""

    def put(self, key: bytes | memoryview, offset: int) -> None:
        """Record that `key` was written at `offset`; offsets increase."""
        ...

    def drain(self) -> OffsetSet:
        """Return the last offset of every key that was put since the last call."""
        ...


class ActiveProducer(NamedTuple):
    """A live producer: the last offset of its last data batch (-1: only markers are known) and its epoch."""

    last_offset: int
    producer_epoch: int


@dataclass(slots=True)
class Survey:
    """The state of pass 1 over one partition."""

    topic: str
    partition: int
    leader_epoch: int
    range_start: int
    range_end: int
    now_ms: int
    delete_retention_ms: int
    tombstone_cutoff: int
    aborted: Iterable[AbortedTransaction] = ()
    producers: Mapping[int, ActiveProducer] = field(default_factory=dict)
    # [first, last] of the segments whose old tombstones may be removed, ascending (old_formats.expired_offsets).
    expired: Sequence[tuple[int, int]] = ()
    keyless: int = 0
    # The last offsets of the producers, ascending.
    producers_last: "array[int]" = field(init=False)
    _transactions: TransactionFilter = field(init=False)
    # Offsets seen so far, ascending: markers that survive, those of them whose transaction is gone, tombstones whose
    # horizon has not passed, tombstones whose horizon has, batches that stay although empty. There may be millions.
    _markers: "array[int]" = field(default_factory=partial(array, "q"))
    _spent: "array[int]" = field(default_factory=partial(array, "q"))
    _tombstones: "array[int]" = field(default_factory=partial(array, "q"))
    _droppable: "array[int]" = field(default_factory=partial(array, "q"))
    _kept_batches: "array[int]" = field(default_factory=partial(array, "q"))
    # The last offsets of batches that stay as they are (old_formats.OddOffsets).
    _whole: "array[int]" = field(default_factory=partial(array, "q"))

    def __post_init__(self) -> None:
        self._transactions = TransactionFilter(self.aborted)
        self.producers_last = array("q", sorted({p.last_offset for p in self.producers.values()}))

    def batch(self, facts: BatchFacts) -> bool:
        """Add a batch; returns whether its records have to be passed to the key map and to `tombstone`."""
        if facts.base_offset >= self.range_end:
            return False
        if facts.producer_id >= 0 and self._is_last_of_producer(facts):
            self._kept_batches.append(facts.last_offset)
        if facts.attributes & CONTROL:
            self._take_marker(facts)
            return False
        if facts.attributes & TRANSACTIONAL:
            return self._transactions.data(facts.producer_id, facts.last_offset) is Fate.RECORDS
        return True

    def tombstone(self, offset: int, attributes: int, base_timestamp: int) -> None:
        """Add a keyed record without a value, of a batch with these attributes (`flags_of`) and base timestamp."""
        if self._has_passed(offset, attributes, base_timestamp):
            self._droppable.append(offset)
        elif not attributes & OLD_FORMAT:
            self._tombstones.append(offset)

    def whole(self, last_offset: int) -> None:
        """Have a batch stay as it is: its last offset counts as a survivor."""
        self._whole.append(last_offset)

    def next_group(self, range_start: int) -> None:
        """Begin the next decision at `range_start`; open transactions continue."""
        self.range_start = range_start
        offsets = (self._markers, self._spent, self._tombstones, self._droppable, self._kept_batches, self._whole)
        for gathered in offsets:
            del gathered[:]

    def decide(self, keys: KeyMap) -> Decision:
        """Return the decision once every batch has been added."""
        return self.decide_offsets(keys.drain())

    def decide_offsets(self, last_of_key: OffsetSet) -> Decision:
        """Return the decision from the last offset of every key."""
        survivors = last_of_key
        if self._droppable:
            survivors = survivors.without(o for o in self._droppable if o in last_of_key)
        if self._markers or self._whole:
            added = merge(survivors, self._markers, self._whole)
            survivors = OffsetSet((offset for offset, _ in groupby(added)), is_sorted=True)
        stamped = merge(self._spent, (o for o in self._tombstones if o in last_of_key))
        return Decision(
            topic=self.topic,
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            range_start=self.range_start,
            range_end=self.range_end,
            now_ms=self.now_ms,
            delete_retention_ms=self.delete_retention_ms,
            tombstone_cutoff=self.tombstone_cutoff,
            survivors=survivors,
            stamped=OffsetSet(stamped, is_sorted=True),
            kept_batches=OffsetSet(self._kept_batches),
        )

    def _take_marker(self, facts: BatchFacts) -> None:
        fate = self._transactions.marker(facts.producer_id, facts.last_offset, facts.marker_type)
        if facts.marker_type is None:
            return  # it has no records; kept_batches decides about its header
        if fate is Fate.SPENT_MARKER:
            if self._has_passed(facts.last_offset, facts.attributes, facts.base_timestamp):
                return
            self._spent.append(facts.last_offset)
        self._markers.append(facts.last_offset)

    def _has_passed(self, offset: int, attributes: int, base_timestamp: int) -> bool:
        if attributes & OLD_FORMAT:
            return offset < self.tombstone_cutoff and self._is_expired(offset)
        return bool(attributes & HORIZON) and base_timestamp <= self.now_ms and offset < self.tombstone_cutoff

    def _is_expired(self, offset: int) -> bool:
        at = bisect_right(self.expired, offset, key=itemgetter(0)) - 1
        return at >= 0 and offset <= self.expired[at][1]

    def _is_last_of_producer(self, facts: BatchFacts) -> bool:
        producer = self.producers.get(facts.producer_id)
        if producer is None:
            return False
        if producer.last_offset >= 0:
            return facts.last_offset == producer.last_offset
        return bool(facts.attributes & CONTROL) and facts.producer_epoch == producer.producer_epoch
