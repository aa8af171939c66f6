"""The shell of the transaction coordinator: leadership and loading, appends, who waits for them.

Decides nothing about a transaction: that is in initialization.py, addition.py, completion.py and expiry.py. Everything
runs on one event loop. A change is decided and appended between two awaits, and made when the log has acknowledged it,
whether or not the client still waits.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock, Now, passed_ms
from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.event_loop import Timers
from logyard.broker.model import TopicPartition
from logyard.broker.replication.coordinator_errors import TOO_LARGE, coordinator_error
from logyard.broker.transactions import (
    addition,
    completion,
    expiry,
    initialization,
    loading,
    raising_end,
    record_format,
)
from logyard.broker.transactions.ends import Ends
from logyard.broker.transactions.events import Description, Initialize, Initialized, Needs, Producer
from logyard.broker.transactions.markers.routing import Completion
from logyard.broker.transactions.markers.runner import MarkerSender
from logyard.broker.transactions.owned_transactions import LedPartition, OwnedTransactions
from logyard.broker.transactions.ports import KeyValue, ProducerIds, StateLog
from logyard.broker.transactions.record_batches import in_batches
from logyard.broker.transactions.states import DECIDED
from logyard.broker.transactions.transaction import RAISING_VERSION, Change, Transaction
from logyard.broker.transactions.unwritten_ends import UnwrittenEnds

log = structlog.get_logger("logyard.transactions")

# How long after a partition could not be read it is tried again.
LOAD_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Rules:
    """`transaction.max.timeout.ms`, `transactional.id.expiration.ms`, `request.timeout.ms`."""

    timeout_max_ms: int = 900_000
    expiration_ms: int = 7 * 86_400_000
    request_timeout_ms: int = 30_000


class TransactionCoordinator:
    """Transactions of the ids whose partitions of `__transaction_state` this broker leads."""

    def __init__(
        self,
        owned: OwnedTransactions,
        state_log: StateLog,
        markers: MarkerSender,
        producer_ids: ProducerIds,
        clock: Clock,
        timers: Timers,
        rules: Rules | None = None,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`version` returns the cluster's `transaction.version`, 0 where none is finalized."""
        self._owned = owned
        self._log = state_log
        self._markers = markers
        self._producer_ids = producer_ids
        self._clock = clock
        self._timers = timers
        self._rules = rules or Rules()
        self._version = version
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._ends = Ends(timers)
        self._unwritten_ends = UnwrittenEnds(
            owned, state_log, timers, self._value_version, self._rules.request_timeout_ms
        )

    def _now(self) -> Now:
        return Now(passed_ms(self._clock), self._clock.now_ms())

    # Leadership of partitions of `__transaction_state`

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        """This broker was elected: read the partition before serving it."""
        self._give_up(partition)
        led = self._owned.begin(partition, leader_epoch)
        self._loads[partition] = tasks.keep(f"load transactions {partition}", partial(self._load, led), LOAD_AGAIN_S)

    def on_follower(self, partition: int) -> None:
        """This broker leads the partition no more, or has it no more."""
        self._give_up(partition)

    def _give_up(self, partition: int) -> None:
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()
        led = self._owned.end(partition)
        if led is not None:
            tasks.spawn("transactions that are given up", led.let_go())

    async def _load(self, led: LedPartition) -> None:
        """Until this succeeds the partition's ids answer COORDINATOR_LOAD_IN_PROGRESS."""
        while True:
            try:
                found = await loading.load(self._log, led.number, asyncio.sleep, self._now)
                break
            except (StorageError, CorruptData, ApiError) as error:
                # Its directory failed, mostly, or the log says what this broker does not understand.
                log.error("transactions not loaded", partition=led.number, error=str(error), again_in_s=LOAD_AGAIN_S)
            await asyncio.sleep(LOAD_AGAIN_S)
        led.transactions, led.is_loaded = found, True
        log.info("transactions loaded", partition=led.number, epoch=led.coordinator_epoch, ids=len(found))
        for portion in self._owned.portions(led):
            for transaction in portion:
                if transaction.state in DECIDED and transaction.pending is None:
                    self._complete(led, transaction)
            await asyncio.sleep(0)
        self._loads.pop(led.number, None)

    # Requests

    async def initialize(self, request: Initialize) -> Initialized:
        """InitProducerId (facts §17.2)."""
        if not request.transactional_id:
            return Initialized(ErrorCode.INVALID_REQUEST)
        if not 0 < request.timeout_ms <= self._rules.timeout_max_ms:
            return Initialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        fresh_id: int | None = None
        await self._end_of_last(request.transactional_id)
        while True:
            led = self._owned.find(request.transactional_id)
            if not isinstance(led, LedPartition):
                return Initialized(led)
            transaction = led.transactions.get(request.transactional_id)
            if transaction is None and fresh_id is not None:
                transaction = initialization.new_transaction(request, fresh_id, self._now())
                led.transactions[request.transactional_id] = transaction
            decided = (
                initialization.initialize(transaction, request, self._now(), fresh_id, version=self._version())
                if transaction is not None
                else Needs.PRODUCER_ID
            )
            if decided is not Needs.PRODUCER_ID:
                break
            fresh_id = await self._producer_ids.next()
        assert transaction is not None, "decided about"
        if not isinstance(decided, Change):
            return Initialized(decided)
        code = await self._append(led, transaction, decided)
        if code is not ErrorCode.NONE:
            return Initialized(code)
        if decided.is_fence:
            return Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Initialized(code, Producer(decided.to.producer_id, decided.to.epoch))

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> ErrorCode:
        """AddPartitionsToTxn and AddOffsetsToTxn: one answer for all of the partitions (facts §17.3)."""
        if client_version < RAISING_VERSION:
            await self._end_of_last(transactional_id)  # else it is a leader that asks, which asks again
        return await self._change(
            transactional_id,
            lambda t: addition.add(t, producer, partitions, self._now(), client_version=client_version),
        )

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only asks: an answer for each partition (facts §17.3)."""
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        return addition.verify(found[1], producer, partitions)

    async def end(self, transactional_id: str, producer: Producer, *, commits: bool) -> ErrorCode:
        """EndTxn below v5: answered when the outcome is in the log; the markers follow (facts §17.5)."""
        return await self._change(transactional_id, lambda t: completion.end(t, producer, self._now(), commits=commits))

    async def end_and_raise(self, transactional_id: str, producer: Producer, *, commits: bool) -> Initialized:
        """EndTxn from v5 on: also tells the pair to go on with, which is another after each end (facts §17.12)."""
        fresh_id: int | None = None
        while True:
            found = self._find(transactional_id)
            if isinstance(found, ErrorCode):
                return Initialized(found)
            led, transaction = found
            decided = raising_end.end(transaction, producer, self._now(), commits=commits, fresh_id=fresh_id)
            if not isinstance(decided, Needs):
                break
            fresh_id = await self._producer_ids.next()
        if decided is ErrorCode.NONE:
            return Initialized(decided, Producer(transaction.stored.producer_id, transaction.stored.epoch))
        if not isinstance(decided, Change):
            return Initialized(decided)
        code = await self._append(led, transaction, decided)
        return Initialized(code, raising_end.pair_after(decided)) if code is ErrorCode.NONE else Initialized(code)

    async def _end_of_last(self, transactional_id: str) -> None:
        """Wait a little where the id's last transaction is decided and has not ended yet."""
        found = self._find(transactional_id)
        if not isinstance(found, ErrorCode) and found[1].state in DECIDED:
            await self._ends.wait(transactional_id)

    def _find(self, transactional_id: str) -> tuple[LedPartition, Transaction] | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        led = self._owned.find(transactional_id)
        if not isinstance(led, LedPartition):
            return led
        transaction = led.transactions.get(transactional_id)
        return (led, transaction) if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    async def _change(self, transactional_id: str, decide: Callable[[Transaction], Change | ErrorCode]) -> ErrorCode:
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        led, transaction = found
        decided = decide(transaction)
        return await self._append(led, transaction, decided) if isinstance(decided, Change) else decided

    # What tools ask

    def describe(self, transactional_id: str) -> Description:
        """DescribeTransactions: TRANSACTIONAL_ID_NOT_FOUND for an id that is not there."""
        found = self._find(transactional_id)
        if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return Description(transactional_id, found) if isinstance(found, ErrorCode) else found[1].describe()

    def all(self) -> list[Transaction] | None:
        """ListTransactions: those that there are now; None while a partition is being loaded."""
        return None if self._owned.is_loading else self._owned.all()

    # Appends

    def _append(self, led: LedPartition, transaction: Transaction, change: Change) -> "asyncio.Future[ErrorCode]":
        """Append a change that was decided just now; the future has what its client is answered."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(appended: ErrorCode) -> None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            try:
                code = self._acknowledged(led, transaction, change, appended)
            finally:
                if not answer.done():
                    answer.set_result(code)

        self._write(led, transaction, change, done)
        return answer

    def _write(
        self, led: LedPartition, transaction: Transaction, change: Change, done: Callable[[ErrorCode], None]
    ) -> None:
        record = record_format.key(transaction.transactional_id), record_format.value(change.to, self._value_version())
        try:
            self._log.append(led.number, [record], change.to.timeout_ms, done)
        except BaseException:
            transaction.give_up(change)
            raise

    def _value_version(self) -> int:
        return record_format.FLEXIBLE_VERSION if self._version() else record_format.PLAIN_VERSION

    def _acknowledged(
        self, led: LedPartition, transaction: Transaction, change: Change, appended: ErrorCode
    ) -> ErrorCode:
        """Make the change, or give it up; return what its client is answered."""
        code = _answer_for(appended)
        if not self._owned.counts(led, transaction, change):
            return self._owned.availability(led) if code is ErrorCode.NONE else code
        if code is not ErrorCode.NONE:
            transaction.give_up(change)
            log.info("transaction not stored", id=transaction.transactional_id, to=change.state.label, error=code.name)
            return code
        transaction.make(change)
        if change.state in DECIDED:
            self._complete(led, transaction)
        return code

    # The end of a transaction

    def _complete(self, led: LedPartition, transaction: Transaction) -> None:
        """Have the markers of a decided transaction written, and then end it."""
        try:
            change = completion.begin_completion(transaction, self._now())
            self._markers.send(Completion(led, transaction, change, self._end))
        except Exception as error:
            # It is decided, and the next election completes it. It keeps no other of the same load from its end.
            tasks.failed("completion of a transaction", error)

    def _end(self, ended: Completion) -> None:
        """Every partition has its marker: the next transaction may begin, and the record of this end may follow."""
        led, transaction, change = ended.led, ended.transaction, ended.change
        if not self._owned.counts(led, transaction, change):
            return
        transaction.make(change)
        self._unwritten_ends.add(led, transaction)
        self._ends.ended(transaction.transactional_id)

    def write_ends(self) -> None:
        """Append the ends of transactions that are not in the log yet, where nothing else of their ids is under way."""
        self._unwritten_ends.write()

    # Periodic work

    async def abort_timed_out(self) -> None:
        """Fence and abort transactions that have been open for longer than their clients allowed."""
        now = self._now()
        for led in self._owned.loaded():
            for portion in self._owned.portions(led):
                for transaction in portion:
                    if completion.is_timed_out(transaction, now):
                        self._abort(led, transaction, now)
                await asyncio.sleep(0)

    def _abort(self, led: LedPartition, transaction: Transaction, now: Now) -> None:
        log.info("transaction timed out", id=transaction.transactional_id)
        try:
            self._append(led, transaction, completion.fence(transaction, now, self._version()))
        except Exception:
            # One that cannot be ended may not keep the others open.
            log.exception("transaction not aborted", id=transaction.transactional_id)

    async def expire_ids(self) -> None:
        """Remove transactional ids that nobody has used for `transactional.id.expiration.ms`."""
        for led in self._owned.loaded():
            await self._expire_ids(led)

    async def _expire_ids(self, led: LedPartition) -> None:
        now = self._now()
        for portion in self._owned.portions(led):
            expired = [t for t in portion if expiry.is_expired(t, now, self._rules.expiration_ms)]
            for batch in in_batches(expired, _tombstone, self._log.batch_bytes_max()):
                self._bury(led, [(t, expiry.begin_death(t)) for t, _ in batch], [record for _, record in batch])
            await asyncio.sleep(0)

    def _bury(
        self, led: LedPartition, batch: Sequence[tuple[Transaction, Change]], tombstones: Sequence[KeyValue]
    ) -> None:
        """Append the tombstones of expired ids; they go when the log has acknowledged them."""

        def done(appended: ErrorCode) -> None:
            found = [each for each in batch if self._owned.counts(led, *each)]
            for transaction, change in found:
                if appended is ErrorCode.NONE:
                    del led.transactions[transaction.transactional_id]
                else:
                    transaction.give_up(change)
            if found and appended is ErrorCode.NONE:
                log.info("transactional ids expired", partition=led.number, ids=len(found))
            elif found:
                log.warning("transactional ids not expired", partition=led.number, ids=len(found), error=appended.name)

        try:
            self._log.append(led.number, tombstones, self._rules.request_timeout_ms, done)
        except Exception as error:
            tasks.failed("expiry of transactional ids", error)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)  # a death that stays pending would block its id

    async def close(self) -> None:
        """End loads and markers."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        self._unwritten_ends.close()
        await self._markers.close()


def _tombstone(transaction: Transaction) -> KeyValue:
    return record_format.key(transaction.transactional_id), None


def _answer_for(appended: ErrorCode) -> ErrorCode:
    if appended in TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if appended is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return coordinator_error(appended)
