"""StopReplica (5), from the controller: stop these replicas, and delete some.

v1 broker epoch and by topic, v3 `delete` and a leader epoch for each partition.
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import NO_EPOCH, TopicPartition
from logyard.broker.replication.events import PartitionErrors, StopReplica, StopReplicaPartition
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.handlers.leader_and_isr import named_errors
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    order = order_of(message, request.api_version)
    outcome = await services.orders.stop(services.replicas.requests, order)
    deleted = [p.tp for p in order.partitions if p.delete]
    control_log.say(request, "StopReplica", order, outcome.error, [p.tp for p in order.partitions], deleted=deleted)
    return response(outcome)


def order_of(message: Any, version: int) -> StopReplica:
    """Translate a decoded request."""
    if version >= 3:
        orders = [
            StopReplicaPartition(
                TopicPartition(topic.topic_name, p.partition_index), p.leader_epoch, bool(p.delete_partition)
            )
            for topic in message.topic_states
            for p in topic.partition_states
        ]
    else:
        if version >= 1:
            named = [TopicPartition(topic.name, n) for topic in message.topics for n in topic.partition_indexes]
        else:
            named = [TopicPartition(p.topic_name, p.partition_index) for p in message.ungrouped_partitions]
        orders = [StopReplicaPartition(tp, NO_EPOCH, bool(message.delete_partitions)) for tp in named]
    return StopReplica(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= 1 else NO_EPOCH,
        partitions=tuple(orders),
    )


def response(outcome: PartitionErrors) -> Fields:
    """Return the response's fields."""
    return {"error_code": int(outcome.error), "partition_errors": named_errors(outcome)}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": []}


HANDLER = Handler(message=handle, error=error)
