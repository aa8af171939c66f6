"""Ends of transactions that are not in the log yet: written a little later, together, or not at all.

A transaction is complete when the last of its partitions has its marker. Nobody waits for the record that says so: the
client was answered when the outcome was decided. The record spares the next coordinator from having the same markers
written again, which changes nothing, and the id's next record spares it that too. So most ends of a busy client are
never written: its next transaction has begun before.

Rule 1: an end is written only while nothing else of its id is under way, so that it never comes behind a later state.
Rule 2: it is tried until the log has acknowledged it, or a later state of its id.
"""

from collections.abc import Callable, Sequence

import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import TimerHandle, Timers
from logyard.broker.transactions import record_format
from logyard.broker.transactions.owned_transactions import PER_TURN, LedPartition, OwnedTransactions
from logyard.broker.transactions.ports import KeyValue, StateLog
from logyard.broker.transactions.record_batches import in_batches
from logyard.broker.transactions.transaction import Stored, Transaction

# How long an end waits for the next record of its id, and for other ends.
WRITE_AFTER_S = 0.1
# How long after an end could not be written it is tried again.
WRITE_AGAIN_S = 0.5

End = tuple[LedPartition, str, Stored]

log = structlog.get_logger("logyard.transactions")


class UnwrittenEnds:
    """See the head of this file. `value_version` returns the version in which values are written now."""

    def __init__(
        self,
        owned: OwnedTransactions,
        state_log: StateLog,
        timers: Timers,
        value_version: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._owned, self._log, self._timers = owned, state_log, timers
        self._value_version, self._timeout_ms = value_version, timeout_ms
        self._ends: dict[LedPartition, dict[str, Stored]] = {}
        self._timer: TimerHandle | None = None
        self._due: list[End] = []
        self._next: TimerHandle | None = None

    def add(self, led: LedPartition, transaction: Transaction) -> None:
        """The transaction is complete."""
        self._keep(led, transaction, WRITE_AFTER_S)

    def _keep(self, led: LedPartition, transaction: Transaction, seconds: float) -> None:
        self._ends.setdefault(led, {})[transaction.transactional_id] = transaction.stored
        if self._timer is None:
            self._timer = self._timers.call_later(seconds, self._write_in_portions)

    def write(self) -> None:
        """Write now all that may be written."""
        self._make_due()
        due, self._due = self._due, []
        self._write(due)

    def _write_in_portions(self) -> None:
        """In the next turn at the soonest: this one may have had a portion, the last of those that were due before."""
        self._make_due()
        if self._next is None:
            self._next = self._timers.call_later(0, self._write_portion)

    def _make_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._ends = self._ends, {}
        self._due += [(led, name, end) for led, ends in waiting.items() for name, end in ends.items()]

    def _write_portion(self) -> None:
        """After a failover there may be thousands: they are not all written in one turn of the event loop."""
        self._next = None
        portion, self._due = self._due[:PER_TURN], self._due[PER_TURN:]
        if self._due:
            self._next = self._timers.call_later(0, self._write_portion)
        self._write(portion)

    def _write(self, ends: Sequence[End]) -> None:
        due: dict[LedPartition, list[Transaction]] = {}
        for led, transactional_id, end in ends:
            transaction = self._holder(led, transactional_id, end)
            if transaction is None:
                continue
            if transaction.pending is None:
                due.setdefault(led, []).append(transaction)
            else:
                self._keep(led, transaction, WRITE_AFTER_S)  # what is under way may yet fail
        for led, ended in due.items():
            for batch in in_batches(ended, self._record, self._log.batch_bytes_max()):
                self._append(led, [transaction for transaction, _ in batch], [record for _, record in batch])

    def _record(self, transaction: Transaction) -> KeyValue:
        key = record_format.key(transaction.transactional_id)
        return key, record_format.value(transaction.stored, self._value_version())

    def _holder(self, led: LedPartition, transactional_id: str, end: Stored) -> Transaction | None:
        """Return the id's transaction if this end is still its last state."""
        transaction = led.transactions.get(transactional_id) if self._owned.is_led(led) else None
        return transaction if transaction is not None and transaction.stored is end else None

    def _append(self, led: LedPartition, ended: Sequence[Transaction], records: Sequence[KeyValue]) -> None:
        written = [(transaction.transactional_id, transaction.stored) for transaction in ended]

        def done(appended: ErrorCode) -> None:
            if appended is ErrorCode.NONE:
                return
            again = [found for name, end in written if (found := self._holder(led, name, end)) is not None]
            if again:
                log.warning("ends not stored", partition=led.number, transactions=len(again), error=appended.name)
            for transaction in again:
                self._keep(led, transaction, WRITE_AGAIN_S)

        try:
            self._log.append(led.number, records, self._timeout_ms, done)
        except Exception:
            log.exception("ends not stored", partition=led.number)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)

    def close(self) -> None:
        """Wait no more."""
        for timer in (self._timer, self._next):
            if timer is not None:
                timer.cancel()
        self._timer = self._next = None
