"""ElectLeaders (43): preferred elections, from v1 on unclean ones too (KIP-460).

If all partitions are asked for, the answer leaves out those that get ELECTION_NOT_NEEDED.
"""

from typing import Any

from logyard.broker.controller.events import ElectionKind, ElectLeaders, Outcome
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    kind = ElectionKind(message.election_type) if request.api_version >= 1 else ElectionKind.PREFERRED
    named = message.topic_partitions
    wanted = None if named is None else tuple(TopicPartition(t.topic, p) for t in named for p in t.partitions)
    outcomes = dict(await services.controller.ask(ElectLeaders(kind, wanted)))
    if wanted is None:
        outcomes = {tp: o for tp, o in outcomes.items() if o.error is not ErrorCode.ELECTION_NOT_NEEDED}
    elected = [tp for tp, outcome in outcomes.items() if outcome.error is ErrorCode.NONE]

    def is_led(tp: TopicPartition) -> bool:
        known = services.metadata.partition(tp)
        if known is None:
            return False
        return known.leader == known.replicas[0] if kind is ElectionKind.PREFERRED else known.leader >= 0

    await services.topic_waits.until(lambda: all(is_led(tp) for tp in elected), message.timeout_ms)
    for tp in elected:
        if not is_led(tp):
            outcomes[tp] = Outcome(ErrorCode.REQUEST_TIMED_OUT, "elected, but not in this broker's metadata yet")
    return {"error_code": 0, "replica_election_results": _by_topic(outcomes)}


def _by_topic(outcomes: dict[TopicPartition, Outcome]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, outcome in outcomes.items():
        topics.setdefault(tp.topic, []).append(
            {"partition_id": tp.partition, "error_code": int(outcome.error), "error_message": outcome.message}
        )
    return [{"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    outcome = Outcome(code, text)
    named = {TopicPartition(t.topic, p): outcome for t in message.topic_partitions or () for p in t.partitions}
    return {"error_code": int(code), "replica_election_results": _by_topic(named)}


HANDLER = Handler(message=handle, error=error)
