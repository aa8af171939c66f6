"""CreatePartitions (37): adds partitions to a topic; the answer waits until the new ones have leaders."""

from typing import Any

from logyard.broker.controller.events import CreatePartitions, NewPartitions, Outcome
from logyard.broker.controller.topics.placement import PARTITIONS_MAX
from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import EXCEEDED, MutationCharge
from logyard.broker.server.topic_waits import led_partitions

# The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = 3

TWICE = Outcome(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
DENIED = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
THROTTLED = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    times = await pauses.counted(topic.name for topic in message.topics)
    once = (name for name, count in times.items() if count == 1)
    alterable = await authorization.topics_of_many(services, request, pauses, once)
    validate_only = bool(message.validate_only)
    charge = MutationCharge(services.quotas, request, STRICT_SINCE)
    wanted: list[NewPartitions] = []
    added: dict[str, int] = {}
    refused: dict[str, Outcome] = {}
    async for topic in pauses.between(message.topics):
        name = topic.name
        if times[name] > 1:
            refused[name] = TWICE
        elif name not in alterable:
            refused[name] = DENIED
        else:
            added[name] = _cost(services, topic)
            if not validate_only and added[name] and charge.refuses(added[name]):
                refused[name] = THROTTLED
            else:
                wanted.append(await _new_partitions(pauses, topic))
    outcomes = await services.controller.ask(CreatePartitions(wanted, validate_only))
    if not validate_only:
        async for new in pauses.between(wanted):
            if outcomes[new.topic].error is not ErrorCode.NONE:
                charge.give_back(added[new.topic])
        await _wait(services, pauses, wanted, outcomes, message.timeout_ms)
    results = []
    async for name in pauses.between(times):
        outcome = refused.get(name) or outcomes[name]
        results.append({"name": name, "error_code": int(outcome.error), "error_message": outcome.message})
    return {"throttle_time_ms": charge.throttle_ms, "results": results}


def _cost(services: Services, topic: Any) -> int:
    """Return how many partitions are charged for: none for what is refused in any case, as it is by Kafka."""
    if topic.name not in services.metadata or topic.count > PARTITIONS_MAX:
        return 0
    wanted: int = topic.count
    return max(0, wanted - len(services.metadata.partitions(topic.name)))


async def _new_partitions(pauses: Pauses, topic: Any) -> NewPartitions:
    placed = None
    if topic.assignments is not None:
        placed = tuple([tuple(a.broker_ids) async for a in pauses.between(topic.assignments)])
    return NewPartitions(topic.name, topic.count, placed)


async def _wait(
    services: Services, pauses: Pauses, wanted: list[NewPartitions], outcomes: dict[str, Outcome], timeout_ms: int
) -> None:
    of_wanted = pauses.between(wanted)
    counts = {new.topic: new.count async for new in of_wanted if outcomes[new.topic].error is ErrorCode.NONE}

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
