"""Three brokers' replicas on a virtual loop: in-memory links between them and a scripted controller above them.

    loop = VirtualLoop()
    cluster = Cluster(loop, seed, [tp], TopicConfig(min_insync_replicas=2))
    broker = cluster.brokers[cluster.leader[tp]]
    broker.replicas.producing.append(...)  # awaited on `loop` where it is no list

`kill` loses all that is in memory and keeps the logs; `restart` comes back with empty replicas and the watermark
checkpoint as it last was. `elect` and `reelect` are the controller's part, and `announce` tells the brokers of it.
`cluster.loss` is the chance that a request or an answer is lost. `check_prefixes` fails where replicas differ below
their watermarks; `log` has a replica's batches. A seed gives one history.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition
from logyard.broker.replication.events import (
    EpochAnswer,
    EpochQuery,
    FetchParams,
    FollowerFetch,
    FollowerFetchAnswer,
    Isolation,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    OffsetAnswer,
    OffsetQuery,
)
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.replication.follower.fetcher_manager import ReplicaFetchers
from logyard.broker.replication.ports import IsrChangeResult, LinkError
from logyard.broker.replication.replicas import Replicas
from logyard.broker.replication.settings import ReplicaSettings
from tests.support.disk_logs import DiskLogs, Stored
from tests.support.virtual_loop import VirtualLoop


class Broker:
    """One broker process: `logs` outlive it."""

    def __init__(
        self, cluster: "Cluster", broker_id: int, logs: DiskLogs, config: TopicConfig, **settings: Any
    ) -> None:
        loop = cluster.loop
        self.id = broker_id
        self.alive = True
        self.logs = logs
        self.metadata = MetadataCache()
        fields = {"lag_time_max_ms": 1000, "fetch_backoff_ms": 100, "fetch_wait_max_ms": 200, **settings}
        self.settings = ReplicaSettings(broker_id=broker_id, **fields)
        self.replicas = Replicas(
            self.settings,
            logs=logs,
            metadata=self.metadata,
            topic_config=lambda topic: config,
            isr_changes=IsrPort(cluster, self),
            clock=loop,
            timers=loop,
            new_pending=loop.create_future,
            run_blocking=lambda work: loop.run_in_executor(None, work),
            broker_epoch=lambda: 1,
        )
        self.sessions = FetchSessions(self.replicas.hosted, lambda: cluster.random.randint(1, 2**31 - 1))
        self.fetchers = ReplicaFetchers(
            lambda leader: Link(cluster, broker_id, leader),
            self.settings,
            self.replicas.counters,
            self.replicas.hosted.now_ms,
            lambda: 1,
            self.replicas.hosted.watermark_moved,
            loop,
        )
        self.replicas.use_fetchers(self.fetchers)
        self.replicas.start()


class IsrPort:
    """AlterPartition, as a delay and a call of the controller."""

    def __init__(self, cluster: "Cluster", broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker

    def submit(
        self,
        tp: TopicPartition,
        topic_id: Any,
        leader_epoch: int,
        new_isr: tuple[int, ...],
        partition_epoch: int,
        callback: Any,
        broker_epochs: Mapping[int, int] | None = None,
    ) -> None:
        def decide() -> None:
            result = self._cluster.alter_partition(self._broker, tp, leader_epoch, new_isr, partition_epoch)
            self._cluster.loop.call_later(self._cluster.delay(), answer, result)

        def answer(result: IsrChangeResult) -> None:
            if self._broker.alive:
                callback(result)

        self._cluster.loop.call_later(self._cluster.delay(), decide)


class Link:
    """A follower's connection to one leader: delays, lost answers, and failure while either side is dead."""

    def __init__(self, cluster: "Cluster", follower: int, leader: int) -> None:
        self._cluster = cluster
        self._follower = follower
        self._leader = leader

    async def _reach(self) -> Broker:
        cluster = self._cluster
        await asyncio.sleep(cluster.delay())
        broker = cluster.brokers[self._leader]
        if not broker.alive or cluster.random.random() < cluster.loss:
            raise LinkError(f"broker {self._leader} cannot be reached")
        return broker

    async def _return(self, broker: Broker) -> None:
        await asyncio.sleep(self._cluster.delay())
        if not broker.alive or self._cluster.random.random() < self._cluster.loss:
            raise LinkError(f"the answer of broker {self._leader} was lost")

    async def fetch(self, request: FollowerFetch) -> FollowerFetchAnswer:
        broker = await self._reach()
        params = FetchParams(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.replica_id, isolation=Isolation.LOG_END
        )
        context = broker.sessions.open(
            params,
            request.session_id,
            request.session_epoch,
            [_copy(ask) for ask in request.partitions],
            [(t.int or tp.topic, tp.partition) for tp, t in request.forgotten],
            uses_topic_ids=request.uses_topic_ids,
        )
        if context.error:
            return FollowerFetchAnswer(context.error, 0, ())
        found = broker.replicas.fetching.fetch(params, context.source)
        answers = found if isinstance(found, list) else await found
        error, session_id, sent = context.finish(answers)
        await self._return(broker)
        return FollowerFetchAnswer(error, session_id, sent)

    async def list_offsets(self, queries: Sequence[OffsetQuery]) -> Sequence[OffsetAnswer]:
        broker = await self._reach()
        found = broker.replicas.lookups.list_offsets(queries, Isolation.LOG_END)
        answers = found if isinstance(found, list) else await found
        await self._return(broker)
        return answers

    async def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery]) -> Sequence[EpochAnswer]:
        broker = await self._reach()
        answers = broker.replicas.lookups.offsets_for_leader_epoch(queries)
        await self._return(broker)
        return answers


