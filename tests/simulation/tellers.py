"""Transactional clients: tellers write to some partitions at once, and move their group's offset with it.

Several tellers may share one account (a transactional id): each that begins fences the others. Now and then one says
nothing for longer than its transaction may last. Like Kafka's clients since 4.0, they go by `transaction.version` 2
where the brokers tell that it is finalized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.config.features import TRANSACTION_VERSION
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import Record, build
from logyard.broker.replication.ports import LinkError
from tests.simulation.clients import (
    INIT_PRODUCER_ID,
    PRODUCE,
    PRODUCE_TIMEOUT_MS,
    REQUEST_TIMEOUT_S,
    TROUBLE,
    Client,
)
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import BrokenPromise
from tests.simulation.machine import WALL_CLOCK_AT_0_MS
from tests.simulation.transfers import Account, Fate, Transfer

OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS = 9, 10, 18
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
GROUP_KEY, TRANSACTION_KEY = 0, 1
TIMEOUT_MS = 6000
SILENT_CHANCE = 0.02
SILENT_S = 1.5 * TIMEOUT_MS / 1000
ABORT_CHANCE = 0.25
OFFSET_CHANCE = 0.4
FENCED_S = 4.0
PAUSE_S = 0.5
ATTEMPTS = 40

_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
# What a producer may hear whose transaction ended without it (a time-out), or whose state a partition has lost.
_OVER = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


class GivenUp(Exception):
    """The producer begins anew, as an application does that is started again."""


@dataclass
class Session:
    """A producer's id and epoch, and the next sequence of each partition. `raises`: each end gives the next epoch."""

    producer_id: int
    epoch: int
    raises: bool
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


