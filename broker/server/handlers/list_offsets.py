"""ListOffsets (2): v0 has several offsets per partition, v1 one; v2 adds isolation, v4 leader epochs, v7 the offset of
the largest timestamp."""

from collections.abc import Awaitable, Container, Iterable
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import CONSUMER_ID, DEBUG_CONSUMER_ID, Isolation, OffsetAnswer, OffsetQuery
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle(services: Services, request: Request, message: Any) -> Fields | Awaitable[Fields]:
    topics = message.topics
    if len(topics) > PARTS_AT_ONCE or sum(len(topic.partitions) for topic in topics) > PARTS_AT_ONCE:
        return _in_portions(services, request, message)
    described = authorization.topics(services, request, [topic.name for topic in topics])
    listing = _Listing(services, request, message, described)
    for topic in topics:
        listing.take(topic.name, topic.partitions)
    found = listing.look_up(listing.queries)
    if not isinstance(found, list):
        return _when_found(listing, found)
    listing.answer(listing.queries, found)
    return listing.fields()


async def _when_found(listing: "_Listing", found: Awaitable[list[OffsetAnswer]]) -> Fields:
    listing.answer(listing.queries, await found)
    return listing.fields()


async def _in_portions(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    described = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    listing = _Listing(services, request, message, described)
    for topic in message.topics:
        for start in range(0, len(topic.partitions) or 1, PARTS_AT_ONCE):
            partitions = topic.partitions[start : start + PARTS_AT_ONCE]
            listing.take(topic.name, partitions)
            await pauses.after(len(partitions) + 1)
    for start in range(0, len(listing.queries), PARTS_AT_ONCE):
        portion = listing.queries[start : start + PARTS_AT_ONCE]
        found = listing.look_up(portion)
        listing.answer(portion, found if isinstance(found, list) else await found)
        await pauses.after(len(portion))
    return listing.fields()


class _Listing:
    """One request: what is asked of the log, and the answers so far. Everything is taken before any is looked up."""

    def __init__(self, services: Services, request: Request, message: Any, described: Container[str]) -> None:
        self._version = version = request.api_version
        isolation = Isolation(message.isolation_level) if version >= 2 else Isolation.READ_UNCOMMITTED
        self._isolation = isolation if message.replica_id == CONSUMER_ID else Isolation.LOG_END
        # Only the debugging consumer may ask a follower.
        self._only_leader = message.replica_id != DEBUG_CONSUMER_ID
        self._described = described
        self._lookups = services.replicas.lookups
        self.queries: list[OffsetQuery] = []
        # A partition that is named twice is refused, as in Kafka: some bytes may not cost a search each.
        self._named: set[TopicPartition] = set()
        self._named_again: set[TopicPartition] = set()
        self._answered: dict[str, list[Fields]] = {}
        self._refused: dict[str, list[Fields]] = {}

    def take(self, topic: str, partitions: Iterable[Any]) -> None:
        """Make the queries for some partitions of a topic, or refuse them."""
        if topic not in self._described:
            self._refused.setdefault(topic, []).extend([_part(p, REFUSED) for p in partitions])
            return
        has_epochs = self._version >= 4
        for p in partitions:
            tp = TopicPartition(topic, p.partition_index)
            if tp in self._named:
                self._named_again.add(tp)
            self._named.add(tp)
            self.queries.append(OffsetQuery(tp, p.timestamp, p.current_leader_epoch if has_epochs else -1))

    def look_up(self, queries: list[OffsetQuery]) -> list[OffsetAnswer] | Awaitable[list[OffsetAnswer]]:
        """Look these up, those that may be."""
        again = self._named_again
        asked = [query for query in queries if query.tp not in again] if again else queries
        return self._lookups.list_offsets(asked, self._isolation, only_leader=self._only_leader)

    def answer(self, queries: list[OffsetQuery], found: Iterable[OffsetAnswer]) -> None:
        """Add the answers to these queries; `found` is what `look_up` found for them."""
        again, answers, version = self._named_again, iter(found), self._version
        for query in queries:
            tp = query.tp
            answer = OffsetAnswer(tp, ErrorCode.INVALID_REQUEST) if tp in again else next(answers)
            self._answered.setdefault(tp.topic, []).append(_fields(version, answer))

    def fields(self) -> Fields:
        """Return the fields of the answer."""
        both = (*self._answered.items(), *self._refused.items())
        return {"topics": [{"name": name, "partitions": partitions} for name, partitions in both]}


def _fields(version: int, answer: OffsetAnswer) -> Fields:
    code = answer.error
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "partition_index": answer.tp.partition,
        "error_code": int(code),
        "old_style_offsets": [answer.offset] if code is ErrorCode.NONE and answer.offset >= 0 else [],
        "timestamp": answer.timestamp,
        "offset": answer.offset,
        "leader_epoch": answer.leader_epoch,
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_part(p, code) for p in topic.partitions]} for topic in message.topics
        ]
    }


def _part(p: Any, code: ErrorCode) -> Fields:
    return {"partition_index": p.partition_index, "error_code": int(code)}


HANDLER = Handler(message=handle, error=error)
