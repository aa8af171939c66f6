"""Simulated clients: producers, an admin client, a consumer that reads everything. They speak the wire protocol."""

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from logyard.broker.client.link import Link
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import Record, build, iter_headers, records
from logyard.broker.replication.ports import LinkError
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import BrokenPromise, Ledger
from tests.simulation.machine import WALL_CLOCK_AT_0_MS
from tests.simulation.process import Process

PRODUCE, FETCH, METADATA = 0, 1, 3
CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 19, 20, 22
DELETE_RECORDS = 21
ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS = 43, 44, 45
UPDATE_FEATURES = 57
REQUEST_TIMEOUT_S = 3.0
PRODUCE_TIMEOUT_MS = 1500
ASKS_ANY = 0.25  # that part of a consumer's fetches goes to any replica

TROUBLE = (LinkError, CorruptData)

# What an idempotent producer must never hear. OUT_OF_ORDER_SEQUENCE_NUMBER may come from a leader that has not heard
# that it is one no more; if it came from a real one, the producer would not come to an end.
_IMPOSSIBLE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class Client:
    """Links to brokers and what their metadata says."""

    def __init__(self, name: str, cluster: Cluster, seed: str) -> None:
        self.cluster, self.trace, self.name = cluster, cluster.trace, name
        self.chance = random.Random(f"{seed} {name}")
        self.process = Process(name)
        self.topics: dict[str, Any] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._replicas: dict[tuple[str, int], list[int]] = {}
        self.controller_id = -1
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[str, int], Link] = {}

    def link(self, address: tuple[str, int]) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(
                *address, client_id=self.name, request_timeout_s=REQUEST_TIMEOUT_S, connect_timeout_s=1.0
            )
        return link

    def broker(self, broker_id: int) -> Link:
        if broker_id not in self._addresses:
            raise LinkError(f"broker {broker_id} is not known")
        return self.link(self._addresses[broker_id])

    async def refresh(self) -> None:
        """Ask any broker for everything's metadata; raises LinkError, CorruptData."""
        asked = self.link(self.chance.choice(self.cluster.addresses))
        answer = await asked.request(METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
        self._addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self.controller_id = answer.controller_id
        self.topics = {t.name: t for t in answer.topics if t.error_code == 0}
        found = [((t.name, p.partition_index), p) for t in self.topics.values() for p in t.partitions]
        self._leaders = {tp: p.leader_id for tp, p in found}
        self._replicas = {tp: list(p.replica_nodes) for tp, p in found}

    def leader(self, tp: TopicPartition) -> int:
        """Raises LinkError where none is known."""
        found = self._leaders.get(tp, -1)
        if found < 0:
            raise LinkError(f"{tp} has no leader")
        return found

    def replica(self, tp: TopicPartition) -> int:
        """Any broker that holds the partition. Raises LinkError where none is known."""
        self.leader(tp)
        return self.chance.choice(self._replicas[tp])

    def topic_id(self, topic: str) -> UUID | None:
        found = self.topics.get(topic)
        return None if found is None or not found.topic_id.int else found.topic_id

    def count(self, what: str, code: int) -> ErrorCode:
        error = ErrorCode(code)
        self.trace.count(f"{what}: {error.name}")
        return error

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.chance.uniform(0.5, 1.5))


@dataclass(frozen=True)
class Sending:
    """How a producer sends; `promised`: what is acknowledged to it with acks=all may not be lost."""

    acks: int = -1
    idempotent: bool = False
    promised: bool = True


