"""StopReplica (5), from the controller: stop these replicas, and delete some.

v1 broker epoch and by topic, v3 `delete` and a leader epoch for each partition.
"""

from collections.abc import Iterator
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import NO_EPOCH, TopicPartition
from logyard.broker.portions import portions
from logyard.broker.replication.events import PartitionErrors, StopReplica, StopReplicaPartition
from logyard.broker.server import control_log, large_orders
from logyard.broker.server.api import Handler
from logyard.broker.server.handlers.leader_and_isr import named_errors
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    order = await order_of(message, request.api_version)
    outcome = await services.orders.stop(services.replicas.requests, order)
    about, deleted = (p.tp for p in order.partitions), (p.tp for p in order.partitions if p.delete)
    await control_log.say(request, "StopReplica", order, outcome.error, about, deleted=deleted)
    return await response(outcome)


async def order_of(message: Any, version: int) -> StopReplica:
    """Translate a decoded request in portions."""
    orders: list[StopReplicaPartition] = []
    async for portion in portions(_partitions(message, version)):
        orders += portion
    if version >= 3:
        await large_orders.let_go(message.topic_states, by_topic=True)
    return StopReplica(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= 1 else NO_EPOCH,
        partitions=orders,
    )


def _partitions(message: Any, version: int) -> Iterator[StopReplicaPartition]:
    if version >= 3:
        for topic, p in large_orders.named(message.topic_states, by_topic=True):
            yield StopReplicaPartition(
                TopicPartition(topic, p.partition_index), p.leader_epoch, bool(p.delete_partition)
            )
        return
    if version >= 1:
        tps = (TopicPartition(topic.name, n) for topic in message.topics for n in topic.partition_indexes)
    else:
        tps = (TopicPartition(p.topic_name, p.partition_index) for p in message.ungrouped_partitions)
    for tp in tps:
        yield StopReplicaPartition(tp, NO_EPOCH, bool(message.delete_partitions))


async def response(outcome: PartitionErrors) -> Fields:
    """Return the response's fields, made in portions."""
    return {"error_code": int(outcome.error), "partition_errors": await named_errors(outcome)}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": []}


HANDLER = Handler(message=handle, error=error)
