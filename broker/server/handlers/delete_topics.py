"""DeleteTopics (20): v5 adds error messages, v6 topic ids. The answer waits until the topics are gone from this
broker's metadata."""

from collections.abc import Container
from typing import Any, NamedTuple

from logyard.broker.controller.events import DeleteTopics, Outcome
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicId
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 5
DISABLED = Outcome(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled (delete.topic.enable).")
UNKNOWN = Outcome(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
DENIED = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
THROTTLED = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
LATE = Outcome(ErrorCode.REQUEST_TIMED_OUT, "the topic is being deleted, but is not gone yet")


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version, pauses = request.api_version, Pauses(services)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    asked = await _permitted(services, request, pauses, await _asked(services, pauses, version, message))
    charged: dict[str, int] = {}
    ids: dict[str, TopicId] = {}
    outcomes: dict[str, Outcome] = {}
    async for each in pauses.between(asked):
        name = each.name
        if each.refusal is not None or name is None:
            continue
        if each.by_id:
            ids[name] = each.topic_id
        if name in charged or name in outcomes:
            continue
        size = len(services.metadata.partitions(name))
        if name in services.metadata and charge.refuses(size):
            outcomes[name] = THROTTLED
        else:
            charged[name] = size
    outcomes |= await services.controller.ask(DeleteTopics(tuple(charged), ids))
    accepted = []
    async for name in pauses.between(charged):
        if outcomes[name].error is ErrorCode.NONE:
            accepted.append(name)
        else:
            charge.give_back(charged[name])

    def is_gone(name: str) -> bool:
        return name not in services.metadata

    await services.topic_waits.until(lambda: all(is_gone(name) for name in accepted), message.timeout_ms)
    answers = []
    async for each in pauses.between(asked):
        outcome = each.refusal
        if outcome is None:
            assert each.name is not None
            outcome = outcomes[each.name]
            if outcome.error is ErrorCode.NONE and not is_gone(each.name):
                outcome = LATE
        answers.append(_fields(version, each, outcome))
    return {"throttle_time_ms": charge.throttle_ms, "responses": answers}


class Asked(NamedTuple):
    """A topic of the request; `refusal` is set if it is not even tried."""

    name: str | None
    topic_id: TopicId
    by_id: bool = False
    refusal: Outcome | None = None


async def _asked(services: Services, pauses: Pauses, version: int, message: Any) -> list[Asked]:
    if version < 6:
        return [Asked(name, ZERO_TOPIC_ID) async for name in pauses.between(message.topic_names)]
    found = []
    async for topic in pauses.between(message.topics):
        if topic.name is not None and topic.topic_id != ZERO_TOPIC_ID:
            # Of which one? Somebody may have deleted that with the id, and created another of the name.
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
        if topic.name is None:
            name = services.metadata.topic_name(topic.topic_id)
            found.append(Asked(name, topic.topic_id, by_id=True, refusal=UNKNOWN if name is None else None))
        else:
            found.append(Asked(topic.name, services.metadata.topic_id(topic.name) or ZERO_TOPIC_ID))
    return found


async def _permitted(services: Services, request: Request, pauses: Pauses, asked: list[Asked]) -> list[Asked]:
    """Refuse what the principal may not delete. Who may not describe a topic is not told its name, or its id."""
    if services.rights.is_open:
        return asked
    if not services.config.bool("delete.topic.enable"):
        return [each._replace(refusal=each.refusal or DISABLED) async for each in pauses.between(asked)]
    names: list[str] = []
    by_id: list[str] = []
    async for each in pauses.between(asked):
        if each.name is not None:
            names.append(each.name)
            if each.by_id:
                by_id.append(each.name)
    described = await authorization.seen_of_many(services, request, pauses, by_id)
    deletable = await authorization.topics_of_many(services, request, pauses, names)
    return [_checked(each, described, deletable) async for each in pauses.between(asked)]


def _checked(each: Asked, described: Container[str], deletable: Container[str]) -> Asked:
    if each.refusal is not None or each.name is None:
        return each
    if each.by_id and each.name not in described:
        return each._replace(name=None, refusal=DENIED)
    if each.name not in deletable:
        return each._replace(topic_id=each.topic_id if each.by_id else ZERO_TOPIC_ID, refusal=DENIED)
    return each


def _fields(version: int, each: Asked, outcome: Outcome) -> Fields:
    code = outcome.error
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        code = ErrorCode.INVALID_REQUEST
    name = None if code is ErrorCode.UNKNOWN_TOPIC_ID else each.name
    return {"name": name, "topic_id": each.topic_id, "error_code": int(code), "error_message": outcome.message}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused = {"error_code": int(code), "error_message": text}
    if version < 6:
        return {"responses": [{"name": name, **refused} for name in message.topic_names]}
    return {"responses": [{"name": t.name, "topic_id": t.topic_id, **refused} for t in message.topics]}


HANDLER = Handler(message=handle, error=error)