class Teller(Client):
    """Runs one transaction after the other on `topic`.

    `hasty`: asks again, in the same epoch, for the end of a transaction whose answer is lost. With the protocol of
    Kafka 3.9 the first request may then end a later transaction (KAFKA-17754); with `transaction.version` 2 it cannot.
    `ends_held`: the part of such requests that arrive after the teller has given them up.
    """

    topic, partitions = "bank", 2

    def __init__(
        self, name: str, cluster: Cluster, seed: str, account: Account, *, hasty: bool = False, ends_held: float = 0.0
    ) -> None:
        super().__init__(name, cluster, seed)
        self._account, self._hasty, self._ends_held = account, hasty, ends_held
        self._session: Session | None = None
        self._coordinators: dict[tuple[str, int], tuple[str, int]] = {}
        self.stopping = False

    @property
    def account_name(self) -> str:
        return self._account.name

    def start(self) -> None:
        self.task = self.process.spawn(self._run())

    async def stopped(self) -> None:
        """Begin nothing new; what is open is ended, or left to its time-out."""
        self.stopping = True
        await self.task

    async def _run(self) -> None:
        while not self.stopping:
            try:
                if self._session is None:
                    self._session = await self._init()
                await self._transfer(self._session)
            except GivenUp as why:
                self.trace.count(f"teller gives up: {why}")
                fenced = self._session is not None and str(why) in [code.name for code in _FENCED]
                self._session = None
                await self.rest(FENCED_S if fenced else 0.2)
            await self.rest(PAUSE_S)

    async def _transfer(self, session: Session) -> None:
        transfer = self._account.begin(with_offset=self.chance.random() < OFFSET_CHANCE)
        chosen = self.chance.sample(range(self.partitions), self.chance.randint(1, self.partitions))
        tps = [TopicPartition(self.topic, p) for p in chosen]
        await self._add(session, tps)
        for tp in tps:
            for _ in range(self.chance.choice((1, 1, 2))):
                await self._send(session, tp, transfer.add(tp, self.chance.choice((1, 2))))
        if transfer.with_offset:
            await self._add_offset(session, transfer)
        if self.chance.random() < SILENT_CHANCE:
            self.trace.count("teller: silent")
            await self.rest(SILENT_S)
        await self._end(session, transfer, commit=self.chance.random() >= ABORT_CHANCE)

    # The requests of one transaction

    async def _init(self) -> Session:
        fields = {
            "transactional_id": self._account.name,
            "transaction_timeout_ms": TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask_coordinator("init transactions", INIT_PRODUCER_ID, 4, fields)
        return Session(answer.producer_id, answer.producer_epoch, raises=await self._raises())

    async def _raises(self) -> bool:
        """Whether the brokers tell that transaction.version 2 is finalized."""
        fields = {"client_software_name": "teller", "client_software_version": "1"}
        for _ in range(ATTEMPTS):
            try:
                link = self.link(await self._coordinator(TRANSACTION_KEY))
                told = await link.request(API_VERSIONS, 3, fields)
            except TROUBLE:
                self._coordinators.clear()
                await self._refreshed()
                continue
            levels = {one.name: one.max_version_level for one in told.finalized_features}
            return bool(levels.get(TRANSACTION_VERSION, 0) >= 2)
        raise GivenUp("nobody tells the features")

    async def _add(self, session: Session, tps: list[TopicPartition]) -> None:
        if session.raises:
            return  # the leaders do it
        topics = [{"name": tps[0].topic, "partitions": [tp.partition for tp in tps]}]
        fields = {
            "v3_and_below_transactional_id": self._account.name,
            "v3_and_below_producer_id": session.producer_id,
            "v3_and_below_producer_epoch": session.epoch,
            "v3_and_below_topics": topics,
        }
        await self._ask_coordinator("add partitions", ADD_PARTITIONS_TO_TXN, 3, fields, again=True)

    async def _send(self, session: Session, tp: TopicPartition, values: list[bytes]) -> int:
        """Return the offset of the first of them; -1 where the leader does not know it any more."""
        sequence = session.sequences.get(tp, 0)
        batch = self._batch(session, values, sequence)
        fields = {
            "transactional_id": self._account.name,
            "acks": -1,
            "timeout_ms": PRODUCE_TIMEOUT_MS,
            "topic_data": [{"name": tp.topic, "partition_data": [{"index": tp.partition, "records": batch}]}],
        }
        for _ in range(ATTEMPTS):
            try:
                answer = await self.broker(self.leader(tp)).request(PRODUCE, 12 if session.raises else 9, fields)
                code = self.count("transactional produce", _worst(answer))
            except TROUBLE as trouble:
                self.trace.count(f"transactional produce: {type(trouble).__name__}")
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                session.sequences[tp] = sequence + len(values)
                return int(answer.responses[0].partition_responses[0].base_offset)
            self._look_at(code)
            await self._refreshed()
        raise GivenUp("a Produce that never gets through")

    def _batch(self, session: Session, values: list[bytes], sequence: int) -> bytes:
        now_ms = WALL_CLOCK_AT_0_MS + int(self.cluster.loop.now * 1000)
        made = [Record(n, now_ms, b"k", value, ()) for n, value in enumerate(values)]
        return bytes(
            build(
                made,
                transactional=True,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                base_sequence=sequence,
            )
        )

    async def _add_offset(self, session: Session, transfer: Transfer) -> None:
        own = {
            "transactional_id": self._account.name,
            "group_id": self._account.name,
            "producer_id": session.producer_id,
            "producer_epoch": session.epoch,
        }
        if not session.raises:
            await self._ask_coordinator("add offsets", ADD_OFFSETS_TO_TXN, 3, own, again=True)
        partition = {"partition_index": 0, "committed_offset": transfer.number, "committed_leader_epoch": -1}
        topics = [{"name": self.topic, "partitions": [{**partition, "committed_metadata": ""}]}]
        fields = own | {"generation_id": -1, "member_id": "", "group_instance_id": None, "topics": topics}
        version = 5 if session.raises else 3
        await self._ask_coordinator("offsets in txn", TXN_OFFSET_COMMIT, version, fields, again=True, kind=GROUP_KEY)

    async def _end(self, session: Session, transfer: Transfer, *, commit: bool) -> None:
        transfer.fate = Fate.UNKNOWN if commit else Fate.ABORTED
        fields = {
            "transactional_id": self._account.name,
            "producer_id": session.producer_id,
            "producer_epoch": session.epoch,
            "committed": commit,
        }
        if self._ends_held and self.chance.random() < self._ends_held:
            self._hold((await self._coordinator(TRANSACTION_KEY))[0])
        version = 5 if session.raises else 3
        answer = await self._ask_coordinator("end txn", END_TXN, version, fields, again=self._hasty)
        if commit:
            transfer.fate = Fate.COMMITTED
        if session.raises:
            session.producer_id, session.epoch = answer.producer_id, answer.producer_epoch
            session.sequences.clear()
            self.trace.count("teller: raised epochs")

    def _hold(self, host: str) -> None:
        """What is sent now arrives when it has been given up."""
        for transport in self.process.transports:
            if transport.peer.process.name == host and not transport.held:
                transport.held = True
                self.cluster.loop.call_later(REQUEST_TIMEOUT_S + self.chance.uniform(0.1, 2.5), transport.release)

    # Asking a coordinator

    async def _ask_coordinator(
        self, what: str, api: int, version: int, fields: Mapping[str, Any], *, again: bool = False, kind: int = 1
    ) -> Any:
        """Ask until the answer is good. `again`: also where an answer was lost. Raises GivenUp."""
        for _ in range(ATTEMPTS):
            try:
                link = self.link(await self._coordinator(kind))
            except TROUBLE:
                await self._refreshed()
                continue
            try:
                answer = await link.request(api, version, fields)
            except TROUBLE as trouble:
                self.trace.count(f"{what}: {type(trouble).__name__}")
                self._coordinators.clear()
                if not again:
                    raise GivenUp(f"the answer to {what} is lost") from trouble
                await self._refreshed()
                continue
            code = self.count(what, _worst(answer))
            if code is ErrorCode.NONE:
                return answer
            self._look_at(code)
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.clear()
            await self.rest(0.1)
        raise GivenUp(f"{what} never gets through")

    def _look_at(self, code: ErrorCode) -> None:
        """Returns where the request may be repeated. Raises GivenUp, BrokenPromise."""
        if code in _FENCED or code in _OVER:
            raise GivenUp(code.name)
        if code not in _AGAIN:
            raise BrokenPromise(f"{self.name} was answered {code.name}")

    async def _coordinator(self, kind: int) -> tuple[str, int]:
        key = (self._account.name, kind)
        if key not in self._coordinators:
            asked = self.link(self.chance.choice(self.cluster.addresses))
            answer = await asked.request(FIND_COORDINATOR, 3, {"key": self._account.name, "key_type": kind})
            if self.count("find coordinator", answer.error_code) is not ErrorCode.NONE:
                raise LinkError("no coordinator")
            self._coordinators[key] = (answer.host, answer.port)
        return self._coordinators[key]

    async def _refreshed(self) -> None:
        await self.rest(0.2)
        try:
            await self.refresh()
        except TROUBLE:
            await self.rest(0.2)

    async def offset(self) -> int:
        """What the account's group has committed, once no transaction can change it any more; -1 for nothing."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        fields = {"group_id": self._account.name, "topics": topics, "require_stable": True}
        while True:
            try:
                link = self.link(await self._coordinator(GROUP_KEY))
                answer = await link.request(OFFSET_FETCH, 7, fields)
                code = ErrorCode(answer.error_code or answer.topics[0].partitions[0].error_code)
                if self.count("fetch stable offsets", code) is ErrorCode.NONE:
                    return int(answer.topics[0].partitions[0].committed_offset)
            except TROUBLE:
                self.trace.count("fetch stable offsets: LinkError")
            self._coordinators.clear()
            await self.rest(0.2)


def _worst(answer: Any) -> int:
    """The first error of an answer; 0 where there is none."""
    if getattr(answer, "error_code", 0):
        return int(answer.error_code)
    for topic in _topics(answer):
        for partition in _partitions(topic):
            for name in ("error_code", "partition_error_code"):
                if getattr(partition, name, 0):
                    return int(getattr(partition, name))
    return 0


def _topics(answer: Any) -> Any:
    for name in ("responses", "results_by_topic_v3_and_below", "topics"):
        if hasattr(answer, name):
            return getattr(answer, name)
    return ()


def _partitions(topic: Any) -> Any:
    for name in ("partition_responses", "results_by_partition", "partitions"):
        if hasattr(topic, name):
            return getattr(topic, name)
    return ()
