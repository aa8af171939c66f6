"""ElectLeaders (43): preferred elections, from v1 on unclean ones too (KIP-460).

If all partitions are asked for, the answer leaves out those that get ELECTION_NOT_NEEDED.
"""

from typing import Any

from logyard.broker.controller.events import ElectionKind, ElectLeaders, Outcome
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    kind = _kind(message.election_type) if request.api_version >= 1 else ElectionKind.PREFERRED
    pauses = Pauses(services)
    wanted: list[TopicPartition] | None = None
    if message.topic_partitions is not None:
        wanted = list(await pauses.partitions((t.topic, t.partitions) for t in message.topic_partitions))
    outcomes: dict[TopicPartition, Outcome] = {}
    elected = []
    async for tp, outcome in pauses.between((await services.controller.ask(ElectLeaders(kind, wanted))).items()):
        if wanted is not None or outcome.error is not ErrorCode.ELECTION_NOT_NEEDED:
            outcomes[tp] = outcome
        if outcome.error is ErrorCode.NONE:
            elected.append(tp)

    def is_led(tp: TopicPartition) -> bool:
        known = services.metadata.partition(tp)
        if known is None:
            return False
        return known.leader == known.replicas[0] if kind is ElectionKind.PREFERRED else known.leader >= 0

    await services.topic_waits.until(lambda: all(is_led(tp) for tp in elected), message.timeout_ms)
    for tp in elected:
        if not is_led(tp):
            outcomes[tp] = Outcome(ErrorCode.REQUEST_TIMED_OUT, "elected, but not in this broker's metadata yet")
    topics: dict[str, list[Fields]] = {}
    async for tp, outcome in pauses.between(outcomes.items()):
        _add(topics, tp, outcome)
    return {"error_code": 0, "replica_election_results": _results(topics)}


def _kind(election_type: int) -> ElectionKind:
    """Return the kind of election; raises ApiError: UNKNOWN_SERVER_ERROR, as Kafka, for one that there is not."""
    try:
        return ElectionKind(election_type)
    except ValueError:
        text = f"election type {election_type}: 0 (preferred) or 1 (unclean) is expected"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from None


def _add(topics: dict[str, list[Fields]], tp: TopicPartition, outcome: Outcome) -> None:
    told = {"error_code": int(outcome.error), "error_message": outcome.message}
    topics.setdefault(tp.topic, []).append({"partition_id": tp.partition, **told})


def _results(topics: dict[str, list[Fields]]) -> list[Fields]:
    return [{"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    named = (TopicPartition(t.topic, p) for t in message.topic_partitions or () for p in t.partitions)
    topics: dict[str, list[Fields]] = {}
    for tp in dict.fromkeys(named):
        _add(topics, tp, Outcome(code, text))
    return {"error_code": int(code), "replica_election_results": _results(topics)}


HANDLER = Handler(message=handle, error=error)
