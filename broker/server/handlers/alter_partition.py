"""AlterPartition (56), between brokers: a leader asks the controller to change the ISR (KIP-497); v2 has topic ids."""

from typing import Any

from logyard.broker.controller.events import AlteredPartition, AlterPartition, IsrChange
from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version, pauses = request.api_version, Pauses(services)
    changes: list[IsrChange] = []
    for topic in message.topics:
        changes += [_change(version, topic, p) async for p in pauses.between(topic.partitions)]
        await pauses.after(1)
    asked = AlterPartition(message.broker_id, message.broker_epoch, tuple(changes), version)
    result = await services.controller.ask(asked)
    topics: dict[Any, list[Fields]] = {}
    async for altered in pauses.between(result.partitions):
        key = altered.change.topic_id if version >= 2 else altered.change.topic
        topics.setdefault(key, []).append(_fields(altered))
    return {
        "error_code": int(result.error),
        "topics": [{"topic_name": key, "topic_id": key, "partitions": parts} for key, parts in topics.items()],
    }


def _change(version: int, topic: Any, p: Any) -> IsrChange:
    candidates = p.new_isr_with_epochs if version >= 3 else ()
    isr = [b.broker_id for b in candidates] if version >= 3 else p.new_isr
    return IsrChange(
        p.partition_index,
        p.leader_epoch,
        tuple(isr),
        p.partition_epoch,
        recovering=version >= 1 and bool(p.leader_recovery_state),
        topic=topic.topic_name if version < 2 else None,
        topic_id=topic.topic_id if version >= 2 else None,
        isr_epochs=tuple(b.broker_epoch for b in candidates),
    )


def _fields(altered: AlteredPartition) -> Fields:
    fields: dict[str, Any] = {"partition_index": altered.change.partition, "error_code": int(altered.error)}
    if altered.state is not None and altered.error is ErrorCode.NONE:
        state = altered.state
        fields |= {
            "leader_id": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "leader_recovery_state": int(state.recovering),
            "partition_epoch": state.partition_epoch,
        }
    return fields


HANDLER = Handler(message=handle)
