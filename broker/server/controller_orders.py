"""The controller's requests, carried out one after the other and in portions.

Rule 1: LeaderAndIsr, StopReplica and UpdateMetadata never overlap, whichever controller they come from (Kafka's
        replicaStateChangeLock).
Rule 2: between portions of a large request others are served. A replica that is made or deleted is work for the disk,
        some milliseconds of it where the file system is slow: a topic of a thousand partitions in one turn of the event
        loop kept all clients waiting for seconds. A large UpdateMetadata is seen as a whole all the same
        (metadata/large_update.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import INTERNAL_TOPICS, TopicId, TopicPartition
from logyard.broker.replication.controller_requests import ControllerRequests
from logyard.broker.replication.events import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    PartitionErrors,
    StopReplica,
    StopReplicaPartition,
)

TURN = 100
"""What is done in one turn of the event loop: so many replicas, a tenth as many where files are made or renamed, or
where a coordinator takes or gives up what may be thousands of groups or transactional ids."""
ON_DISK = 10
COORDINATED = 10

One = TypeVar("One", LeaderAndIsrPartition, StopReplicaPartition)


class ControllerOrders:
    """Carries out the controller's requests; see the rules above."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def lead_or_follow(
        self, requests: ControllerRequests, order: LeaderAndIsr, has_log: Callable[[TopicPartition], bool]
    ) -> PartitionErrors:
        """Carry out LeaderAndIsr."""

        def cost(one: LeaderAndIsrPartition) -> int:
            return _cost(one.tp, on_disk=not has_log(one.tp))

        async with self._one_at_a_time:
            return await _in_portions(
                turns_of(order.partitions, cost),
                lambda part: requests.become_leader_or_follower(replace(order, partitions=part)),
                order.topic_ids,
            )

    async def stop(self, requests: ControllerRequests, order: StopReplica) -> PartitionErrors:
        """Carry out StopReplica."""

        def cost(one: StopReplicaPartition) -> int:
            return _cost(one.tp, on_disk=one.delete)

        async with self._one_at_a_time:
            return await _in_portions(
                turns_of(order.partitions, cost),
                lambda part: requests.stop_replicas(replace(order, partitions=part)),
                {},
            )

    async def update(self, requests: ControllerRequests, update: UpdateMetadata) -> ErrorCode:
        """Carry out UpdateMetadata."""
        async with self._one_at_a_time:
            return requests.update_metadata(update)

    async def update_many(
        self, requests: ControllerRequests, update: UpdateMetadata, partitions: Iterable[PartitionUpdate]
    ) -> ErrorCode:
        """Carry out an UpdateMetadata of very many partitions, which are translated as they are taken."""
        async with self._one_at_a_time:
            error = requests.admit(update)
            if error is ErrorCode.NONE:
                prepared = requests.begin_update()
                await prepared.prepare(partitions, update.topic_ids)
                error = requests.finish_update(update, prepared)
                await prepared.let_go()
            return error


def _cost(tp: TopicPartition, *, on_disk: bool) -> int:
    return max(ON_DISK if on_disk else 1, COORDINATED if tp.topic in INTERNAL_TOPICS else 1)


def turns_of(partitions: Iterable[One], cost: Callable[[One], int]) -> Iterator[tuple[One, ...]]:
    """Split them into what each turn carries out: it costs TURN at most, or is one partition; none are one turn."""
    portion: list[One] = []
    used = 0
    for one in partitions:
        more = cost(one)
        if portion and used + more > TURN:
            yield tuple(portion)
            portion, used = [], 0
        portion.append(one)
        used += more
    yield tuple(portion)


async def _in_portions(
    parts: Iterator[tuple[One, ...]],
    carry_out: Callable[[tuple[One, ...]], PartitionErrors],
    topic_ids: Mapping[str, TopicId],
) -> PartitionErrors:
    """Stops at the first portion that is refused as a whole: this broker has registered anew meanwhile.

    What an unexpected error stops are the replicas of its portion: nobody would tell the others of their leaders again.
    """
    errors: dict[TopicPartition, ErrorCode] = {}
    bug: Exception | None = None
    for number, part in enumerate(parts):
        if number:
            await asyncio.sleep(0)
        try:
            outcome = carry_out(part)
        except Exception as error:
            bug = bug or error
            continue
        if outcome.error is not ErrorCode.NONE:
            return outcome
        errors |= outcome.partitions
    if bug is not None:
        raise bug
    return PartitionErrors(ErrorCode.NONE, errors, topic_ids)
