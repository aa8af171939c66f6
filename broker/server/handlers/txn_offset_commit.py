"""TxnOffsetCommit (28): commits offsets in a transaction; they are pending until it ends (facts §17.4). v2 adds leader
epochs, v3 generation and member (KIP-447), v4 TRANSACTION_ABORTABLE; v5 adds the partition to the transaction (KIP-890
part 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.append_errors import answer_for
from logyard.broker.groups.events import Committer, OffsetCommit
from logyard.broker.groups.ports import Producer
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records.header import NO_SEQUENCE
from logyard.broker.server import authorization, partition_codes
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
    pauses = Pauses(services)
    readable = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    commits: dict[TopicPartition, OffsetCommit] = {}  # of one that is named twice the last offset counts
    async for tp, p in partition_codes.known(services, pauses, message, readable):
        text = p.committed_metadata or ""
        commits[tp] = OffsetCommit(*tp, p.committed_offset, p.committed_leader_epoch, text, now_ms)
    codes = await _commit(services, request, message, list(commits.values())) if commits else []
    answered = {tp: _told(code, request.api_version) for tp, code in zip(commits, codes, strict=True)}
    return {"topics": await partition_codes.answered(pauses, message, readable, answered)}


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
    return answer_for(errors.get(tp, ErrorCode.NONE))


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # the oldest producers do not know the other (KAFKA-7296)
    return code


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return partition_codes.refused(message, _told(code, version))


HANDLER = Handler(message=handle, error=error)