class Producer(Client):
    """Sends to every partition of one topic, one request at a time each, until told to stop."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        seed: str,
        ledger: Ledger,
        topic: str,
        partitions: int,
        *,
        sending: Sending,
        pause_s: float = 0.05,
    ) -> None:
        super().__init__(name, cluster, seed)
        self._ledger, self._topic, self._partitions = ledger, topic, partitions
        self._acks, self._idempotent, self._promised = sending.acks, sending.idempotent, sending.promised
        self._pause_s = pause_s
        self._numbers = itertools.count()
        self._producer_id = -1
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [self.process.spawn(self._run(TopicPartition(self._topic, p))) for p in range(self._partitions)]

    async def stopped(self) -> None:
        """Send nothing new; wait until what is under way has been settled."""
        self.stopping = True
        await asyncio.gather(*self._tasks)

    async def _run(self, tp: TopicPartition) -> None:
        sequence = 0
        while not self.stopping:
            values = [self._value() for _ in range(self.chance.choice((1, 1, 2, 4)))]
            if self._idempotent:
                self._ledger.ordered.setdefault((self.name, tp), []).extend(values)
            await self._deliver(tp, values, sequence)
            sequence += len(values)
            await self.rest(self._pause_s)

    def _value(self) -> bytes:
        return b"%s %d %s" % (self.name.encode(), next(self._numbers), b"x" * self.chance.randrange(200))

    async def _deliver(self, tp: TopicPartition, values: list[bytes], sequence: int) -> None:
        """Send until it is acknowledged; others give up at the first error."""
        while True:
            try:
                done = await self._attempt(tp, values, sequence)
            except TROUBLE as trouble:
                self.trace.count(f"produce: {type(trouble).__name__}")
                done = False
                await self._refreshed()
            if done or not self._idempotent or (self.stopping and not self._idempotent):
                return
            await self.rest(0.1)

    async def _refreshed(self) -> None:
        try:
            await self.refresh()
        except TROUBLE:
            await self.rest(0.2)

    async def _attempt(self, tp: TopicPartition, values: list[bytes], sequence: int) -> bool:
        if self._idempotent and self._producer_id < 0:
            await self._init()
        link = self.broker(self.leader(tp))
        if self._acks == 0:
            return True
        answer = await link.request(PRODUCE, 9, self._request(tp, values, sequence))
        (partition,) = answer.responses[0].partition_responses
        error = self.count("produce", partition.error_code)
        if error is ErrorCode.NONE:
            if self._acks == -1 and self._promised:
                self._ledger.promise(tp, partition.base_offset, values)
            return True
        if self._idempotent and error in _IMPOSSIBLE:
            raise BrokenPromise(f"{tp}: {self.name} was refused sequence {sequence}: {error.name}")
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return True
        await self._refreshed()
        return False

    def _request(self, tp: TopicPartition, values: list[bytes], sequence: int) -> Mapping[str, Any]:
        now_ms = WALL_CLOCK_AT_0_MS + int(self.cluster.loop.now * 1000)
        made = [Record(n, now_ms, b"k%d" % (n % 7), value, ()) for n, value in enumerate(values)]
        if self._idempotent:
            batch = build(made, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        else:
            batch = build(made)
        partition = {"index": tp.partition, "records": bytes(batch)}
        return {
            "transactional_id": None,
            "acks": self._acks,
            "timeout_ms": PRODUCE_TIMEOUT_MS,
            "topic_data": [{"name": tp.topic, "partition_data": [partition]}],
        }

    async def _init(self) -> None:
        link = self.link(self.chance.choice(self.cluster.addresses))
        answer = await link.request(
            INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1}
        )
        if self.count("init producer id", answer.error_code) is not ErrorCode.NONE:
            raise LinkError("no producer id")
        if self._producer_id < 0:
            self._producer_id = answer.producer_id


class Consumer(Client):
    """Reads every partition of the given topics from offset 0 on, and tells the ledger."""

    isolation = 0  # READ_UNCOMMITTED

    def __init__(self, name: str, cluster: Cluster, seed: str, ledger: Ledger, topics: Mapping[str, int]) -> None:
        super().__init__(name, cluster, seed)
        self._ledger = ledger
        self.position = {TopicPartition(topic, p): 0 for topic, count in topics.items() for p in range(count)}

    def start(self) -> None:
        for tp in self.position:
            self.process.spawn(self._run(tp))

    async def _run(self, tp: TopicPartition) -> None:
        while True:
            before = self.position[tp]
            try:
                await self.fetch(tp)
            except TROUBLE:
                self.trace.count("fetch: LinkError")
                try:
                    await self.refresh()
                except TROUBLE:
                    await self.rest(0.3)
            await self.rest(0.1 if self.position[tp] == before else 0.01)

    async def fetch(self, tp: TopicPartition) -> None:
        """Take what is there of one partition. Raises LinkError, CorruptData, BrokenPromise."""
        topic_id = self.topic_id(tp.topic)  # zero where inter.broker.protocol.version knows none
        # Below 11 only leaders answer; from 13 on topics go by their ids.
        version = self.chance.choice((4, 10, 11, 12, 13 if topic_id else 12))
        link = self.broker(self.replica(tp) if version >= 11 and self.chance.random() < ASKS_ANY else self.leader(tp))
        partition = {
            "partition": tp.partition,
            "current_leader_epoch": -1,
            "fetch_offset": self.position[tp],
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1500,
        }
        fields = {
            # Short: fetches of one connection are answered in turn, and most partitions have nothing new.
            "max_wait_ms": 200,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": self.isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": tp.topic, "topic_id": topic_id or UUID(int=0), "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await link.request(FETCH, version, fields)
        if answer.error_code:
            self.count("fetch", answer.error_code)
            raise LinkError("refused")
        (found,) = answer.responses[0].partitions
        error = self.count("fetch", found.error_code)
        if error is not ErrorCode.NONE:
            raise LinkError(error.name)
        self._take(tp, memoryview(bytes(found.records or b"")), found)

    def _take(self, tp: TopicPartition, data: memoryview, found: Any) -> None:
        high_watermark = found.high_watermark
        for position, header in iter_headers(data):
            if header.last_offset >= high_watermark:
                raise BrokenPromise(f"{tp}: offset {header.last_offset} shown, the high watermark is {high_watermark}")
            for record in records(data[position : position + header.length]):
                if record.offset >= self.position[tp]:
                    assert record.value is not None
                    self._ledger.saw(tp, record.offset, bytes(record.value))
                    self.position[tp] = record.offset + 1


class Admin(Client):
    """Sends changes to the controller, and accepts refusals."""

    async def _ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        try:
            await self.refresh()
            return await self.broker(self.controller_id).request(api_key, version, fields)
        except TROUBLE as trouble:
            self.trace.count(f"admin {api_key}: {type(trouble).__name__}")
            return None

    async def create(
        self, name: str, partitions: int, replicas: int, assignment: Sequence[Sequence[int]] = (), **config: str
    ) -> ErrorCode | None:
        topic = {
            "name": name,
            "num_partitions": -1 if assignment else partitions,
            "replication_factor": -1 if assignment else replicas,
            "assignments": [{"partition_index": p, "broker_ids": list(ids)} for p, ids in enumerate(assignment)],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in config.items()],
        }
        answer = await self._ask(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 2000, "validate_only": False})
        return None if answer is None else self.count("create topic", answer.topics[0].error_code)

    async def finalize(self, feature: str, level: int) -> ErrorCode | None:
        update = {"feature": feature, "max_version_level": level, "upgrade_type": 1}
        fields = {"timeout_ms": 2000, "feature_updates": [update], "validate_only": False}
        answer = await self._ask(UPDATE_FEATURES, 1, fields)
        if answer is None:
            return None
        return self.count("finalize", answer.error_code or answer.results[0].error_code)

    async def delete(self, name: str) -> ErrorCode | None:
        answer = await self._ask(DELETE_TOPICS, 5, {"topic_names": [name], "timeout_ms": 2000})
        return None if answer is None else self.count("delete topic", answer.responses[0].error_code)

    async def reassign(self, tp: TopicPartition, replicas: Sequence[int] | None) -> ErrorCode | None:
        partition = {"partition_index": tp.partition, "replicas": None if replicas is None else list(replicas)}
        fields = {"timeout_ms": 2000, "topics": [{"name": tp.topic, "partitions": [partition]}]}
        answer = await self._ask(ALTER_REASSIGNMENTS, 0, fields)
        if answer is None:
            return None
        if answer.error_code:
            return self.count("reassign", answer.error_code)
        return self.count("reassign", answer.responses[0].partitions[0].error_code)

    async def delete_records(self, tp: TopicPartition, offset: int) -> None:
        fields = {
            "topics": [{"name": tp.topic, "partitions": [{"partition_index": tp.partition, "offset": offset}]}],
            "timeout_ms": 1000,
        }
        try:
            await self.refresh()
            answer = await self.broker(self.leader(tp)).request(DELETE_RECORDS, 2, fields)
        except TROUBLE as trouble:
            self.trace.count(f"delete records: {type(trouble).__name__}")
            return
        self.count("delete records", answer.topics[0].partitions[0].error_code)

    async def set_segment_bytes(self, topic: str, size: int) -> None:
        change = {"name": "segment.bytes", "config_operation": 0, "value": str(size)}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
        answer = await self._ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        if answer is not None:
            self.count("alter configs", answer.responses[0].error_code)

    async def elect_preferred(self, topic: str, partitions: int) -> None:
        asked = [{"topic": topic, "partitions": list(range(partitions))}]
        fields = {"election_type": 0, "topic_partitions": asked, "timeout_ms": 2000}
        answer = await self._ask(ELECT_LEADERS, 2, fields)
        if answer is not None:
            self.count("elect leaders", answer.error_code)

    async def surely(self, what: Callable[[], Any], seconds: float = 30.0) -> None:
        """Repeat until it succeeded; raises BrokenPromise where it never does."""
        deadline = self.cluster.loop.now + seconds
        while await what() not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            if self.cluster.loop.now > deadline:
                raise BrokenPromise("the cluster does not take a topic although nothing is wrong")
            await self.rest(0.2)
