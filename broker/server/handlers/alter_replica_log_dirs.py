"""AlterReplicaLogDirs (34): moves this broker's replicas to other log directories (KIP-113); v2 is flexible."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_OF_A_FILE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

ON_DISK = (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    wanted: dict[TopicPartition, str] = {}
    async for directory in pauses.between(message.dirs):
        async for topic in pauses.between(directory.topics):
            async for partition in pauses.between(topic.partitions):
                wanted[TopicPartition(topic.name, partition)] = directory.path
    topics: dict[str, list[Fields]] = {}
    for tp, path in wanted.items():
        code = services.log_dir_moves.alter({tp: path})[tp]
        _add(topics, tp, code)
        # The disk was used, unless the broker has no such replica or no such directory.
        await pauses.after(PARTS_OF_A_FILE if code in ON_DISK else 1)
    return _answer(topics)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    topics: dict[str, list[Fields]] = {}
    asked = (TopicPartition(topic.name, p) for d in message.dirs for topic in d.topics for p in topic.partitions)
    for tp in dict.fromkeys(asked):
        _add(topics, tp, code)
    return _answer(topics)


def _add(topics: dict[str, list[Fields]], tp: TopicPartition, code: ErrorCode) -> None:
    topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": int(code)})


def _answer(topics: dict[str, list[Fields]]) -> Fields:
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]}


HANDLER = Handler(message=handle, error=error)
