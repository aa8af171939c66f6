"""DeleteTopics (20): v5 adds error messages, v6 topic ids. The answer waits until the topics are gone from this
broker's metadata."""

from typing import Any, NamedTuple

from logyard.broker.controller.events import DeleteTopics, Outcome
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicId
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 5
DISABLED = Outcome(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable).")


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    asked = _asked(services, version, message)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    asked = _permitted(services, request, asked)
    names = tuple(dict.fromkeys(each.name for each in asked if each.refusal is None and each.name is not None))
    sizes = {name: len(services.metadata.partitions(name)) for name in names}
    refused = {name for name in names if name in services.metadata and charge.refuses(sizes[name])}
    allowed = tuple(name for name in names if name not in refused)
    ids = {each.name: each.topic_id for each in asked if each.by_id and each.refusal is None and each.name is not None}
    outcomes = dict(await services.controller.ask(DeleteTopics(allowed, ids)))
    for kept in (name for name in allowed if outcomes[name].error is not ErrorCode.NONE and name in services.metadata):
        charge.give_back(sizes[kept])
    outcomes |= {name: Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED) for name in refused}
    accepted = [name for name in names if outcomes[name].error is ErrorCode.NONE]

    def is_gone(name: str) -> bool:
        return name not in services.metadata

    await services.topic_waits.until(lambda: all(is_gone(name) for name in accepted), message.timeout_ms)
    late = Outcome(ErrorCode.REQUEST_TIMED_OUT, "the topic is being deleted, but is not gone yet")
    answers = []
    for each in asked:
        outcome = each.refusal
        if outcome is None:
            assert each.name is not None
            outcome = outcomes[each.name]
            if outcome.error is ErrorCode.NONE and not is_gone(each.name):
                outcome = late
        name = None if outcome.error is ErrorCode.UNKNOWN_TOPIC_ID else each.name
        answers.append(_fields(version, name, each.topic_id, outcome))
    return {"throttle_time_ms": charge.throttle_ms, "responses": answers}


class Asked(NamedTuple):
    """A topic of the request; `refusal` is set if it is not even tried."""

    name: str | None
    topic_id: TopicId
    by_id: bool = False
    refusal: Outcome | None = None


def _asked(services: Services, version: int, message: Any) -> list[Asked]:
    if version < 6:
        return [Asked(name, ZERO_TOPIC_ID) for name in message.topic_names]
    unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    found = []
    for topic in message.topics:
        if topic.name is not None and topic.topic_id != ZERO_TOPIC_ID:
            # Of which one? Somebody may have deleted that with the id, and created another of the name.
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
        if topic.name is None:
            name = services.metadata.topic_name(topic.topic_id)
            found.append(Asked(name, topic.topic_id, by_id=True, refusal=unknown if name is None else None))
        else:
            found.append(Asked(topic.name, services.metadata.topic_id(topic.name) or ZERO_TOPIC_ID))
    return found


def _permitted(services: Services, request: Request, asked: list[Asked]) -> list[Asked]:
    """Refuse what the principal may not delete. Who may not describe a topic is not told its name, or its id."""
    if services.rights.is_open:
        return asked
    if not services.config.bool("delete.topic.enable"):
        return [each._replace(refusal=each.refusal or DISABLED) for each in asked]
    names = [each.name for each in asked if each.name is not None]
    described = authorization.seen(services, request, [each.name for each in asked if each.by_id and each.name])
    deletable = authorization.topics(services, request, names)
    denied = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    permitted = []
    for each in asked:
        if each.refusal is not None or each.name is None:
            permitted.append(each)
        elif each.by_id and each.name not in described:
            permitted.append(each._replace(name=None, refusal=denied))
        elif each.name not in deletable:
            topic_id = each.topic_id if each.by_id else ZERO_TOPIC_ID
            permitted.append(each._replace(topic_id=topic_id, refusal=denied))
        else:
            permitted.append(each)
    return permitted


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
