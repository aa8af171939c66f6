"""The requests that the broker's handlers send to the controller, as awaitables.

Rule: each raises ApiError(NOT_CONTROLLER) if this broker is not controller, or stops being it before the answer
(ControlledShutdown: STALE_CONTROLLER_EPOCH, as in Kafka). Errors of one topic or partition are in the answer.
"""

from collections.abc import Awaitable
from typing import Any

from logyard.broker.controller import events
from logyard.broker.model import TopicPartition


class ControllerApi:
    """The requests; the runner puts them into its queue."""

    def _ask(self, request: events.Request) -> Awaitable[Any]:
        raise NotImplementedError

    async def create_topics(self, request: events.CreateTopics) -> tuple[events.CreatedTopic, ...]:
        """Answered once the znodes are written; the partitions get leaders a little later."""
        answer: tuple[events.CreatedTopic, ...] = await self._ask(request)
        return answer

    async def create_partitions(self, request: events.CreatePartitions) -> dict[str, events.Outcome]:
        """Answered once the topic znodes are written; the partitions get leaders a little later."""
        answer: dict[str, events.Outcome] = await self._ask(request)
        return answer

    async def delete_topics(self, request: events.DeleteTopics) -> dict[str, events.Outcome]:
        """Answered once the requests are queued; the topics are deleted a little later."""
        answer: dict[str, events.Outcome] = await self._ask(request)
        return answer

    async def elect_leaders(self, request: events.ElectLeaders) -> dict[TopicPartition, events.Outcome]:
        """Answered once the new leaders are written."""
        answer: dict[TopicPartition, events.Outcome] = await self._ask(request)
        return answer

    async def alter_reassignments(self, request: events.AlterReassignments) -> dict[TopicPartition, events.Outcome]:
        """Answered once the moves have begun."""
        answer: dict[TopicPartition, events.Outcome] = await self._ask(request)
        return answer

    async def list_reassignments(self, request: events.ListReassignments) -> events.Reassignments:
        """Return the running reassignments."""
        answer: events.Reassignments = await self._ask(request)
        return answer

    async def alter_partition(self, request: events.AlterPartition) -> events.AlterPartitionResult:
        """Answered once the new ISRs are written."""
        answer: events.AlterPartitionResult = await self._ask(request)
        return answer

    async def allocate_producer_ids(self, request: events.AllocateProducerIds) -> events.ProducerIdBlock:
        """Answered once the block is written."""
        answer: events.ProducerIdBlock = await self._ask(request)
        return answer

    async def update_features(self, request: events.UpdateFeatures) -> dict[str, events.Outcome]:
        """Answered once /feature is written."""
        answer: dict[str, events.Outcome] = await self._ask(request)
        return answer

    async def controlled_shutdown(self, request: events.ControlledShutdown) -> events.ShutdownResult:
        """Answered once the broker's leaderships have been moved as far as possible."""
        answer: events.ShutdownResult = await self._ask(request)
        return answer
