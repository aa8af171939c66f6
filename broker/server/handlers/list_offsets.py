"""ListOffsets (2): v0 has several offsets per partition, v1 one; v2 adds isolation, v4 leader epochs, v7 the offset of
the largest timestamp, v8 and v9 two of tiered storage."""

import asyncio
from collections.abc import Awaitable, Container, Iterable
from types import MappingProxyType
from typing import Any

from logyard.broker import tasks
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import list_offsets as wire
from logyard.broker.replication.events import (
    CONSUMER_ID,
    DEBUG_CONSUMER_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    OffsetAnswer,
    OffsetQuery,
    OldOffsetAnswer,
    OldOffsetQuery,
)
from logyard.broker.replication.log_errors import code_of
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Encoded, Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# Timestamps that stand for something else, by the first version that has them.
_SINCE = MappingProxyType(
    {
        LATEST_TIMESTAMP: 0,
        EARLIEST_TIMESTAMP: 0,
        MAX_TIMESTAMP: 7,
        EARLIEST_LOCAL_TIMESTAMP: 8,
        LATEST_TIERED_TIMESTAMP: 9,
    }
)
_NEVER = 1 << 15
_ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_new = tuple.__new__


def quick(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    """Answer a request for one partition from its bytes; None: it is another, for `handle`."""
    version = request.api_version
    asked = wire.parse_one(version, request.body)
    if asked is None or not 0 <= asked.isolation_level <= 1:
        return None
    replica_id, isolation_level, topic, _, partition, leader_epoch, timestamp = asked
    tp = _new(TopicPartition, (topic, partition))
    if not services.rights.is_open and not authorization.may(services, request, RIGHTS[request.api_key].topic, topic):
        return _one(request, asked, OffsetAnswer(tp, REFUSED))
    if timestamp < 0 and _is_unknown(timestamp, version):
        return _one(request, asked, OffsetAnswer(tp, ErrorCode.UNSUPPORTED_VERSION))
    isolation = _ISOLATIONS[isolation_level] if replica_id == CONSUMER_ID else Isolation.LOG_END
    found = services.replicas.lookups.list_offset(
        _new(OffsetQuery, (tp, timestamp, leader_epoch)), isolation, only_leader=replica_id != DEBUG_CONSUMER_ID
    )
    if isinstance(found, OffsetAnswer):
        return _one(request, asked, found)
    return tasks.answering(_one_later(request, asked, tp, found))


async def _one_later(
    request: Request, asked: wire.Asked, tp: TopicPartition, pending: Pending[list[OffsetAnswer]]
) -> Encoded:
    try:
        (found,) = await pending
    except Exception as trouble:
        found = OffsetAnswer(tp, code_of(trouble, tp))
    return _one(request, asked, found)


def _one(request: Request, asked: wire.Asked, answer: OffsetAnswer) -> bytes:
    version = request.api_version
    _, code, timestamp, offset, leader_epoch = answer
    code = _code(code, version)
    return wire.encode_one(version, request.correlation_id, asked, code, timestamp, offset, leader_epoch)


def handle(services: Services, request: Request, message: Any) -> Fields | Awaitable[Fields]:
    topics = message.topics
    if len(topics) > PARTS_AT_ONCE or sum(len(topic.partitions) for topic in topics) > PARTS_AT_ONCE:
        return _in_portions(services, request, message)
    described = authorization.topics(services, request, [topic.name for topic in topics])
    listing = _Listing(services, request, message, described)
    for topic in topics:
        listing.take(topic.name, topic.partitions, listing.topic(topic.name))
    found = listing.look_up()
    if not isinstance(found, list):
        return _when_found(listing, found)
    listing.answer(found)
    return listing.fields()


async def _when_found(listing: "_Listing", found: Awaitable["_Answers"]) -> Fields:
    listing.answer(await found)
    return listing.fields()


async def _in_portions(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    described = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    listing = _Listing(services, request, message, described)
    for topic in message.topics:
        parts = listing.topic(topic.name)
        for start in range(0, len(topic.partitions) or 1, PARTS_AT_ONCE):
            partitions = topic.partitions[start : start + PARTS_AT_ONCE]
            listing.take(topic.name, partitions, parts)
            await pauses.after(len(partitions) + 1)
    for start in range(0, len(listing.queries), PARTS_AT_ONCE):
        found = listing.look_up(start)
        listing.answer(found if isinstance(found, list) else await found, start)
        await pauses.after(PARTS_AT_ONCE)
    # Nothing is left that may be refused as a whole, for which the request would be needed.
    await listing.let_go(pauses)
    for topic in message.topics:
        await pauses.let_go(topic.partitions)
    await pauses.let_go(message.topics)
    return listing.fields()


_Parts = list[Fields]
"""The answers about the partitions of a topic, in the order in which they were asked for."""
_Answers = list[OffsetAnswer] | list[OldOffsetAnswer]


class _Listing:
    """One request: what is asked of the log, and the answers so far. Everything is taken before any is looked up."""

    def __init__(self, services: Services, request: Request, message: Any, described: Container[str]) -> None:
        self._version = version = request.api_version
        isolation = _isolation(message.isolation_level) if version >= 2 else Isolation.READ_UNCOMMITTED
        self._isolation = isolation if message.replica_id == CONSUMER_ID else Isolation.LOG_END
        # Only the debugging consumer may ask a follower.
        self._only_leader = message.replica_id != DEBUG_CONSUMER_ID
        self._described = described
        self._lookups, self._clock = services.replicas.lookups, services.clock
        self._most: list[int] = []  # v0: how many offsets are asked for, by query
        self.queries: list[OffsetQuery] = []
        self._places: list[_Parts] = []  # where the answer to each of them belongs
        # A partition that is named twice is refused, as in Kafka: some bytes may not cost a search each.
        self._named: set[TopicPartition] = set()
        self._named_again: set[TopicPartition] = set()
        self._answered: list[Fields] = []
        self._refused: list[Fields] = []

    def topic(self, name: str) -> _Parts:
        """Begin the answer about a topic, one for each time that it is named, as in Kafka: also without partitions."""
        parts: _Parts = []
        topics = self._answered if name in self._described else self._refused
        topics.append({"name": name, "partitions": parts})
        return parts

    def take(self, topic: str, partitions: Iterable[Any], parts: _Parts) -> None:
        """Make the queries for some partitions of a topic, or refuse them."""
        if topic not in self._described:
            parts.extend([_part(p, REFUSED) for p in partitions])
            return
        has_epochs = self._version >= 4
        for p in partitions:
            tp = TopicPartition(topic, p.partition_index)
            if tp in self._named:
                self._named_again.add(tp)
            self._named.add(tp)
            self.queries.append(OffsetQuery(tp, p.timestamp, p.current_leader_epoch if has_epochs else -1))
            if self._version == 0:
                self._most.append(p.max_num_offsets)
            self._places.append(parts)

    def look_up(self, start: int = 0) -> "_Answers | Awaitable[_Answers]":
        """Look up a portion of the queries, those that may be."""
        portion = self.queries[start : start + PARTS_AT_ONCE]
        if self._version == 0:
            most = self._most[start : start + PARTS_AT_ONCE]
            olds = [OldOffsetQuery(q.tp, q.timestamp, m) for q, m in zip(portion, most, strict=True)]
            return self._lookups.old_offsets(
                [old for old, query in zip(olds, portion, strict=True) if self._refusal(query) is None],
                for_consumer=self._isolation is not Isolation.LOG_END,
                only_leader=self._only_leader,
                now_ms=self._clock.now_ms(),
            )
        asked = [query for query in portion if self._refusal(query) is None]
        return self._lookups.list_offsets(asked, self._isolation, only_leader=self._only_leader)

    def answer(self, found: Iterable[OffsetAnswer | OldOffsetAnswer], start: int = 0) -> None:
        """Add the answers to a portion of the queries; `found` is what `look_up` found for it."""
        answers, version = iter(found), self._version
        portion = slice(start, start + PARTS_AT_ONCE)
        for query, parts in zip(self.queries[portion], self._places[portion], strict=True):
            refusal = self._refusal(query)
            answer = next(answers) if refusal is None else OffsetAnswer(query.tp, refusal)
            parts.append(_fields(version, answer))

    def _refusal(self, query: OffsetQuery) -> ErrorCode | None:
        if query.tp in self._named_again:
            return ErrorCode.INVALID_REQUEST
        if self._version and query.timestamp < 0 and _is_unknown(query.timestamp, self._version):
            return ErrorCode.UNSUPPORTED_VERSION
        return None

    async def let_go(self, pauses: Pauses) -> None:
        """Free what is no longer needed."""
        await pauses.let_go(self.queries)
        await pauses.let_go(self._most)
        await pauses.let_go(self._named)

    def fields(self) -> Fields:
        """Return the fields of the answer."""
        return {"topics": self._answered + self._refused if self._refused else self._answered}


def _isolation(level: int) -> Isolation:
    """Return a client's isolation; raises ApiError: UNKNOWN_SERVER_ERROR, as Kafka, for a level that there is not."""
    if not 0 <= level < len(_ISOLATIONS):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {level}: 0 or 1 is expected")
    return _ISOLATIONS[level]


def _fields(version: int, answer: OffsetAnswer | OldOffsetAnswer) -> Fields:
    code = _code(answer.error, version)
    fields: Fields = {"partition_index": answer.tp.partition, "error_code": int(code)}
    if isinstance(answer, OldOffsetAnswer):
        return {**fields, "old_style_offsets": list(answer.offsets)}
    return {
        **fields,
        "timestamp": answer.timestamp,
        "offset": answer.offset,
        "leader_epoch": answer.leader_epoch,
    }


def _is_unknown(timestamp: int, version: int) -> bool:
    """Whether the version does not have this negative timestamp, each of which stands for an offset."""
    return version < _SINCE.get(timestamp, _NEVER)


def _code(code: ErrorCode, version: int) -> ErrorCode:
    return ErrorCode.LEADER_NOT_AVAILABLE if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5 else code


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_part(p, code) for p in topic.partitions]} for topic in message.topics
        ]
    }


def _part(p: Any, code: ErrorCode) -> Fields:
    return {"partition_index": p.partition_index, "error_code": int(code)}


HANDLER = Handler(message=handle, quick=quick, error=error)
