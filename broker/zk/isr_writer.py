"""Changes the ISR of led partitions below inter.broker.protocol.version 2.7-IV2, by writing the state znodes.

It implements `replication.ports.IsrChanges`; from 2.7-IV2 on `client/alter_partition.py` does (facts §22).

Rule 1: a state is written on condition of the partition epoch that was read, and only if it names this broker as leader
        in the change's leader epoch. The controller epoch in it stays.
Rule 2: if the znode is newer than the leader knew (a lost reply, a tool), the leader gets its content. Kafka's leader
        would try to write on the old version for ever (KAFKA-2729).
Rule 3: the controller is notified by /isr_change_notification, with several changes at a time: 5 s after the last
        change, at most a minute after the first (Kafka's times). Until then other brokers' metadata has the old ISR.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import PartitionState, TopicId, TopicPartition
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.znodes import isr_notifications, partition_state
from logyard.broker.znodes.ops import Create, SessionExpired, SetData, ZkCode, Znode, ZooKeeper

RETRY_S = 0.5
CHECK_S, LINGER_S, DELAY_MAX_S = 2.5, 5.0, 60.0
PARTITIONS_PER_NOTIFICATION = 3000  # far below the limit of a znode's size

log = structlog.get_logger("logyard.isr")

Callback = Callable[[IsrChangeResult], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    callback: Callback


class DirectIsrWriter:
    """See the head of this file."""

    def __init__(self, zk: ZooKeeper, broker_id: int) -> None:
        self._zk = zk
        self._broker_id = broker_id
        self._changes: dict[TopicPartition, _Change] = {}
        self._unannounced: dict[TopicPartition, None] = {}
        self._last_change_s = 0.0
        self._oldest_unannounced_s = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None

    def submit(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        leader_epoch: int,
        new_isr: tuple[int, ...],
        partition_epoch: int,
        callback: Callback,
        broker_epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Write a new ISR; `callback` is called once, later, with the result.

        It replaces a change of the same partition that waits.
        """
        self._changes[tp] = _Change(leader_epoch, new_isr, partition_epoch, callback)
        if self._writing is None or self._writing.done():
            self._writing = tasks.keep("isr writer", self._write_all)

    def close(self) -> None:
        for task in (self._writing, self._notifying):
            if task is not None:
                task.cancel()
        self._changes.clear()
        self._unannounced.clear()

    async def _write_all(self) -> None:
        # Take all changes that are submitted in this turn of the loop into one round.
        await asyncio.sleep(0)
        while self._changes:
            asked = dict(self._changes)
            try:
                await self._write(asked)
            except SessionExpired:
                log.info("no ZooKeeper session, trying again", partitions=len(asked))
                await asyncio.sleep(RETRY_S)

    async def _write(self, asked: Mapping[TopicPartition, _Change]) -> None:
        """Read and write each state once; those that others changed in between stay for the next round."""
        paths = {tp: partition_state.path(tp) for tp in asked}
        znodes = await self._zk.read(list(paths.values()))
        wanted: dict[TopicPartition, PartitionState] = {}
        for (tp, change), znode in zip(asked.items(), znodes, strict=True):
            result, state = self._look(tp, change, znode)
            if result is not None:
                self._settle(tp, change, result)
            elif state is not None:
                wanted[tp] = state
        writes = [[SetData(paths[tp], partition_state.encode(s), s.partition_epoch)] for tp, s in wanted.items()]
        answers = await self._zk.pipeline(writes)
        for (tp, state), (answer,) in zip(wanted.items(), answers, strict=True):
            if answer.ok:
                self._settle(tp, asked[tp], _committed(state._replace(partition_epoch=answer.version)))
                self._notify_later(tp)
            elif answer.code not in (ZkCode.BAD_VERSION, ZkCode.NO_NODE):
                self._settle(tp, asked[tp], IsrChangeResult(ErrorCode.OPERATION_NOT_ATTEMPTED))

    def _look(
        self, tp: TopicPartition, change: _Change, znode: Znode | None
    ) -> tuple[IsrChangeResult | None, PartitionState | None]:
        """Return an answer that needs no write, or the state to write."""
        if znode is None:
            return IsrChangeResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
        try:
            now = partition_state.decode(znode.data, znode.version, partition_state.path(tp))
        except CorruptData as problem:
            log.error("cannot change an ISR", partition=str(tp), reason=str(problem))
            return IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION), None
        if now.leader_epoch != change.leader_epoch or now.leader != self._broker_id:
            return IsrChangeResult(ErrorCode.FENCED_LEADER_EPOCH), None
        if now.partition_epoch != change.partition_epoch or now.isr == change.new_isr:
            return _committed(now), None
        return None, now._replace(isr=change.new_isr, recovering=False)

    def _settle(self, tp: TopicPartition, change: _Change, result: IsrChangeResult) -> None:
        if self._changes.get(tp) is change:
            del self._changes[tp]
        try:
            change.callback(result)
        except Exception:
            # The other partitions still get their answers.
            log.exception("cannot handle the result of an ISR change", partition=str(tp))

    # Notifying the controller

    def _notify_later(self, tp: TopicPartition) -> None:
        loop = asyncio.get_running_loop()
        self._last_change_s = loop.time()
        if not self._unannounced:
            self._oldest_unannounced_s = self._last_change_s
        self._unannounced[tp] = None
        if self._notifying is None or self._notifying.done():
            self._notifying = tasks.keep("isr notifications", self._notify_when_due)

    async def _notify_when_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unannounced:
            await asyncio.sleep(CHECK_S)
            now = loop.time()
            if now - self._last_change_s < LINGER_S and now - self._oldest_unannounced_s < DELAY_MAX_S:
                continue
            some = list(self._unannounced)[:PARTITIONS_PER_NOTIFICATION]
            notice = Create(isr_notifications.SEQUENCE_PREFIX, isr_notifications.encode(some), sequential=True)
            try:
                (created,) = await self._zk.multi([notice])
            except SessionExpired:
                continue
            if not created.ok:
                log.error("cannot tell the controller of ISR changes, trying again", reason=created.code.value)
                continue
            self._oldest_unannounced_s = loop.time()
            for tp in some:
                del self._unannounced[tp]


def _committed(state: PartitionState) -> IsrChangeResult:
    return IsrChangeResult(
        ErrorCode.NONE, state.leader, state.leader_epoch, state.isr, state.partition_epoch, state.recovering
    )
