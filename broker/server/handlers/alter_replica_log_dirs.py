"""AlterReplicaLogDirs (34): moves this broker's replicas to other log directories (KIP-113); v2 is flexible."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


def handle(services: Services, request: Request, message: Any) -> Fields:
    wanted = {
        TopicPartition(topic.name, partition): directory.path
        for directory in message.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    return _answer(services.log_dir_moves.alter(wanted))


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return _answer(
        {TopicPartition(topic.name, p): code for d in message.dirs for topic in d.topics for p in topic.partitions}
    )


def _answer(outcomes: dict[TopicPartition, ErrorCode]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for tp, code in outcomes.items():
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": int(code)})
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]}


HANDLER = Handler(message=handle, error=error)
