"""Sends markers: a queue for each broker, one request at a time with all that is queued (facts §17.5).

What can go nowhere now waits, and its leader is looked up again: each RETRY_S, and when metadata arrive. A completion
that no longer counts (the partition was given up or elected anew) is dropped wherever it turns up. A partition that the
metadata do not have needs no marker once ZooKeeper has said that it was deleted: a marker that is left out because its
partition is not known yet would tear the transaction.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.event_loop import TimerHandle, Timers
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.model import TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions.markers.routing import Completion, Verdict, destinations, verdict
from logyard.broker.transactions.owned_transactions import OwnedTransactions
from logyard.broker.transactions.ports import FindDeleted, MarkerAnswer, MarkerLinks

RETRY_S = 0.1
ASK_AGAIN_S = 1.0

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
        self._metadata = metadata
        self._listener = listener
        self._timers = timers
        self._owned = owned
        self._queues: dict[int, Parcel] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._waiting: Parcel = {}
        self._retry: TimerHandle | None = None
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
                self._queues.setdefault(to, {}).setdefault(completion, []).extend(found)
                if to not in self._senders:
                    self._senders[to] = tasks.keep(f"markers to {to}", partial(self._empty_queue, to))
        if not completion.transaction.unmarked:
            completion.finished(completion)

    def _wait(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        self._waiting.setdefault(completion, []).extend(partitions)
        if self._retry is None:
            self._retry = self._timers.call_later(RETRY_S, self._look_up_again)
        if self._search is None and self._unknown(partitions):
            self._search = tasks.spawn("deleted partitions", self._drop_deleted())

    def _unknown(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [tp for tp in partitions if self._metadata.partition(tp) is None]

    async def _drop_deleted(self) -> None:
        """Ask about what is unknown of all that waits; what was deleted needs no marker any more."""
        try:
            asked = {tp for partitions in self._waiting.values() for tp in self._unknown(partitions)}
            gone = set(self._unknown(await self._find_deleted(sorted(asked))))
            if gone:
                log.info("no marker for deleted partitions", partitions=[str(tp) for tp in sorted(gone)])
            for completion, partitions in list(self._waiting.items()):
                self._waiting[completion] = [tp for tp in partitions if tp not in gone]
                self._unmark(completion, gone)
            await asyncio.sleep(ASK_AGAIN_S)
        except LogyardError as error:
            log.info("deleted partitions not looked for, trying again", error=str(error))
            await asyncio.sleep(ASK_AGAIN_S)
        finally:
            self._search = None

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
        waiting, self._waiting = self._waiting, {}
        for completion, partitions in waiting.items():
            if self._counts(completion):
                self._route(completion, partitions)

    # One broker

    async def _empty_queue(self, broker_id: int) -> None:
        while parcel := self._take(broker_id):
            await self._deliver(broker_id, parcel)
        self._queues.pop(broker_id, None)
        del self._senders[broker_id]

    def _take(self, broker_id: int) -> Parcel:
        """What the next request has. An answer goes by producer id, so that one has a place in it once."""
        queued = self._queues.pop(broker_id, {})
        parcel: Parcel = {}
        producers: set[int] = set()
        for completion, partitions in queued.items():
            producer_id = completion.transaction.stored.producer_id
            if not self._counts(completion):
                continue
            if producer_id in producers:
                self._queues.setdefault(broker_id, {})[completion] = partitions
            else:
                producers.add(producer_id)
                parcel[completion] = partitions
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
            self._take_answer(completion, partitions, answers or {})

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
        if self._retry is not None:
            self._retry.cancel()
        senders = list(self._senders.values())
        if self._search is not None:
            senders.append(self._search)
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
