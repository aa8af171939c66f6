"""Sends markers: a queue for each broker, one request at a time with what is queued (facts §17.5).

What can go nowhere now waits, and its leader is looked up again: each RETRY_S that of the PER_RETRY that have waited
longest, and all when metadata arrive. A completion that no longer counts (the partition was given up or elected anew)
is dropped wherever it turns up. A partition that the metadata do not have needs no marker once ZooKeeper has said that
it was deleted: a marker that is left out because its partition is not known yet would tear the transaction.

A new coordinator may find thousands of decided transactions. So a request has PER_REQUEST of them at most, and no more
are looked up in one turn of the event loop.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.event_loop import TimerHandle, Timers
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import TopicPartition
from logyard.broker.portions import portions
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.markers.routing import Completion, Verdict, destinations, verdict
from logyard.broker.transactions.owned_transactions import OwnedTransactions
from logyard.broker.transactions.ports import FindDeleted, MarkerAnswer, MarkerLinks

RETRY_S = 0.1
ASK_AGAIN_S = 1.0
# Transactions: about a millisecond's work.
PER_REQUEST = 200
# Transactions: of ten thousand that wait for brokers, more would take most of a core to look up.
PER_RETRY = 500

log = structlog.get_logger("logyard.transactions")

Parcel = dict[Completion, list[TopicPartition]]
"""What goes to one place: of each completion the partitions."""


class MarkerSender:
    """See the head of this file."""

    def __init__(
        self,
        links: MarkerLinks,
        metadata: MetadataCache,
        listener: str,
        timers: Timers,
        owned: OwnedTransactions,
        find_deleted: FindDeleted,
    ) -> None:
        self._links = links
        self._find_deleted = find_deleted
        self._search: asyncio.Task[None] | None = None
        self._doubted: dict[Completion, set[TopicPartition]] = {}  # that may be deleted
        self._metadata = metadata
        self._listener = listener
        self._timers = timers
        self._owned = owned
        self._queues: dict[int, Parcel] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._waiting: Parcel = {}
        self._retry: TimerHandle | None = None
        self._due: Parcel = {}
        self._next_look: TimerHandle | None = None
        metadata.subscribe(lambda changed, deleted: self._look_up_again())

    def send(self, completion: Completion) -> None:
        """Have every unmarked partition of the transaction marked."""
        self._route(completion, completion.transaction.unmarked)

    def _counts(self, completion: Completion) -> bool:
        return self._owned.counts(completion.led, completion.transaction, completion.change)

    def _route(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        for to, found in destinations(self._metadata, self._listener, partitions).items():
            if to is None:
                self._wait(completion, found)
            else:
                _add(self._queues.setdefault(to, {}), completion, found)
                self._start(to)
        if not completion.transaction.unmarked:
            completion.finished(completion)

    def _start(self, broker_id: int) -> None:
        if broker_id not in self._senders:
            self._senders[broker_id] = tasks.keep(f"markers to {broker_id}", partial(self._empty_queue, broker_id))

    def _wait(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        _add(self._waiting, completion, partitions)
        if self._retry is None:
            self._retry = self._timers.call_later(RETRY_S, self._look_up_oldest)
        if unknown := self._unknown(partitions):
            self._doubted.setdefault(completion, set()).update(unknown)
            if self._search is None:
                self._search = tasks.spawn("deleted partitions", self._drop_deleted())

    def _unknown(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        return {tp for tp in partitions if self._metadata.partition(tp) is None}

    async def _drop_deleted(self) -> None:
        """Ask about what is unknown and waits, in portions: mostly its topic was deleted. What is neither known nor
        deleted is in doubt again when it is looked up the next time."""
        try:
            doubted, self._doubted = self._doubted, {}
            async for portion in portions(doubted.items(), _cost):
                await self._drop_deleted_of(portion)
            await asyncio.sleep(ASK_AGAIN_S)
        except LogyardError as error:
            log.info("deleted partitions not looked for, trying again", error=str(error))
            await asyncio.sleep(ASK_AGAIN_S)
        finally:
            self._search = None

    async def _drop_deleted_of(self, doubted: Sequence[tuple[Completion, set[TopicPartition]]]) -> None:
        """What was deleted needs no marker any more: of these, since others may be of a later topic of that name."""
        asked = self._unknown(tp for _, partitions in doubted for tp in partitions)
        gone = self._unknown(await self._find_deleted(sorted(asked)))
        if gone:
            log.info("no marker for deleted partitions", partitions=[str(tp) for tp in sorted(gone)])
        for completion, partitions in doubted:
            if not gone.isdisjoint(partitions):
                self._unmark(completion, gone)

    def _unmark(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        """These partitions need no marker of it any more."""
        if not self._counts(completion):
            return
        completion.transaction.unmarked.difference_update(partitions)
        if not completion.transaction.unmarked:
            completion.finished(completion)

    def _look_up_again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._look_up(len(self._waiting))

    def _look_up_oldest(self) -> None:
        left = len(self._waiting) > PER_RETRY
        self._retry = self._timers.call_later(RETRY_S, self._look_up_oldest) if left else None
        self._look_up(PER_RETRY)

    def _look_up(self, count: int) -> None:
        for completion, partitions in list(islice(self._waiting.items(), count)):
            del self._waiting[completion]
            _add(self._due, completion, partitions)
        if self._next_look is None:
            self._look_up_some()

    def _look_up_some(self) -> None:
        self._next_look = None
        for completion, partitions in list(islice(self._due.items(), PER_REQUEST)):
            del self._due[completion]
            try:
                if self._counts(completion):
                    unmarked = completion.transaction.unmarked
                    self._route(completion, [tp for tp in partitions if tp in unmarked])
            except Exception as error:
                tasks.failed("markers looked up", error, RETRY_S)
                self._wait(completion, partitions)
        if self._due:
            self._next_look = self._timers.call_later(0, self._look_up_some)

    # One broker

    async def _empty_queue(self, broker_id: int) -> None:
        while parcel := self._take(broker_id):
            await self._deliver(broker_id, parcel)
        del self._senders[broker_id]

    def _take(self, broker_id: int) -> Parcel:
        """What the next request has. An answer goes by producer id, so that one has a place in it once."""
        queued = self._queues.get(broker_id, {})
        parcel: Parcel = {}
        again: Parcel = {}
        producers: set[int] = set()
        while queued and not parcel:
            for completion, partitions in list(islice(queued.items(), PER_REQUEST)):
                del queued[completion]
                producer_id = completion.transaction.stored.producer_id
                if not self._counts(completion):
                    continue
                (again if producer_id in producers else parcel)[completion] = partitions
                producers.add(producer_id)
        queued |= again
        if not queued:
            self._queues.pop(broker_id, None)
        return parcel

    async def _deliver(self, broker_id: int, parcel: Parcel) -> None:
        answers: Mapping[int, MarkerAnswer] | None = None
        try:
            markers = [completion.marker(partitions) for completion, partitions in parcel.items()]
            answers = await self._links.write_markers(broker_id, markers)
        except (LinkError, CorruptData) as error:
            log.info("markers not sent, trying again", peer=broker_id, error=str(error))
        finally:
            if answers is None:
                for completion, partitions in parcel.items():
                    self._wait(completion, partitions)
        for completion, partitions in parcel.items() if answers is not None else ():
            try:
                self._take_answer(completion, partitions, answers or {})
            except Exception as error:
                # It concerns one transaction. A marker that is written twice does no harm, one that is not never ends.
                tasks.failed(f"markers to {broker_id}", error, RETRY_S)
                self._wait(completion, partitions)

    def _take_answer(
        self, completion: Completion, partitions: Sequence[TopicPartition], answers: Mapping[int, MarkerAnswer]
    ) -> None:
        if not self._counts(completion):
            return
        transaction = completion.transaction
        answer = answers.get(transaction.stored.producer_id, {})
        again: list[TopicPartition] = []
        for tp in partitions:
            code = answer.get(tp)
            meaning = verdict(code)
            if meaning is Verdict.DONE:
                transaction.unmarked.discard(tp)
            elif meaning is Verdict.AGAIN:
                again.append(tp)
            else:
                assert code is not None, "only an answer fences"
                log.warning("markers given up", id=transaction.transactional_id, partition=str(tp), error=code.name)
                return
        if again:
            self._wait(completion, again)
        if not transaction.unmarked:
            completion.finished(completion)

    async def close(self) -> None:
        """Send no more."""
        senders = list(self._senders.values())
        if self._search is not None:
            senders.append(self._search)
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for timer in (self._retry, self._next_look):
            if timer is not None:
                timer.cancel()
        self._waiting, self._due, self._doubted = {}, {}, {}


def _cost(doubt: tuple[Completion, set[TopicPartition]]) -> int:
    return len(doubt[1])


def _add(parcel: Parcel, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
    parcel.setdefault(completion, []).extend(partitions)
