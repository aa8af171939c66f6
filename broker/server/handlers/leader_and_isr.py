"""LeaderAndIsr (4), from the controller: lead or follow these partitions; v5 answers with topic ids (facts §9, §22)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.replication.events import LeaderAndIsr, LeaderAndIsrPartition, PartitionErrors
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    order = order_of(message, request.api_version)
    stale = services.replicas.requests.admit(order)
    if stale is not ErrorCode.NONE:
        return response(PartitionErrors(stale), request.api_version)
    # A log is opened with its topic's settings: of a new topic they may not have been notified yet.
    new = dict.fromkeys(p.tp.topic for p in order.partitions if services.store.logs.get(p.tp) is None)
    if new:
        await services.refresh_topic_overrides(new)
    unknown = [p.tp for p in order.partitions if services.store.logs.get(p.tp) is None]
    outcome = await services.orders.lead_or_follow(
        services.replicas.requests, order, lambda tp: services.store.logs.get(tp) is not None
    )
    made = [tp for tp in unknown if services.store.logs.get(tp) is not None]
    control_log.say(request, "LeaderAndIsr", order, outcome.error, [p.tp for p in order.partitions], made=made)
    return response(outcome, request.api_version)


def order_of(message: Any, version: int) -> LeaderAndIsr:
    """Translate a decoded request."""
    if version >= 2:
        pairs = [(topic.topic_name, p) for topic in message.topic_states for p in topic.partition_states]
    else:
        pairs = [(p.topic_name, p) for p in message.ungrouped_partition_states]
    ids = {t.topic_name: t.topic_id for t in message.topic_states} if version >= 5 else {}
    return LeaderAndIsr(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= 2 else NO_EPOCH,
        partitions=tuple(_order(topic, p, version) for topic, p in pairs),
        topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic_id != ZERO_TOPIC_ID},
    )


def _order(topic: str, p: Any, version: int) -> LeaderAndIsrPartition:
    # By position: names cost a third more, for each of the thousands of a take-over.
    return LeaderAndIsrPartition(
        TopicPartition(topic, p.partition_index),
        p.leader,
        p.leader_epoch,
        tuple(p.isr),
        tuple(p.replicas),
        p.partition_epoch,
        tuple(p.adding_replicas) if version >= 3 else (),
        tuple(p.removing_replicas) if version >= 3 else (),
        bool(p.is_new) if version >= 1 else False,
        p.controller_epoch,
        bool(p.leader_recovery_state) if version >= 6 else False,
    )


def response(outcome: PartitionErrors, version: int) -> Fields:
    """Return the response's fields: by topic id from v5 on."""
    if version < 5:
        return {"error_code": int(outcome.error), "partition_errors": named_errors(outcome)}
    topics: dict[TopicId, list[dict[str, int]]] = {}
    for tp, error in outcome.partitions.items():
        topic_id = outcome.topic_ids.get(tp.topic, ZERO_TOPIC_ID)
        topics.setdefault(topic_id, []).append({"partition_index": tp.partition, "error_code": int(error)})
    return {
        "error_code": int(outcome.error),
        "topics": [{"topic_id": topic_id, "partition_errors": errors} for topic_id, errors in topics.items()],
    }


def named_errors(outcome: PartitionErrors) -> list[Fields]:
    """The errors by topic and partition, as StopReplica's answer has them too."""
    return [
        {"topic_name": tp.topic, "partition_index": tp.partition, "error_code": int(error)}
        for tp, error in outcome.partitions.items()
    ]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": [], "topics": []}


HANDLER = Handler(message=handle, error=error)
