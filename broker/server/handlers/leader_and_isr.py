"""LeaderAndIsr (4), from the controller: lead or follow these partitions; v5 answers with topic ids (facts §9, §22)."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.portions import portions
from logyard.broker.protocol import codec
from logyard.broker.protocol.writers import Encoded
from logyard.broker.replication.events import LeaderAndIsr, LeaderAndIsrPartition, PartitionErrors
from logyard.broker.server import control_log, large_orders
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

LEADER_AND_ISR = 4
_ERROR, _TOPIC = ("partition_index", "error_code"), ("topic_id", "partition_errors")


async def handle(services: Services, request: Request, message: Any) -> Fields:
    # What it needs is let go of before the answer is made: of very many topics each is some milliseconds.
    outcome = await _carry_out(services, request, message)
    return await response(outcome, request.api_version)


async def _carry_out(services: Services, request: Request, message: Any) -> PartitionErrors:
    order = await order_of(message, request.api_version)
    stale = services.replicas.requests.admit(order)
    if stale is not ErrorCode.NONE:
        return PartitionErrors(stale)
    # A log is opened with its topic's settings: of a new topic they may not have been notified yet.
    asked = (p.tp for p in order.partitions)
    new = {tp.topic: None async for tp in _with_log(services, asked, has_one=False)}
    if new:
        await services.refresh_topic_overrides(new)
    asked = (p.tp for p in order.partitions)
    unknown = [tp async for tp in _with_log(services, asked, has_one=False)]
    outcome = await services.orders.lead_or_follow(
        services.replicas.requests, order, lambda tp: services.store.logs.get(tp) is not None
    )
    made = [tp async for tp in _with_log(services, unknown, has_one=True)]
    about = (p.tp for p in order.partitions)
    await control_log.say(request, "LeaderAndIsr", order, outcome.error, about, made=made)
    if isinstance(order.partitions, list):
        await large_orders.let_go(order.partitions, by_topic=False)
    return outcome


async def _with_log(
    services: Services, partitions: Iterable[TopicPartition], *, has_one: bool
) -> AsyncIterator[TopicPartition]:
    """Yield those of them that have a log here, or that have none; others have their turns meanwhile."""
    async for portion in portions(partitions):
        for tp in portion:
            if (services.store.logs.get(tp) is not None) is has_one:
                yield tp


async def order_of(message: Any, version: int) -> LeaderAndIsr:
    """Translate a decoded request and free its states, both in portions."""
    by_topic = version >= 2
    states = message.topic_states if by_topic else message.ungrouped_partition_states
    topic_ids = await large_orders.topic_ids(message.topic_states) if version >= 5 else {}
    orders: list[LeaderAndIsrPartition] = []
    async for portion in portions(large_orders.named(states, by_topic)):
        orders += [_order(topic, p, version) for topic, p in portion]
    await large_orders.let_go(states, by_topic)
    return LeaderAndIsr(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if by_topic else NO_EPOCH,
        partitions=orders,
        topic_ids=topic_ids,
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


async def response(outcome: PartitionErrors, version: int) -> Fields:
    """Return the response's fields, made in portions: by topic id from v5 on."""
    if version < 5:
        return {"error_code": int(outcome.error), "partition_errors": await named_errors(outcome)}
    write_error = codec.struct_writer_of(LEADER_AND_ISR, "Response", version, ("topics", "partition_errors"), _ERROR)
    write_topic = codec.struct_writer_of(LEADER_AND_ISR, "Response", version, ("topics",), _TOPIC)
    topics: dict[TopicId, Encoded] = {}
    async for portion in portions(outcome.partitions.items()):
        for tp, error in portion:
            topic_id = outcome.topic_ids.get(tp.topic, ZERO_TOPIC_ID)
            if topic_id not in topics:
                topics[topic_id] = Encoded()
            topics[topic_id].add(write_error, tp.partition, int(error))
    told = Encoded()
    async for some in portions(list(topics)):
        for topic_id in some:
            told.add(write_topic, topic_id, topics.pop(topic_id))  # so that they are let go of in portions, too
    return {"error_code": int(outcome.error), "topics": told}


async def named_errors(outcome: PartitionErrors) -> list[Fields]:
    """The errors by topic and partition, as StopReplica's answer has them too."""
    found: list[Fields] = []
    async for portion in portions(outcome.partitions.items()):
        found += [
            {"topic_name": tp.topic, "partition_index": tp.partition, "error_code": int(error)} for tp, error in portion
        ]
    return found


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "partition_errors": [], "topics": []}


HANDLER = Handler(message=handle, error=error)
