"""TxnOffsetCommit (28): commits offsets in a transaction; they are pending until it ends (facts §17.4). v2 adds leader
epochs, v3 generation and member (KIP-447), v4 TRANSACTION_ABORTABLE; v5 adds the partition to the transaction (KIP-890
part 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.append_errors import answer_in_transaction
from logyard.broker.groups.events import Committer, OffsetCommit
from logyard.broker.groups.ports import Producer
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records.header import NO_SEQUENCE
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional_produce import ability
from logyard.broker.transactions.verification import FirstBatch

ABORTABLE_SINCE, ADDS_SINCE = 4, 5
LOADING_SINCE = 2


async def handle(services: Services, request: Request, message: Any) -> Fields:
    now_ms = services.clock.now_ms()
    readable = authorization.topics(services, request, [topic.name for topic in message.topics])
    pauses = Pauses(services)
    commits: dict[TopicPartition, OffsetCommit] = {}  # of one that is named twice the last offset counts
    for topic in message.topics:
        await pauses.after(1)
        for p in topic.partitions if topic.name in readable else ():
            await pauses.after(1)
            tp = TopicPartition(topic.name, p.partition_index)
            if services.metadata.partition(tp) is not None:
                text = p.committed_metadata or ""
                commits[tp] = OffsetCommit(*tp, p.committed_offset, p.committed_leader_epoch, text, now_ms)
    codes = await _commit(services, request, message, list(commits.values())) if commits else []
    answered = dict(zip(commits, codes, strict=True))
    topics = []
    for topic in message.topics:
        await pauses.after(1)
        is_readable = topic.name in readable
        otherwise = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_readable else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for p in topic.partitions:
            await pauses.after(1)
            code = answered.get(TopicPartition(topic.name, p.partition_index), otherwise)
            partitions.append(_partition(p.partition_index, code, request.api_version))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _commit(
    services: Services, request: Request, message: Any, commits: Sequence[OffsetCommit]
) -> Sequence[ErrorCode]:
    groups, group_id = services.groups, message.group_id
    code = groups.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
    if code is ErrorCode.NONE:
        code = await _verified(services, request, message)
    if code is not ErrorCode.NONE:
        return [code] * len(commits)
    committer = Committer(message.member_id, message.group_instance_id, message.generation_id)
    producer = Producer(message.producer_id, message.producer_epoch)
    return await groups.commits.commit_in_transaction(group_id, committer, producer, commits)


async def _verified(services: Services, request: Request, message: Any) -> ErrorCode:
    """Return NONE if the group's partition of the offsets log is in the transaction, else the error for the client."""
    tp = TopicPartition(OFFSETS_TOPIC, services.groups.partition_for(message.group_id))
    verifying = services.verification.begin(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        [FirstBatch(tp, NO_SEQUENCE)],
        ability(request.api_version, abortable_since=ABORTABLE_SINCE, adds_since=ADDS_SINCE),
    )
    errors = verifying if isinstance(verifying, Mapping) else await verifying
    if request.session.is_gone:
        # The client may have ended the transaction on another connection, and begun the next one (KAFKA-17754).
        return ErrorCode.NETWORK_EXCEPTION
    return answer_in_transaction(errors.get(tp, ErrorCode.NONE))


def _partition(index: int, code: ErrorCode, version: int) -> dict[str, int]:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the oldest producers do not know the other (KAFKA-7296)
    return {"partition_index": index, "error_code": int(code)}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {"name": t.name, "partitions": [_partition(p.partition_index, code, version) for p in t.partitions]}
            for t in message.topics
        ]
    }


HANDLER = Handler(message=handle, error=error)
