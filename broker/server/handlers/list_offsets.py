"""ListOffsets (2): v0 has several offsets per partition, v1 one; v2 adds isolation, v4 leader epochs, v7 the offset of
the largest timestamp."""

from collections import Counter
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import CONSUMER_ID, DEBUG_CONSUMER_ID, Isolation, OffsetAnswer, OffsetQuery
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    isolation = Isolation(message.isolation_level) if version >= 2 else Isolation.READ_UNCOMMITTED
    if message.replica_id != CONSUMER_ID:
        isolation = Isolation.LOG_END
    described = authorization.topics(services, request, [topic.name for topic in message.topics])
    pauses = Pauses(services)
    queries: list[OffsetQuery] = []
    # A partition that is named twice is refused, as in Kafka: some bytes may not cost a search each.
    times = Counter[TopicPartition]()
    async for topic in pauses.between(message.topics):
        async for p in pauses.between(topic.partitions if topic.name in described else ()):
            epoch = p.current_leader_epoch if version >= 4 else -1
            tp = TopicPartition(topic.name, p.partition_index)
            times[tp] += 1
            queries.append(OffsetQuery(tp, p.timestamp, epoch))
    # Only the debugging consumer may ask a follower.
    only_leader = message.replica_id != DEBUG_CONSUMER_ID
    topics: dict[str, list[Fields]] = {}
    for start in range(0, len(queries), PARTS_AT_ONCE):
        portion = queries[start : start + PARTS_AT_ONCE]
        asked = [query for query in portion if times[query.tp] == 1]
        found = services.replicas.lookups.list_offsets(asked, isolation, only_leader=only_leader)
        answers = {answer.tp: answer for answer in (found if isinstance(found, list) else await found)}
        for query in portion:
            answer = answers.get(query.tp) or OffsetAnswer(query.tp, ErrorCode.INVALID_REQUEST)
            topics.setdefault(query.tp.topic, []).append(_fields(version, answer))
        await pauses.after(len(portion))
    refused = []
    async for topic in pauses.between(message.topics):
        if topic.name not in described:
            partitions = [_part(p, REFUSED) async for p in pauses.between(topic.partitions)]
            refused.append({"name": topic.name, "partitions": partitions})
    answered = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"topics": [*answered, *refused]}


def _fields(version: int, answer: OffsetAnswer) -> Fields:
    code = answer.error
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "partition_index": answer.tp.partition,
        "error_code": int(code),
        "old_style_offsets": [answer.offset] if code is ErrorCode.NONE and answer.offset >= 0 else [],
        "timestamp": answer.timestamp,
        "offset": answer.offset,
        "leader_epoch": answer.leader_epoch,
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_part(p, code) for p in topic.partitions]} for topic in message.topics
        ]
    }


def _part(p: Any, code: ErrorCode) -> Fields:
    return {"partition_index": p.partition_index, "error_code": int(code)}


HANDLER = Handler(message=handle, error=error)
