"""Changes the ISR of led partitions by AlterPartition to the controller (KIP-497): `replication.ports.IsrChanges`.

Rule 1: one request is in flight per broker; the next one has all changes that were submitted meanwhile.
Rule 2: a change is sent until the controller answers it. After a time-out, a lost link, STALE_BROKER_EPOCH or
        NOT_CONTROLLER it is sent again, to the controller of that time (facts §22).
Rule 3: requests have version 3, with topic ids; version 1, with names, if a topic has no id.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.client.controller_link import ToController
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.replication.ports import IsrChangeResult, LinkError

API_KEY = 56
RETRY_S = 0.05

log = structlog.get_logger("logyard.isr")

Callback = Callable[[IsrChangeResult], None]


@dataclass(slots=True)
class _Change:
    topic_id: TopicId | None
    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    callback: Callback
    broker_epochs: Mapping[int, int]


class AlterPartitionSender:
    """See the head of this file. `broker_epoch` is called for each request."""

    def __init__(self, controller: ToController, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._changes: dict[TopicPartition, _Change] = {}
        self._task: asyncio.Task[None] | None = None

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
        """Request a new ISR; `callback` is called once, later, with the controller's answer.

        It replaces a change of the same partition that waits; that one's callback is called only if it was sent.
        """
        self._changes[tp] = _Change(topic_id, leader_epoch, new_isr, partition_epoch, callback, broker_epochs or {})
        if self._task is None or self._task.done():
            self._task = tasks.keep("alter partition", self._run)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._changes.clear()

    async def _run(self) -> None:
        # Take all changes that are submitted in this turn of the loop into one request.
        await asyncio.sleep(0)
        while self._changes:
            asked = dict(self._changes)
            if not await self._ask(asked):
                await asyncio.sleep(RETRY_S)

    async def _ask(self, asked: dict[TopicPartition, _Change]) -> bool:
        """Send one request; False if changes have to be sent again after a pause."""
        by_id = all(change.topic_id not in (None, ZERO_TOPIC_ID) for change in asked.values())
        try:
            response = await self._controller.request(API_KEY, 3 if by_id else 1, self._fields(asked, by_id))
        except (LinkError, CorruptData, ValueError) as error:
            log.info("cannot reach the controller, trying again", error=str(error), partitions=len(asked))
            self._controller.close()
            return False
        error_code = ErrorCode(response.error_code)
        if error_code is not ErrorCode.NONE:
            log.info("the controller refused ISR changes, trying again", error=error_code.name, partitions=len(asked))
            if error_code is ErrorCode.NOT_CONTROLLER:
                self._controller.close()
            return False
        return self._settle(asked, response, by_id)

    def _fields(self, asked: dict[TopicPartition, _Change], by_id: bool) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for tp, change in asked.items():
            topic = topics.setdefault(
                tp.topic, {"topic_name": tp.topic, "topic_id": change.topic_id or ZERO_TOPIC_ID, "partitions": []}
            )
            topic["partitions"].append(
                {
                    "partition_index": tp.partition,
                    "leader_epoch": change.leader_epoch,
                    "new_isr": list(change.new_isr),
                    # -1: unknown. A Kafka controller in ZooKeeper mode ignores these epochs (facts §10).
                    "new_isr_with_epochs": [
                        {"broker_id": b, "broker_epoch": change.broker_epochs.get(b, -1)} for b in change.new_isr
                    ],
                    "leader_recovery_state": 0,
                    "partition_epoch": change.partition_epoch,
                }
            )
        return {
            "broker_id": self._broker_id,
            "broker_epoch": self._broker_epoch(),
            "topics": list(topics.values()),
        }

    def _settle(self, asked: dict[TopicPartition, _Change], response: Any, by_id: bool) -> bool:
        names = {change.topic_id: tp.topic for tp, change in asked.items()} if by_id else {}
        silent = dict.fromkeys(asked)
        for topic in response.topics:
            name = names.get(topic.topic_id) if by_id else topic.topic_name
            for p in topic.partitions:
                tp = TopicPartition(name or "", p.partition_index)
                change = asked.get(tp)
                if change is None:
                    continue
                code = ErrorCode(p.error_code)
                if code is ErrorCode.NOT_CONTROLLER:
                    continue
                silent.pop(tp, None)
                if self._changes.get(tp) is change:
                    del self._changes[tp]
                try:
                    change.callback(_result(code, p))
                except Exception:
                    # The other partitions still get their answers.
                    log.exception("cannot handle the controller's answer", partition=str(tp))
        if silent:
            log.info("the controller left partitions out, trying again", partitions=len(silent))
            self._controller.close()
        return not silent


def _result(code: ErrorCode, p: Any) -> IsrChangeResult:
    if code is not ErrorCode.NONE:
        return IsrChangeResult(code)
    recovering = bool(getattr(p, "leader_recovery_state", 0))
    return IsrChangeResult(code, p.leader_id, p.leader_epoch, tuple(p.isr), p.partition_epoch, recovering)
