"""Every version of the controller's requests decodes to the same values."""

import uuid
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.updates import PartitionUpdate
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.replication.events import LeaderAndIsrPartition, PartitionErrors, StopReplicaPartition
from logyard.broker.server.handlers import leader_and_isr, stop_replica, update_metadata

TP = TopicPartition("flights", 4)
ID = uuid.UUID(int=77)


def through_the_wire(api_key: int, version: int, fields: Any) -> Any:
    frame = codec.encode_request(api_key, version, 1, "c", fields)
    body = bytes(frame)[_header_size(api_key, version) :]
    return codec.decode_request(api_key, version, memoryview(body))


def _header_size(api_key: int, version: int) -> Any:
    """Size, api key, version, correlation id, client id "c", and an empty tag buffer in flexible versions."""
    return 4 + 2 + 2 + 4 + 3 + (1 if codec.is_flexible(api_key, version) else 0)


@pytest.mark.parametrize("version", range(8))
async def test_leader_and_isr(version: int) -> None:
    state = {
        "topic_name": "flights",
        "partition_index": 4,
        "controller_epoch": 5,
        "leader": 2,
        "leader_epoch": 6,
        "isr": [2, 3],
        "partition_epoch": 9,
        "replicas": [1, 2, 3],
        "adding_replicas": [3],
        "removing_replicas": [1],
        "is_new": True,
        "leader_recovery_state": 1,
    }
    message = through_the_wire(
        4,
        version,
        {
            "controller_id": 1,
            "controller_epoch": 5,
            "broker_epoch": 88,
            "ungrouped_partition_states": [state],
            "topic_states": [{"topic_name": "flights", "topic_id": ID, "partition_states": [state]}],
            "live_leaders": [{"broker_id": 2, "host_name": "h", "port": 1}],
        },
    )
    asked = await leader_and_isr.order_of(message, version)
    assert (asked.controller_id, asked.controller_epoch) == (1, 5)
    assert asked.broker_epoch == (88 if version >= 2 else -1)
    assert asked.topic_ids == ({"flights": ID} if version >= 5 else {})
    assert asked.partitions == [
        LeaderAndIsrPartition(
            TP,
            2,
            6,
            (2, 3),
            (1, 2, 3),
            9,
            adding=(3,) if version >= 3 else (),
            removing=(1,) if version >= 3 else (),
            is_new=version >= 1,
            controller_epoch=5,
            recovering=version >= 6,
        ),
    ]


@pytest.mark.parametrize("version", range(8))
async def test_the_answer_to_leader_and_isr(version: int) -> None:
    outcome = PartitionErrors(ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}, {"flights": ID})
    frame = codec.encode_response(4, version, 3, await leader_and_isr.response(outcome, version))
    _, answer = codec.decode_response(4, version, memoryview(frame)[4:])
    assert answer.error_code == 0
    if version >= 5:
        assert answer.topics[0].topic_id == ID
        assert [(p.partition_index, p.error_code) for p in answer.topics[0].partition_errors] == [(4, 56)]
    else:
        errors = [(p.topic_name, p.partition_index, p.error_code) for p in answer.partition_errors]
        assert errors == [("flights", 4, 56)]


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica(version: int) -> None:
    message = through_the_wire(
        5,
        version,
        {
            "controller_id": 1,
            "controller_epoch": 5,
            "broker_epoch": 88,
            "delete_partitions": True,
            "ungrouped_partitions": [{"topic_name": "flights", "partition_index": 4}],
            "topics": [{"name": "flights", "partition_indexes": [4]}],
            "topic_states": [
                {
                    "topic_name": "flights",
                    "partition_states": [{"partition_index": 4, "leader_epoch": 7, "delete_partition": True}],
                }
            ],
        },
    )
    asked = await stop_replica.order_of(message, version)
    assert asked.partitions == [StopReplicaPartition(TP, 7 if version >= 3 else -1, True)]
    assert asked.broker_epoch == (88 if version >= 1 else -1)
    outcome = PartitionErrors(ErrorCode.NONE, {TP: ErrorCode.FENCED_LEADER_EPOCH})
    frame = codec.encode_response(5, version, 3, await stop_replica.response(outcome))
    _, answer = codec.decode_response(5, version, memoryview(frame)[4:])
    errors = [(p.topic_name, p.partition_index, p.error_code) for p in answer.partition_errors]
    assert errors == [("flights", 4, 74)]


@pytest.mark.parametrize("version", range(9))
async def test_update_metadata(version: int) -> None:
    state = {
        "topic_name": "flights",
        "partition_index": 4,
        "controller_epoch": 5,
        "leader": 2,
        "leader_epoch": 6,
        "isr": [2],
        "zk_version": 9,
        "replicas": [2, 3],
        "offline_replicas": [3],
    }
    endpoint = {"port": 9092, "host": "h2", "listener": "INTERNAL", "security_protocol": 2}
    message = through_the_wire(
        6,
        version,
        {
            "controller_id": 1,
            "controller_epoch": 5,
            "broker_epoch": 88,
            "ungrouped_partition_states": [state],
            "topic_states": [{"topic_name": "flights", "topic_id": ID, "partition_states": [state]}],
            "live_brokers": [{"id": 2, "v0_host": "h2", "v0_port": 9092, "endpoints": [endpoint], "rack": "r"}],
        },
    )
    update = await update_metadata.update_of(message, version)
    offline = (3,) if version >= 4 else ()
    partitions = list(update_metadata.partitions_of(message, version))
    assert partitions == [PartitionUpdate(TP, 2, 6, (2,), (2, 3), 9, offline, 5)]
    assert update.broker_epoch == (88 if version >= 5 else -1)
    assert update.topic_ids == ({"flights": ID} if version >= 7 else {})
    protocol = "PLAINTEXT" if version == 0 else "SASL_PLAINTEXT"
    listener = "INTERNAL" if version >= 3 else protocol
    rack = "r" if version >= 2 else None
    assert update.brokers == (BrokerInfo(2, (Endpoint(listener, protocol, "h2", 9092),), rack),)
