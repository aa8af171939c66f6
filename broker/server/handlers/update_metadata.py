"""UpdateMetadata (6), from the controller: the live brokers, and the state of these partitions.

v1 many endpoints, v2 rack, v3 listener names, v4 offline replicas, v5 broker epoch and partitions by topic, v7 topic
ids.
"""

from typing import Any

from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import ZERO_TOPIC_ID, BrokerInfo, Endpoint, TopicPartition
from logyard.broker.server import control_log
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


async def handle(services: Services, request: Request, message: Any) -> Fields:
    update = update_of(message, request.api_version)
    error = await services.orders.update(services.replicas.requests, update)
    control_log.say(request, "UpdateMetadata", update, error, [p.tp for p in update.partitions])
    return {"error_code": int(error)}


def update_of(message: Any, version: int) -> UpdateMetadata:
    """Translate a decoded request."""
    by_topic = version >= 5
    if by_topic:
        pairs = [(topic.topic_name, p) for topic in message.topic_states for p in topic.partition_states]
    else:
        pairs = [(p.topic_name, p) for p in message.ungrouped_partition_states]
    ids = {t.topic_name: t.topic_id for t in message.topic_states} if version >= 7 else {}
    return UpdateMetadata(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if by_topic else -1,
        partitions=tuple(_partition(topic, p, version) for topic, p in pairs),
        brokers=tuple(_broker(broker, version) for broker in message.live_brokers),
        topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic_id != ZERO_TOPIC_ID},
    )


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
