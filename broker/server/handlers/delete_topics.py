"""DeleteTopics (20): v5 adds error messages, v6 topic ids. The answer waits until the topics are gone from this
broker's metadata."""

from typing import Any

from logyard.broker.controller.events import DeleteTopics, Outcome
from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 5


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    asked = _asked(services, version, message)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    names = tuple(dict.fromkeys(name for name, _, _ in asked if name is not None))
    sizes = {name: len(services.metadata.partitions(name)) for name in names}
    refused = {name for name in names if name in services.metadata and charge.refuses(sizes[name])}
    allowed = tuple(name for name in names if name not in refused)
    outcomes = dict(await services.controller.ask(DeleteTopics(allowed)))
    for kept in (name for name in allowed if outcomes[name].error is not ErrorCode.NONE and name in services.metadata):
        charge.give_back(sizes[kept])
    outcomes |= {name: Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED) for name in refused}
    accepted = [name for name in names if outcomes[name].error is ErrorCode.NONE]

    def is_gone(name: str) -> bool:
        return name not in services.metadata

    await services.topic_waits.until(lambda: all(is_gone(name) for name in accepted), message.timeout_ms)
    late = Outcome(ErrorCode.REQUEST_TIMED_OUT, "the topic is being deleted, but is not gone yet")
    answers = []
    for name, topic_id, refusal in asked:
        outcome = refusal if name is None else outcomes[name]
        if name is not None and outcome.error is ErrorCode.NONE and not is_gone(name):
            outcome = late
        answers.append(_fields(version, name, topic_id, outcome))
    return {"throttle_time_ms": charge.throttle_ms, "responses": answers}


def _asked(services: Services, version: int, message: Any) -> list[tuple[str | None, Any, Outcome]]:
    """Return (name, topic id, answer if the name is None) for all topics of the request."""
    if version < 6:
        return [(name, ZERO_TOPIC_ID, Outcome()) for name in message.topic_names]
    unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    found: list[tuple[str | None, Any, Outcome]] = []
    for topic in message.topics:
        by_id = topic.name is None
        name = services.metadata.topic_name(topic.topic_id) if by_id else topic.name
        known_id = topic.topic_id if by_id else services.metadata.topic_id(topic.name) or ZERO_TOPIC_ID
        found.append((name, known_id, unknown))
    return found


def _fields(version: int, name: str | None, topic_id: Any, outcome: Outcome) -> Fields:
    code = outcome.error
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        code = ErrorCode.INVALID_REQUEST
    return {"name": name, "topic_id": topic_id, "error_code": int(code), "error_message": outcome.message}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused = {"error_code": int(code), "error_message": text}
    if version < 6:
        return {"responses": [{"name": name, **refused} for name in message.topic_names]}
    return {"responses": [{"name": t.name, "topic_id": t.topic_id, **refused} for t in message.topics]}


HANDLER = Handler(message=handle, error=error)
