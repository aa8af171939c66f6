"""Coordinators that die, one after the other, over one state log and the partitions of their transactions.

Everything a coordinator does to the world is a step: a record appended, a request with markers. `Lives(kill_at)` kills
it before or after one of them (step n is the point before the n-th effect at 2n, and after it at 2n + 1): nothing that
was to follow happens, and the next coordinator is elected on what there is. A zombie is not killed but deposed: its
appends are refused, while its markers still arrive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import TRANSACTIONS_TOPIC, BrokerInfo, Endpoint, TopicPartition
from logyard.broker.transactions import record_format
from logyard.broker.transactions.events import Initialize, Producer
from logyard.broker.transactions.markers.runner import MarkerSender
from logyard.broker.transactions.owned_transactions import OwnedTransactions
from logyard.broker.transactions.ports import Acknowledged, KeyValue, Marker, MarkerAnswer
from logyard.broker.transactions.runner import TransactionCoordinator
from logyard.broker.transactions.states import DECIDED, State
from logyard.broker.transactions.transaction import Stored
from tests.support.memory_state_log import MemoryStateLog
from tests.support.virtual_loop import VirtualLoop

ID, TIMEOUT_MS, LISTENER = "x", 60_000, "PLAINTEXT"
TRY_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class PartitionLeader:
    """What a partition's leader knows of the producer: the open transaction, and how the others ended."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = self.coordinator_epoch = -1
        self.open: int | None = None
        self.ended: dict[int, bool] = {}

    def write(self, producer: Producer, transaction: int) -> None:
        if producer.producer_id != self.producer_id:
            assert self.open is None, "the producer before has no marker"
            self.producer_id, self.epoch = producer.producer_id, -1
        assert producer.epoch >= self.epoch, "a fenced producer was verified"
        assert self.open in (None, transaction), "the transaction before has no marker"
        self.epoch, self.open = producer.epoch, transaction

    def mark(self, marker: Marker) -> ErrorCode:
        if marker.coordinator_epoch < self.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.producer_id != self.producer_id and self.producer_id >= 0:
            return ErrorCode.NONE  # a late one of the producer before: it has nothing open
        if marker.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.version >= 2 and marker.producer_epoch == self.epoch and self.open is not None:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epoch, self.coordinator_epoch = marker.producer_epoch, marker.coordinator_epoch
        if self.open is not None:
            self.ended[self.open] = marker.commits
            self.open = None
        return ErrorCode.NONE