def _copy(ask: Any) -> Any:
    import copy

    return copy.copy(ask)


class Cluster:
    """Brokers 1-3 and the controller's part for its partitions."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        partitions: Sequence[TopicPartition],
        config: TopicConfig,
        **settings: Any,
    ) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.loss = 0.0
        self.config = config
        self.settings = settings
        self.ids: tuple[int, ...] = (1, 2, 3)
        self.replicas: dict[TopicPartition, tuple[int, ...]] = dict.fromkeys(partitions, self.ids)
        self.leader = {tp: 1 + i % 3 for i, tp in enumerate(partitions)}
        self.epoch = dict.fromkeys(partitions, 0)
        self.isr: dict[TopicPartition, tuple[int, ...]] = dict.fromkeys(partitions, self.ids)
        self.partition_epoch = dict.fromkeys(partitions, 0)
        self.dying: list[asyncio.Task[None]] = []
        self.brokers = {b: Broker(self, b, DiskLogs(), config, **settings) for b in self.ids}
        self.announce(self.ids, partitions)

    def delay(self) -> float:
        return self.random.uniform(0.0005, 0.01)

    def live(self) -> list[int]:
        return [b for b in self.ids if self.brokers[b].alive]

    # The controller

    def announce(self, to: Sequence[int], partitions: Sequence[TopicPartition]) -> None:
        """UpdateMetadata to all, LeaderAndIsr to `to`."""
        brokers = tuple(BrokerInfo(b, (Endpoint("P", "PLAINTEXT", f"h{b}", 1),)) for b in self.live())
        updates = tuple(
            PartitionUpdate(tp, self.leader[tp], self.epoch[tp], self.isr[tp], self.replicas[tp]) for tp in partitions
        )
        orders = tuple(
            LeaderAndIsrPartition(
                tp, self.leader[tp], self.epoch[tp], self.isr[tp], self.replicas[tp], self.partition_epoch[tp]
            )
            for tp in partitions
        )
        for b in self.live():
            self.brokers[b].replicas.requests.update_metadata(UpdateMetadata(9, 1, -1, updates, brokers))
        for b in to:
            if self.brokers[b].alive:
                self.brokers[b].replicas.requests.become_leader_or_follower(LeaderAndIsr(9, 1, -1, orders))

    def elect(self, tp: TopicPartition, leader: int, isr: tuple[int, ...]) -> None:
        self.leader[tp] = leader
        self.isr[tp] = isr
        self.epoch[tp] += 1
        self.partition_epoch[tp] += 1

    def reelect(self) -> None:
        """Give every partition without a living leader one out of its ISR, where one lives; tell everyone."""
        changed = []
        for tp in self.replicas:
            candidates = [b for b in self.isr[tp] if self.brokers[b].alive]
            if candidates and not (self.leader[tp] >= 0 and self.brokers[self.leader[tp]].alive):
                self.elect(tp, self.random.choice(candidates), tuple(candidates))
                changed.append(tp)
            elif not candidates and self.leader[tp] != -1:
                self.elect(tp, -1, self.isr[tp])
                changed.append(tp)
        self.announce(self.live(), changed)

    def alter_partition(
        self, broker: Broker, tp: TopicPartition, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> IsrChangeResult:
        if leader_epoch < self.epoch[tp]:
            return IsrChangeResult(ErrorCode.FENCED_LEADER_EPOCH)
        if partition_epoch < self.partition_epoch[tp]:
            return IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION)
        if any(not self.brokers[b].alive for b in isr):
            return IsrChangeResult(ErrorCode.INELIGIBLE_REPLICA)
        assert self.leader[tp] == broker.id
        self.isr[tp] = isr
        self.partition_epoch[tp] += 1
        return IsrChangeResult(ErrorCode.NONE, self.leader[tp], self.epoch[tp], isr, self.partition_epoch[tp])

    # What happens to brokers

    def kill(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if self.random.random() < 0.5:
            hosted = broker.replicas.hosted.partitions.items()
            broker.logs.checkpoint = {tp: p.log.high_watermark for tp, p in hosted if p.log is not None}
        broker.alive = False
        broker.replicas.use_fetchers(_Nobody())
        broker.replicas.close()
        broker.fetchers.stop(list(broker.replicas.partitions()))  # nothing that is on its way arrives any more
        self.dying.append(self.loop.create_task(broker.fetchers.close()))

    def restart(self, broker_id: int) -> None:
        logs = self.brokers[broker_id].logs
        logs.restart()
        self.brokers[broker_id] = Broker(self, broker_id, logs, self.config, **self.settings)
        for tp in self.replicas:
            if self.leader[tp] >= 0:
                self.epoch[tp] += 1
                self.partition_epoch[tp] += 1
        self.announce(self.ids, list(self.replicas))
        self.reelect()

    # Checks

    def log(self, broker_id: int, tp: TopicPartition) -> list[Stored]:
        return self.brokers[broker_id].logs.contents(tp)

    def check_prefixes(self) -> None:
        """Below min(own end, own watermark) replicas are equal (facts §23)."""
        for tp in self.replicas:
            held = [(b.logs.logs[tp].high_watermark, b.logs.contents(tp)) for b in self.brokers.values()]
            for high_watermark, one in held:
                for other_watermark, other in held:
                    bound = min(high_watermark, other_watermark)
                    mine = [b for b in one if b.last < bound]
                    theirs = [b for b in other if b.last < bound]
                    assert mine == theirs, f"{tp}: replicas differ below {bound}"


class _Nobody:
    def start(self, partitions: Any) -> None: ...
    def stop(self, partitions: Any) -> None: ...
    def refresh_topic_ids(self, partitions: Any) -> None: ...

    failed_count = 0
