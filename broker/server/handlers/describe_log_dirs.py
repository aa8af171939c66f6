"""DescribeLogDirs (35): size and lag of this broker's replicas by log directory (KIP-113); v4 adds the disk's bytes."""

from collections.abc import Container
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import LogDirInfo
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

SPACE_FROM = 4


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    wanted: Container[TopicPartition] | None = None
    if message.topics is not None:
        wanted = await pauses.partitions((t.topic, t.partitions) for t in message.topics)
    found = await services.log_dirs(with_space=request.api_version >= SPACE_FROM)
    return {"error_code": 0, "results": [await _directory(each, wanted, pauses) for each in found]}


async def _directory(found: LogDirInfo, wanted: Container[TopicPartition] | None, pauses: Pauses) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for replica in found.replicas:
        await pauses.after(1)
        if wanted is None or replica.tp in wanted:
            topics.setdefault(replica.tp.topic, []).append(
                {
                    "partition_index": replica.tp.partition,
                    "partition_size": replica.size,
                    "offset_lag": replica.offset_lag,
                    "is_future_key": replica.is_future,
                }
            )
    return {
        "error_code": int(found.error),
        "log_dir": found.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
    }


HANDLER = Handler(message=handle)
