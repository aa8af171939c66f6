"""A transaction coordinator over stand-ins: a state log in memory, a clock moved by hand, brokers that write markers.

`world.coordinator` is asked; `world.links.sent` are the markers that brokers got, `world.links.answers` what they
answer instead of NONE, by partition. Partitions t-0 to t-3 are led by brokers 1 and 2.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import TRANSACTIONS_TOPIC, BrokerInfo, Endpoint, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.transactions import record_format
from logyard.broker.transactions.events import Initialize, Initialized, Producer
from logyard.broker.transactions.listing import Wanted
from logyard.broker.transactions.markers.runner import MarkerSender
from logyard.broker.transactions.owned_transactions import OwnedTransactions
from logyard.broker.transactions.ports import Marker, MarkerAnswer
from logyard.broker.transactions.runner import Rules, TransactionCoordinator
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored, Transaction
from tests.support.memory_state_log import MemoryStateLog

LISTENER = "PLAINTEXT"
TP = [TopicPartition("t", number) for number in range(4)]
TIMEOUT_MS = 60_000


class MemoryLinks:
    """Brokers that write every marker, answer as told, or cannot be reached."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Marker]] = []
        self.requests: list[tuple[int, Sequence[Marker]]] = []
        self.answers: dict[TopicPartition, ErrorCode | None] = {}
        self.unreachable: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Mapping[int, MarkerAnswer]:
        self.requests.append((broker_id, markers))
        await self.gate.wait()
        await asyncio.sleep(0)  # an answer takes a turn of the loop at least
        if broker_id in self.unreachable:
            raise LinkError("planted")
        self.sent += [(broker_id, marker) for marker in markers]
        return {
            marker.producer_id: {
                tp: code for tp in marker.partitions if (code := self.answers.get(tp, ErrorCode.NONE)) is not None
            }
            for marker in markers
        }


class Ids:
    """Hands out 1000, 1001, …"""

    def __init__(self) -> None:
        self.last = 999

    async def next(self) -> int:
        await asyncio.sleep(0)
        self.last += 1
        return self.last


class TransactionWorld:
    """See the head of this file. Times that pass in timers are real, so that tests shorten what they wait for."""

    def __init__(self, rules: Rules | None = None, version: int = 0) -> None:
        self.version = version
        self.clock = ManualClock()
        self.log = MemoryStateLog()
        self.links = MemoryLinks()
        self.ids = Ids()
        self.metadata = MetadataCache()
        self.lead(1, 2, 1, 2)
        self.owned = OwnedTransactions(Partitioning(self.metadata, TRANSACTIONS_TOPIC, lambda: 3))
        loop = asyncio.get_running_loop()
        self.topics = set(TP)  # the partitions that ZooKeeper has
        self.sender = MarkerSender(self.links, self.metadata, LISTENER, loop, self.owned, self.find_deleted)
        self.coordinator = TransactionCoordinator(
            self.owned, self.log, self.sender, self.ids, self.clock, loop, rules, lambda: self.version
        )

    def lead(self, *leaders: int, brokers: Sequence[int] = (1, 2)) -> None:
        """Make these the leaders of t-0, t-1, …; -2 deletes a partition."""
        partitions = [
            PartitionUpdate(TP[n], leader, 0, (leader,), (leader,), 0, ()) for n, leader in enumerate(leaders)
        ]
        known = tuple(BrokerInfo(b, (Endpoint(LISTENER, LISTENER, "h", b),)) for b in brokers)
        self.metadata.apply_update(UpdateMetadata(1, 1, 1, tuple(partitions), known))

    async def find_deleted(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        await asyncio.sleep(0)
        return [tp for tp in partitions if tp not in self.topics]

    def delete(self, *numbers: int) -> None:
        """Delete partitions of t: the controller has told, and ZooKeeper has them no more."""
        self.topics -= {TP[number] for number in numbers}
        self.lead(*(-2 if n in numbers else 1 + n % 2 for n in range(4)))

    async def elect(self, epoch: int = 5) -> None:
        """Become the leader of every partition of the state log, and load them."""
        for partition in range(3):
            self.coordinator.on_leader(partition, epoch)
        await self.settle()

    async def settle(self, turns: int = 20) -> None:
        """Let everything happen that waits for nothing; ends of transactions are written too."""
        await self.pass_turns(turns)
        self.coordinator.write_ends()
        await self.pass_turns(turns)

    def matching(
        self, states: Collection[State] | None = None, producer_ids: Collection[int] = (), duration_ms: int = -1
    ) -> list[Transaction] | None:
        """What a ListTransactions with these filters tells of; None while a partition is being loaded."""
        wanted = Wanted(None if states is None else set(states), set(producer_ids), duration_ms)
        found, now_ms = self.coordinator.all(), self.clock.now_ms()
        return None if found is None else [each for each in found if wanted.has(each, now_ms)]

    @staticmethod
    async def pass_turns(turns: int = 20) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def initialize(self, name: str = "x", **fields: Any) -> Initialized:
        return await self.coordinator.initialize(Initialize(name, **{"timeout_ms": TIMEOUT_MS, **fields}))

    async def end(self, producer: Producer, *, commits: bool = True) -> ErrorCode:
        return await self.coordinator.end("x", producer, commits=commits)

    async def begin(self, name: str = "x", *partitions: TopicPartition) -> Producer:
        """An initialized id, with an open transaction if there are partitions."""
        answer = await self.initialize(name)
        assert answer.error is ErrorCode.NONE
        if partitions:
            assert await self.coordinator.add_partitions(name, answer.producer, partitions) is ErrorCode.NONE
        return answer.producer

    def stored(self, name: str = "x") -> list[Stored | None]:
        """Every value that the log holds for the id, in order; None for a tombstone."""
        return [
            None if value is None else record_format.decode_value(value)
            for records in self.log.partitions.values()
            for key, value in records
            if record_format.decode_key(key) == name
        ]

    def states(self, name: str = "x") -> list[State | None]:
        return [None if stored is None else stored.state for stored in self.stored(name)]


async def every_answer(world: TransactionWorld) -> set[ErrorCode]:
    """What every request is answered that names the id x."""
    coordinator, someone = world.coordinator, Producer(1, 1)
    return {
        (await world.initialize()).error,
        await coordinator.add_partitions("x", someone, [TP[0]]),
        *coordinator.verify_partitions("x", someone, [TP[0]]).values(),
        await coordinator.end("x", someone, commits=True),
        (await coordinator.end_and_raise("x", someone, commits=True)).error,
        coordinator.describe("x").error,
    }