class Lives:
    """See the head of this file. `effects` counts what was done to the world.

    `version` is the cluster's `transaction.version`, by which the client goes too.
    """

    def __init__(
        self, kill_at: Sequence[int] = (), *, zombies: bool = False, version: int = 0, first_epoch: int = -1
    ) -> None:
        self._kill_at = set(kill_at)
        self.zombies, self.version = zombies, version
        self._point = 0
        self.log = MemoryStateLog()
        if first_epoch >= 0:
            record = record_format.value(Stored(1000, first_epoch, TIMEOUT_MS, State.EMPTY), 1)
            self.log.partitions[0] = [(record_format.key(ID), record)]
        self.leaders: dict[TopicPartition, PartitionLeader] = {}
        self.deaths = 0
        self._dead: list[Life] = []
        self._next_id = 1000
        self.life = Life(self, 0)

    @property
    def effects(self) -> int:
        return self._point // 2

    def leader(self, tp: TopicPartition) -> PartitionLeader:
        return self.leaders.setdefault(tp, PartitionLeader())

    async def next(self) -> int:
        """A producer id."""
        self._next_id += 1
        return self._next_id

    def passes(self, life: "Life") -> bool:
        """One point before or after an effect: whether this life goes on."""
        point, self._point = self._point, self._point + 1
        if point in self._kill_at and life is self.life:
            life.is_dead = True
            self._dead.append(life)
            self.deaths += 1
            self.life = Life(self, self.deaths)
            return self.zombies
        return self.zombies or not life.is_dead

    def check_goes_on(self, partition: int, records: Sequence[KeyValue]) -> None:
        """What comes behind a decided outcome, without the record of its end, comes when every partition has it."""
        before = [value for _, value in self.log.partitions.get(partition, ()) if value is not None][-1:]
        for value in [value for _, value in records if value is not None]:
            last = record_format.decode_value(before[0]) if before else None
            if last is not None and last.state in DECIDED and record_format.decode_value(value).state not in DECIDED:
                assert all(self.leader(tp).open is None for tp in last.partitions), "a partition has no marker"
            before = [value]

    async def close(self) -> None:
        for life in (*self._dead, self.life):
            await life.coordinator.close()

    # A client of the one transactional id, which asks again until it is answered

    async def ask(self, question: Callable[[TransactionCoordinator], Awaitable[Any]]) -> Any:
        """Ask the living coordinator; who dies while it is asked gives no answer."""
        async with asyncio.timeout(600):
            while True:
                life = self.life
                asked = asyncio.ensure_future(question(life.coordinator))
                while not asked.done() and not life.is_dead:
                    await asyncio.sleep(0.005)
                if asked.done() and not life.is_dead:
                    answer = asked.result()
                    if getattr(answer, "error", answer) not in TRY_AGAIN:
                        return answer
                asked.cancel()
                await asyncio.sleep(0.02)

    async def initialize(self) -> Producer:
        answer = await self.ask(lambda coordinator: coordinator.initialize(Initialize(ID, TIMEOUT_MS)))
        assert answer.error is ErrorCode.NONE
        producer: Producer = answer.producer
        return producer

    async def write(self, producer: Producer, transaction: int, *partitions: TopicPartition) -> None:
        added = await self.ask(
            lambda coordinator: coordinator.add_partitions(ID, producer, partitions, client_version=self.version)
        )
        assert added is ErrorCode.NONE
        for tp in partitions:

            async def verify(coordinator: TransactionCoordinator, tp: TopicPartition = tp) -> ErrorCode:
                return coordinator.verify_partitions(ID, producer, [tp])[tp]

            assert await self.ask(verify) is ErrorCode.NONE
            self.leader(tp).write(producer, transaction)

    async def end(self, producer: Producer, *, commits: bool) -> Producer:
        """Return the pair to go on with."""
        if self.version < 2:
            code = await self.ask(lambda coordinator: coordinator.end(ID, producer, commits=commits))
            assert code is ErrorCode.NONE
            return producer
        answer = await self.ask(lambda coordinator: coordinator.end_and_raise(ID, producer, commits=commits))
        assert answer.error is ErrorCode.NONE
        after: Producer = answer.producer
        assert after != producer
        return after


class Life:
    """One coordinator from its election to its end: its ports."""

    def __init__(self, lives: Lives, number: int) -> None:
        self._lives = lives
        self.is_dead = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        metadata = MetadataCache()
        broker = BrokerInfo(1, (Endpoint(LISTENER, LISTENER, "h", 1),))
        partitions = tuple(PartitionUpdate(TopicPartition("t", n), 1, 0, (1,), (1,), 0, ()) for n in range(4))
        metadata.apply_update(UpdateMetadata(1, 1, 1, partitions, (broker,)))
        owned = OwnedTransactions(Partitioning(metadata, TRANSACTIONS_TOPIC, lambda: 1))
        sender = MarkerSender(self, metadata, LISTENER, loop, owned, self._none_deleted)
        self.coordinator = TransactionCoordinator(owned, self, sender, lives, loop, loop, version=lambda: lives.version)
        self.coordinator.on_leader(0, number)

    @staticmethod
    async def _none_deleted(partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        return ()

    # StateLog

    def append(self, partition: int, records: Sequence[KeyValue], timeout_ms: int, done: Acknowledged) -> None:
        if self.is_dead:
            if self._lives.zombies:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not self._lives.passes(self):
            return
        if self.is_dead:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._lives.check_goes_on(partition, records)
        self._lives.log.partitions.setdefault(partition, []).extend(records)
        if self._lives.passes(self):
            done(ErrorCode.NONE)

    async def read(self, partition: int, take: Callable[[KeyValue], None]) -> int:
        return await self._lives.log.read(partition, take)

    def is_replicated(self, partition: int, offset: int) -> bool:
        return True

    def batch_bytes_max(self) -> int:
        return 1 << 20

    # MarkerLinks

    async def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Mapping[int, MarkerAnswer]:
        await asyncio.sleep(0.01)
        if not self._lives.passes(self):
            await asyncio.Event().wait()
        answers = {m.producer_id: {tp: self._lives.leader(tp).mark(m) for tp in m.partitions} for m in markers}
        if not self._lives.passes(self):
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        return answers
