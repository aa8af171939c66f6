"""DescribeProducers (61): a replica's idempotent producers and their open transactions (KIP-664, facts §17.6)."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(services, topic.name, index) for index in topic.partition_indexes],
            }
            for topic in message.topics
        ]
    }


def _partition(services: Services, topic: str, index: int) -> dict[str, Any]:
    try:
        log = services.replicas.hosted.find(TopicPartition(topic, index)).readable_log(-1, only_leader=False)
    except ApiError as refusal:
        return {"partition_index": index, "error_code": int(refusal.code), "error_message": refusal.message}
    return {
        "partition_index": index,
        "error_code": 0,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.txn_first_offset,
            }
            for entry in log.producers.entries.values()
        ],
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [{"partition_index": p, "error_code": int(code)} for p in t.partition_indexes],
            }
            for t in message.topics
        ]
    }


HANDLER = Handler(message=handle, error=error)
