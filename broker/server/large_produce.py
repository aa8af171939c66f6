"""Large Produce requests (many parts, or many old messages) are decoded in a thread and appended in portions.

A portion takes the event loop for some milliseconds, then other work has its turn (turns.py). Portions do not depend on
each other: a request has one part for each partition, whose leadership is checked when the part is appended. The next
request of the connection waits until all is appended.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from logyard.broker.controller.garbage_collector import patient
from logyard.broker.errors import CorruptData
from logyard.broker.protocol import produce
from logyard.broker.protocol.produce import PARTS_MAX, ManyParts, Part, PartitionOutcome, ProduceRequest
from logyard.broker.records.header import is_transactional
from logyard.broker.records.pauses import PausingList
from logyard.broker.server import producing, transactional_produce
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.producing import Results, ResultsOrPending
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import produce_throttle_ms
from logyard.broker.server.turns import in_thread

# The bounds of a portion. Appending takes 40 µs for a part, and 0.4 ms for a megabyte.
PARTS_AT_ONCE = 50
BYTES_AT_ONCE = 4 * 1024 * 1024
# Larger bodies of old messages go to a thread: Python parses them one by one.
OLD_BYTES_AT_ONCE = 4 * 1024

T = TypeVar("T")


async def handle(services: Services, request: Request) -> Encoded:
    """Return the answer. The caller keeps the request's body unchanged until then."""
    with patient:
        asked, results, appended = await _append(services, request)
    for each in appended:
        results += each if isinstance(each, list) else await each
    with patient:
        return await _answer(services, request, asked.acks, results)


async def _append(services: Services, request: Request) -> tuple[ProduceRequest, Results, list[ResultsOrPending]]:
    version = request.api_version
    appended: list[ResultsOrPending] = []
    try:
        asked, results = await in_thread(services.replicas, partial(_read, version, request.body))
        if not services.rights.is_open:
            asked, denied = await _permitted(services, request, asked)
            results += denied
        for portion in _portions(asked.partitions):
            entries, refused = await in_thread(services.replicas, partial(producing.fit_parts, version, portion))
            results += refused
            await services.turns.next()
            replicas, session = services.replicas, request.session
            verifying = transactional_produce.verify(services, version, asked, entries)
            if not isinstance(verifying, Mapping):
                each, refused = await transactional_produce.append_verified(
                    services, request, asked, entries, verifying
                )
                appended.append(each)
                results += refused
                continue
            entries, refused = transactional_produce.verified(version, entries, verifying)
            results += refused
            validation = producing.begin_validation(replicas, session, asked, entries)
            if validation.running is None:
                appended.append(producing.append(replicas, asked, entries, validation.by))
                continue
            each, refused = await producing.append_validated(replicas, session, asked, validation)
            appended.append(each)
            results += refused
    finally:
        request.session.is_appending = False
    request.session.go_on()
    return asked, results, appended


def _read(version: int, body: memoryview) -> tuple[ProduceRequest, Results]:
    """Return the request with one part for each partition, and the results of what is refused at once.

    Raises CorruptData, which closes the connection, if it names more than PARTS_MAX partitions."""
    try:
        asked = produce.parse_request(version, body, found=PausingList())
    except ManyParts:
        raise CorruptData(f"a Produce request names more than {PARTS_MAX:,} partitions") from None
    fault = producing.fault_of(asked, asked.partitions)
    if fault is not None:
        return asked._replace(partitions=[]), producing.refuse_all(asked.partitions, fault)
    return asked._replace(partitions=producing.last_of_each(asked.partitions)), []


async def _permitted(services: Services, request: Request, asked: ProduceRequest) -> tuple[ProduceRequest, Results]:
    """Do what `producing.permitted` does, in portions."""
    parts, named = asked.partitions, asked.transactional_id
    if named is not None and await in_thread(services.replicas, lambda: any(is_transactional(p[2]) for p in parts)):
        fault = producing.refused_id(services, request, named)
        if fault is not None:
            return asked._replace(partitions=[]), producing.refuse_all(parts, fault)
    permitted: list[Part] = PausingList()
    denied: Results = []
    for portion in _rows(parts):
        await services.turns.next()
        some, refused = producing.writable(services, request, list(portion))
        permitted += some
        denied += refused
    return asked._replace(partitions=permitted), denied


def _portions(parts: list[Part]) -> Iterator[list[Part]]:
    start = size = 0
    for number, (*_, records) in enumerate(parts):
        if number - start == PARTS_AT_ONCE or (size and size + len(records) > BYTES_AT_ONCE):
            yield parts[start:number]
            start, size = number, 0
        size += len(records)
    if start < len(parts):
        yield parts[start:]


async def _answer(services: Services, request: Request, acks: int, results: Results) -> Encoded:
    throttle_ms = produce_throttle_ms(services.quotas, request, acks)
    if acks == 0:
        producing.check_all_appended(results)
        return None
    topics: dict[str, list[PartitionOutcome]] = {}
    leaders: set[int] = set()
    for some in _rows(results):
        await services.turns.next()
        outcomes, named = producing.outcomes_of(services, request, some)
        leaders.update(named)
        for outcome in outcomes:
            topics.setdefault(outcome.topic, PausingList()).append(outcome)
    endpoints = endpoints_of(services.metadata, request.session.listener, leaders) if leaders else ()
    write = partial(produce.encode_topics, request.api_version, request.correlation_id, topics, throttle_ms, endpoints)
    return await in_thread(services.replicas, write)


def _rows(found: Sequence[T], size: int = 20 * PARTS_AT_ONCE) -> Iterator[Sequence[T]]:
    for start in range(0, len(found), size):
        yield found[start : start + size]
