"""Produce requests of many parts, or of many old messages: read in a thread, appended in portions.

Each portion takes the event loop for some milliseconds, then others have their turn (turns.py). Nothing keeps two
portions together: every partition's leadership is looked at when its batch is appended, and a request has one batch for
each partition. What the connection sends next waits until all is appended.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

from logyard.broker.controller.garbage_collector import patient
from logyard.broker.errors import CorruptData
from logyard.broker.protocol import produce
from logyard.broker.protocol.produce import PARTS_MAX, ManyParts, Part, PartitionOutcome, ProduceRequest
from logyard.broker.records.pauses import PausingList
from logyard.broker.server import producing
from logyard.broker.server.leader_endpoints import endpoints_of
from logyard.broker.server.producing import Outcome, Results
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import produce_throttle_ms
from logyard.broker.server.turns import in_thread

# What is appended at once: 40 µs for each part, and 0.4 ms for each megabyte.
PARTS_AT_ONCE = 50
BYTES_AT_ONCE = 4 * 1024 * 1024
# Old messages are found one by one, in Python, before anything is done with them.
OLD_BYTES_AT_ONCE = 4 * 1024

T = TypeVar("T")


def is_large(asked: ProduceRequest, size: int) -> bool:
    """Whether a request of that many bytes, and of few parts, is too much for one turn of the event loop."""
    return size > BYTES_AT_ONCE and len(asked.partitions) > 1


async def handle(services: Services, request: Request) -> Encoded:
    """Answer one; its body has to stay as it is until then."""
    with patient:
        asked, results, outcomes = await _append(services, request)
    for outcome in outcomes:
        results += outcome if isinstance(outcome, list) else await outcome
    with patient:
        return await _answer(services, request, asked.acks, results)


async def _append(services: Services, request: Request) -> tuple[ProduceRequest, Results, list[Outcome]]:
    version = request.api_version
    outcomes: list[Outcome] = []
    try:
        asked, results = await in_thread(services.replicas, partial(_read, version, request.body))
        for portion in _portions(asked.partitions):
            entries, refused = await in_thread(services.replicas, partial(producing.fit_parts, version, portion))
            results += refused
            await services.turns.next()
            validation, much = producing.validate_in_thread(services.replicas, request.session, asked, entries)
            if validation is None:
                outcomes.append(producing.append(services.replicas, asked, entries))
                continue
            outcome, refused = await producing.append_validated(
                services.replicas, request.session, asked, validation, much
            )
            outcomes.append(outcome)
            results += refused
    finally:
        request.session.is_appending = False
    request.session.go_on()
    return asked, results, outcomes


def _read(version: int, body: memoryview) -> tuple[ProduceRequest, Results]:
    """Return the request with each partition named once, and what is refused as it stands."""
    try:
        asked = produce.parse_request(version, body, found=PausingList())
    except ManyParts:
        raise CorruptData(f"a Produce request names more than {PARTS_MAX:,} partitions") from None
    fault = producing.fault_of(asked, asked.partitions)
    if fault is not None:
        return asked._replace(partitions=[]), producing.refuse_all(asked.partitions, fault)
    return asked._replace(partitions=producing.last_of_each(asked.partitions)), []


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
        producing.must_be_well(results)
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
