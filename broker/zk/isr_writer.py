"""How a leader changes its ISR below inter.broker.protocol.version 2.7-IV2: it writes the state znode itself.

The port `replication.ports.IsrChanges`, as `client/alter_partition.py` is from 2.7-IV2 on.

Rule 1: a state is written on the partition epoch that was read, and only while it names this broker as leader in the
        leader epoch of the change; the controller epoch stays as it is.
Rule 2: where the znode is ahead of what the leader knew (a reply that was lost, a tool), the leader is told what it
        holds; Kafka's leader would go on for ever with a version that cannot be written on (KAFKA-2729).
Rule 3: the controller hears by /isr_change_notification, several changes at once: when none has come for 5 s, after a
        minute at the latest (Kafka's times). Until then other brokers' metadata shows the older ISR.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import PartitionState, TopicId, TopicPartition
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.znodes import isr_notifications, partition_state
from logyard.broker.znodes.ops import Create, SessionExpired, SetData, ZkCode, Znode, ZooKeeper

RETRY_S = 0.5
CHECK_S, LINGER_S, DELAY_MAX_S = 2.5, 5.0, 60.0
PARTITIONS_PER_NOTIFICATION = 3000  # far below what a znode may hold

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
        self._untold: dict[TopicPartition, None] = {}
        self._last_change_s = 0.0
        self._oldest_untold_s = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None

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
        """Write a new ISR; `callback` hears what became of it, once, later.

        A change submitted for a partition that waits already takes its place.
        """
        self._changes[tp] = _Change(leader_epoch, new_isr, partition_epoch, callback)
        if self._writing is None or self._writing.done():
            self._writing = tasks.keep("isr writer", self._write_all)

    def close(self) -> None:
        for task in (self._writing, self._telling):
            if task is not None:
                task.cancel()
        self._changes.clear()
        self._untold.clear()

    async def _write_all(self) -> None:
        # Whatever else is submitted in this turn of the loop goes along.
        await asyncio.sleep(0)
        while self._changes:
            asked = dict(self._changes)
            try:
                await self._write(asked)
            except SessionExpired:
                log.info("no ZooKeeper session, trying again", partitions=len(asked))
                await asyncio.sleep(RETRY_S)

    async def _write(self, asked: Mapping[TopicPartition, _Change]) -> None:
        """One look and one write of each; what was changed in between stays for the next round."""
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
                self._settle(tp, asked[tp], _committed(replace(state, partition_epoch=answer.version)))
                self._tell_later(tp)
            elif answer.code not in (ZkCode.BAD_VERSION, ZkCode.NO_NODE):
                self._settle(tp, asked[tp], IsrChangeResult(ErrorCode.OPERATION_NOT_ATTEMPTED))

    def _look(
        self, tp: TopicPartition, change: _Change, znode: Znode | None
    ) -> tuple[IsrChangeResult | None, PartitionState | None]:
        """Return the answer that needs no write, or else the state to write."""
        if znode is None:
            return IsrChangeResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
        try:
            now = partition_state.decode(znode.data, znode.version, partition_state.path(tp))
        except CorruptData as problem:
            log.error("an ISR cannot be changed", partition=str(tp), reason=str(problem))
            return IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION), None
        if now.leader_epoch != change.leader_epoch or now.leader != self._broker_id:
            return IsrChangeResult(ErrorCode.FENCED_LEADER_EPOCH), None
        if now.partition_epoch != change.partition_epoch or now.isr == change.new_isr:
            return _committed(now), None
        return None, replace(now, isr=change.new_isr, recovering=False)

    def _settle(self, tp: TopicPartition, change: _Change, result: IsrChangeResult) -> None:
        if self._changes.get(tp) is change:
            del self._changes[tp]
        try:
            change.callback(result)
        except Exception:
            # One partition's trouble must not keep the others from their answers.
            log.exception("answer not handled", partition=str(tp))

    # Telling the controller

    def _tell_later(self, tp: TopicPartition) -> None:
        loop = asyncio.get_running_loop()
        self._last_change_s = loop.time()
        if not self._untold:
            self._oldest_untold_s = self._last_change_s
        self._untold[tp] = None
        if self._telling is None or self._telling.done():
            self._telling = tasks.keep("isr notifications", self._tell_when_due)

    async def _tell_when_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._untold:
            await asyncio.sleep(CHECK_S)
            now = loop.time()
            if now - self._last_change_s < LINGER_S and now - self._oldest_untold_s < DELAY_MAX_S:
                continue
            some = list(self._untold)[:PARTITIONS_PER_NOTIFICATION]
            notice = Create(isr_notifications.SEQUENCE_PREFIX, isr_notifications.encode(some), sequential=True)
            try:
                await self._zk.multi([notice])
            except SessionExpired:
                continue
            self._oldest_untold_s = loop.time()
            for tp in some:
                del self._untold[tp]


def _committed(state: PartitionState) -> IsrChangeResult:
    return IsrChangeResult(
        ErrorCode.NONE, state.leader, state.leader_epoch, state.isr, state.partition_epoch, state.recovering
    )
