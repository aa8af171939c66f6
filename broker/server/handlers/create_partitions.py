"""CreatePartitions (37): adds partitions to a topic; the answer waits until the new ones have leaders."""

from collections import Counter
from typing import Any

from logyard.broker.controller.events import CreatePartitions, NewPartitions, Outcome
from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge
from logyard.broker.server.topic_waits import led_partitions

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 3


async def handle(services: Services, request: Request, message: Any) -> Fields:
    names = [topic.name for topic in message.topics]
    twice = {name for name, count in Counter(names).items() if count > 1}
    alterable = authorization.topics(services, request, [name for name in names if name not in twice])
    wanted = tuple(_new_partitions(t) for t in message.topics if t.name in alterable and t.name not in twice)
    validate_only = bool(message.validate_only)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    added = {new.topic: max(0, new.count - len(services.metadata.partitions(new.topic))) for new in wanted}
    refused = set() if validate_only else {topic for topic, count in added.items() if count and charge.refuses(count)}
    wanted = tuple(new for new in wanted if new.topic not in refused)
    outcomes = dict(await services.controller.ask(CreatePartitions(wanted, validate_only)))
    if not validate_only:
        for new in wanted:
            if outcomes[new.topic].error is not ErrorCode.NONE:
                charge.give_back(added[new.topic])
    if not validate_only:
        await _wait(services, wanted, outcomes, message.timeout_ms)
    for name in refused:
        outcomes[name] = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
    for name in names:
        if name not in alterable:
            outcomes[name] = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    for name in twice:
        outcomes[name] = Outcome(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
    return {
        "throttle_time_ms": charge.throttle_ms,
        "results": [
            {"name": name, "error_code": int(outcomes[name].error), "error_message": outcomes[name].message}
            for name in dict.fromkeys(names)
        ],
    }


def _new_partitions(topic: Any) -> NewPartitions:
    placed = topic.assignments
    return NewPartitions(
        topic.name, topic.count, None if placed is None else tuple(tuple(a.broker_ids) for a in placed)
    )


async def _wait(
    services: Services, wanted: tuple[NewPartitions, ...], outcomes: dict[str, Outcome], timeout_ms: int
) -> None:
    counts = {new.topic: new.count for new in wanted if outcomes[new.topic].error is ErrorCode.NONE}

    def is_led(name: str) -> bool:
        return led_partitions(services.metadata, name) >= counts[name]

    await services.topic_waits.until(lambda: all(is_led(name) for name in counts), timeout_ms)
    for name in counts:
        if not is_led(name):
            late = "the partitions are being created, but some have no leader yet"
            outcomes[name] = Outcome(ErrorCode.REQUEST_TIMED_OUT, late)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused = {"error_code": int(code), "error_message": text}
    return {"results": [{"name": topic.name, **refused} for topic in message.topics]}


HANDLER = Handler(message=handle, error=error)
