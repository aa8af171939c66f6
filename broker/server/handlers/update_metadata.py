"""UpdateMetadata (6), from the controller: the live brokers, and the state of these partitions.

v1 many endpoints, v2 rack, v3 listener names, v4 offline replicas, v5 broker epoch and partitions by topic, v7 topic
ids.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition
from logyard.broker.server import control_log, large_orders
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

BY_TOPIC_SINCE = 5
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version, orders, requests = request.api_version, services.orders, services.replicas.requests
    states, by_topic = _states(message, version)
    update = await update_of(message, version)
    if large_orders.are_many(states, by_topic):
        error = await orders.update_many(requests, update, partitions_of(message, version))
    else:
        update = replace(update, partitions=tuple(partitions_of(message, version)))
        error = await orders.update(requests, update)
    about = (TopicPartition(topic, p.partition_index) for topic, p in large_orders.named(states, by_topic))
    await control_log.say(request, "UpdateMetadata", update, error, about)
    await large_orders.let_go(states, by_topic)
    return {"error_code": int(error)}


async def update_of(message: Any, version: int) -> UpdateMetadata:
    """Translate a decoded request without its partitions, which may be many."""
    return UpdateMetadata(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= BY_TOPIC_SINCE else -1,
        partitions=(),
        brokers=tuple(_broker(broker, version) for broker in message.live_brokers),
        topic_ids=await large_orders.topic_ids(message.topic_states) if version >= 7 else {},
    )


def partitions_of(message: Any, version: int) -> Iterator[PartitionUpdate]:
    """Translate a decoded request's partitions, as they are taken."""
    return (_partition(topic, p, version) for topic, p in large_orders.named(*_states(message, version)))


def _states(message: Any, version: int) -> tuple[list[Any], bool]:
    """Return the states of the partitions, and whether they are grouped by topic."""
    by_topic = version >= BY_TOPIC_SINCE
    return (message.topic_states if by_topic else message.ungrouped_partition_states), by_topic


def _partition(topic: str, p: Any, version: int) -> PartitionUpdate:
    # By position: names cost a third more, for each of the thousands of a take-over.
    return PartitionUpdate(
        TopicPartition(topic, p.partition_index),
        p.leader,
        p.leader_epoch,
        tuple(p.isr),
        tuple(p.replicas),
        p.zk_version,
        tuple(p.offline_replicas) if version >= 4 else (),
        p.controller_epoch,
    )


def _broker(broker: Any, version: int) -> BrokerInfo:
    if version == 0:
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "PLAINTEXT", broker.v0_host, broker.v0_port),)
    else:
        endpoints = tuple(_endpoint(e, version) for e in broker.endpoints)
    return BrokerInfo(broker.id, endpoints, rack=(broker.rack or None) if version >= 2 else None)


def _endpoint(endpoint: Any, version: int) -> Endpoint:
    code = endpoint.security_protocol
    protocol = SECURITY_PROTOCOLS[code] if 0 <= code < len(SECURITY_PROTOCOLS) else str(code)
    # Before listeners had names, the security protocol was the name.
    return Endpoint(endpoint.listener if version >= 3 else protocol, protocol, endpoint.host, endpoint.port)


HANDLER = Handler(message=handle)
