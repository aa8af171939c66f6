"""The producers of one log: their last batches, their open transactions, and the snapshots of both (facts §17).

Rule 1: an entry is an immutable value; `advance` checks a batch and returns the producer's next entry, and nothing
        is remembered until the bytes are in the log (`ProducerStates.remember`).
Rule 2: only appends of a client or a coordinator are refused; a follower accepts what its leader appended.
Rule 3: the first unstable offset is the first offset of the oldest transaction that is open, or that is
        finished but whose marker lies at or above the high watermark.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.log.guards import Guards
from logyard.broker.log.unstable import Unstable
from logyard.broker.records.crc import crc32c
from logyard.broker.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE

NO_OFFSET = -1
SEQUENCE_MAX = 2**31 - 1
BATCHES_KEPT = 5
SNAPSHOT_VERSION = 1
# Producers: a millisecond's work.
LOOKED_AT_ONCE = 5000

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6


class Origin(Enum):
    """Who appends: a client (all checks), a coordinator (only epochs are checked), or our leader (no checks).

    A coordinator whose markers have a higher epoch than their transactions (`transaction.version` 2) is a RAISING one.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAISING_COORDINATOR = "raising coordinator"
    LEADER = "leader"


class SeenBatch(NamedTuple):
    """One batch of a producer. `offset_delta` is last offset minus first offset; `timestamp` is its largest, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return sequence_before(self.last_sequence, self.offset_delta)


class ProducerEntry(NamedTuple):
    """One producer's state; `batches` oldest first, at most five; `txn_first_offset` -1 outside a transaction."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    txn_first_offset: int = NO_OFFSET
    batches: tuple[SeenBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last data record; -1 if only markers are known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> SeenBatch | None:
        """Return the remembered batch with exactly this epoch and these sequences."""
        if epoch != self.epoch:
            return None
        for seen in self.batches:
            if seen.last_sequence == last_sequence and seen.first_sequence == first_sequence:
                return seen
        return None


class DataBatch(NamedTuple):
    """The fields of a data batch that concern its producer, with the offsets that it has or will have."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    is_transactional: bool


class Marker(NamedTuple):
    """The fields of a transaction marker (a control batch of one record) that concern its producer."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    offset: int
    timestamp: int
    aborted: bool


class CompletedTxn(NamedTuple):
    """A transaction that a marker ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


def sequence_before(sequence: int, steps: int) -> int:
    """Return the sequence number that is `steps` lower; sequences wrap from 2^31 - 1 to 0."""
    return sequence - steps if sequence >= steps else SEQUENCE_MAX - (steps - sequence) + 1


def advance(entry: ProducerEntry | None, batch: DataBatch, origin: Origin) -> ProducerEntry:
    """Return the producer's entry after this data batch.

    Raises ApiError: INVALID_PRODUCER_EPOCH (an older epoch), OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE
    (a plain batch inside an open transaction).
    """
    if entry is not None and origin is not Origin.LEADER:
        check_epoch(entry, batch.epoch, batch.producer_id)
        if origin is Origin.CLIENT:
            _check_sequence(entry, batch)
        if entry.txn_first_offset != NO_OFFSET and not batch.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id}: a batch outside the transaction that began at {entry.txn_first_offset}",
            )
    seen = SeenBatch(batch.last_sequence, batch.last_offset, batch.last_offset - batch.first_offset, batch.timestamp)
    txn_first_offset = NO_OFFSET
    if entry is not None:
        txn_first_offset = entry.txn_first_offset
    if batch.is_transactional and txn_first_offset == NO_OFFSET:
        txn_first_offset = batch.first_offset
    if entry is None or entry.epoch != batch.epoch:
        coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
        return ProducerEntry(
            batch.producer_id, batch.epoch, coordinator_epoch, batch.timestamp, txn_first_offset, (seen,)
        )
    batches = (*entry.batches[1 - BATCHES_KEPT :], seen)
    return ProducerEntry(
        batch.producer_id, batch.epoch, entry.coordinator_epoch, batch.timestamp, txn_first_offset, batches
    )


def end_transaction(
    entry: ProducerEntry | None, marker: Marker, origin: Origin
) -> tuple[ProducerEntry, CompletedTxn | None]:
    """Return the producer's entry after a marker, and the transaction it ended (None if none was open).

    Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED (an older coordinator epoch). From a raising
    coordinator the epoch of the open transaction is too old as well: the marker is of the one before it.
    """
    if entry is None:
        entry = ProducerEntry(marker.producer_id, marker.epoch)
    if origin is not Origin.LEADER:
        check_epoch(entry, marker.epoch, marker.producer_id)
        is_open = entry.txn_first_offset != NO_OFFSET
        if origin is Origin.RAISING_COORDINATOR and is_open and marker.epoch == entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id}: a marker of epoch {marker.epoch}, in which a transaction is open",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {marker.producer_id}: marker of coordinator epoch {marker.coordinator_epoch}, "
                f"{entry.coordinator_epoch} was seen",
            )
    completed = None
    if entry.txn_first_offset != NO_OFFSET:
        completed = CompletedTxn(marker.producer_id, entry.txn_first_offset, marker.offset, marker.aborted)
    batches = entry.batches if marker.epoch == entry.epoch else ()
    ended = ProducerEntry(
        marker.producer_id, marker.epoch, marker.coordinator_epoch, marker.timestamp, NO_OFFSET, batches
    )
    return ended, completed


def check_epoch(entry: ProducerEntry, epoch: int, producer_id: int) -> None:
    """Raise ApiError(INVALID_PRODUCER_EPOCH) where the log knows a newer epoch."""
    if epoch < entry.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id}: epoch {epoch} is older than {entry.epoch}",
        )


def _check_sequence(entry: ProducerEntry, batch: DataBatch) -> None:
    if entry.epoch == NO_PRODUCER_EPOCH:
        return  # its epoch is unknown: any sequence is accepted, as in Kafka
    last = entry.last_sequence
    # A new epoch starts at 0, and so does a producer of which only markers are known (last is -1 then).
    expected = 0 if batch.epoch != entry.epoch or last == SEQUENCE_MAX else last + 1
    if batch.first_sequence != expected:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id}: sequence {batch.first_sequence} at offset {batch.first_offset}, "
            f"{expected} is expected",
        )


class ProducerStates:
    """All producers of one log, and the transactions that hold the last stable offset back.

    `guards` says which producers may begin a transaction here.
    """

    __slots__ = ("_unstable", "entries", "first_unstable_offset", "guards")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        self.guards = Guards()
        begun = ((pid, e.txn_first_offset) for pid, e in self.entries.items() if e.txn_first_offset != NO_OFFSET)
        self._unstable = Unstable(begun)
        self.first_unstable_offset = self._unstable.first_offset()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id → first offset of its open transaction."""
        return dict(self._unstable.open)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction of that epoch in this log."""
        return producer_id in self._unstable.open and self.entries[producer_id].epoch == epoch

    def is_late(self, before_ms: int) -> bool:
        """Whether the oldest open transaction's producer has written nothing since that time."""
        oldest = self._unstable.oldest()
        return oldest is not None and 0 < self.entries[oldest].last_timestamp < before_ms

    def remember(self, entry: ProducerEntry) -> None:
        """Store a producer's next entry, once its batch is in the log."""
        self.entries[entry.producer_id] = entry
        unstable = self._unstable
        if entry.txn_first_offset != NO_OFFSET:
            if unstable.open.get(entry.producer_id) != entry.txn_first_offset:
                unstable.begin(entry.producer_id, entry.txn_first_offset)
                self.first_unstable_offset = unstable.first_offset()
        elif entry.producer_id in unstable.open:
            unstable.end(entry.producer_id)
            self.first_unstable_offset = unstable.first_offset()

    def remember_completed(self, completed: CompletedTxn) -> None:
        """Hold the last stable offset back until the transaction's marker is below the high watermark."""
        self._unstable.hold(completed.first_offset, completed.last_offset)
        self.first_unstable_offset = self._unstable.first_offset()

    def stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after this transaction: the start of the oldest other open one, or past the
        marker if there is none."""
        first = self._unstable.first_offset_besides(completed.producer_id)
        return completed.last_offset + 1 if first is None else first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are below the high watermark now."""
        if self._unstable.high_watermark_moved(high_watermark):
            self.first_unstable_offset = self._unstable.first_offset()

    def expiring(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers silent for `expiration_ms`, except with an open transaction, and guards that are that old.

        It goes a portion a step, and yields how many producers were looked at: between two steps batches may be
        appended, and the log may be cut.
        """
        self.guards.expire(now_ms, expiration_ms)
        left = iter(list(self.entries.values()))
        while portion := list(islice(left, LOOKED_AT_ONCE)):
            for entry in portion:
                is_silent = entry.txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
                if is_silent and self.entries.get(entry.producer_id) is entry:
                    del self.entries[entry.producer_id]
            yield len(portion)

    def cut(self, end: int) -> bool:
        """Forget the batches at or above `end`. Returns False, and changes nothing, if the log has to be read for that.

        It has to be read if there were transactions (an entry does not say where its markers are), or if a producer has
        no remembered batch below `end`.
        """
        kept: dict[int, ProducerEntry] = {}
        for entry in self.entries.values():
            if entry.coordinator_epoch >= 0 or entry.txn_first_offset != NO_OFFSET:
                return False
            if entry.last_offset < end:
                continue
            batches = tuple(seen for seen in entry.batches if seen.last_offset < end)
            if not batches:
                return False
            kept[entry.producer_id] = entry._replace(batches=batches, last_timestamp=batches[-1].timestamp)
        self.entries.update(kept)
        return True

    def adopting(self, others: "ProducerStates") -> Iterator[int]:
        """Remember the producers that only `others` has as it is now. It goes in portions, as `expiring` does."""
        left = iter([entry for producer_id, entry in others.entries.items() if producer_id not in self.entries])
        while portion := list(islice(left, LOOKED_AT_ONCE)):
            for entry in portion:
                if entry.producer_id not in self.entries:
                    self.remember(entry)
            yield len(portion)

    def replace(self, entries: Iterable[ProducerEntry]) -> None:
        """Start over with these entries."""
        self.take_over(ProducerStates(entries))

    def take_over(self, fresh: "ProducerStates") -> None:
        """Start over, after a truncation, with states that nobody else uses, and which a thread may have made."""
        self.entries, self._unstable = fresh.entries, fresh._unstable
        self.first_unstable_offset = fresh.first_unstable_offset


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a `.snapshot`: it holds only the last batch of each producer, as in Kafka."""
    body = bytearray(_SNAPSHOT_HEAD.size)
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else SeenBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)
        body += _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        count += 1
    _SNAPSHOT_HEAD.pack_into(body, 0, SNAPSHOT_VERSION, 0, count)
    _SNAPSHOT_HEAD.pack_into(body, 0, SNAPSHOT_VERSION, crc32c(memoryview(body)[_CRC_FROM:]), count)
    return bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Parse a `.snapshot`; raises CorruptData for another version, a wrong CRC or a wrong size."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptData(f"producer snapshot: {len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptData(f"producer snapshot: version {version}, {SNAPSHOT_VERSION} is expected")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise CorruptData("producer snapshot: its CRC does not match")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptData(f"producer snapshot: {len(data)} bytes for {count} producers")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first = fields
        batches = (SeenBatch(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        entries.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first, batches))
    return entries
