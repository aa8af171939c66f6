"""Produce (0), coded by hand: records are not copied out of the receive buffer.

v3 adds the transactional id, v5 the log start offset in the answer, v8 record errors (KIP-467), v9 flexible encoding,
v10 the current leader, v12 partitions that the leader adds to the transaction (KIP-890 part 2). acks=0 gets no answer;
if something goes wrong then, the connection is closed, as in Kafka.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any

from logyard.broker import tasks
from logyard.broker.log.producers import Origin
from logyard.broker.protocol import produce
from logyard.broker.replication.produce import Entries
from logyard.broker.server import large_produce, producing, transactional_produce
from logyard.broker.server.api import Handler
from logyard.broker.server.producing import Results, ResultsOrPending
from logyard.broker.server.request import Encoded, Request
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import Timed
from logyard.broker.transactions.verification import Errors

# Older versions carry message sets (formats v0 and v1).
BATCHES_SINCE = 3


def handle(services: Services, request: Request) -> "Encoded | asyncio.Future[Encoded]":
    version, body = request.api_version, request.body
    if version < BATCHES_SINCE and len(body) > large_produce.OLD_BYTES_AT_ONCE:
        return _begin_large(services, request)
    try:
        asked = produce.parse_request(version, body, large_produce.PARTS_AT_ONCE)
    except produce.ManyParts:
        return _begin_large(services, request)
    if len(body) > large_produce.BYTES_AT_ONCE and len(asked.partitions) > 1:  # too much for one turn of the loop
        return _begin_large(services, request)
    is_open = services.rights.is_open
    entries, refused = producing.fit(version, asked) if is_open else producing.fit_permitted(services, request, asked)
    if not entries:
        return producing.answer(services, request, asked.acks, refused)
    replicas, session = services.replicas, request.session
    if asked.transactional_id is not None or session.last_append is not None:
        verifying = transactional_produce.verify(services, version, asked, entries)
        if session.last_append is not None or not isinstance(verifying, Mapping):
            return _append_verified(services, request, asked, entries, verifying, refused)
        entries, unverified = transactional_produce.verified(version, entries, verifying)
        refused += unverified
    validation = producing.begin_validation(replicas, session, asked, entries)
    if validation.running is not None:
        work = producing.append_validated(replicas, session, asked, validation)
        return _append_later(services, request, asked, work, refused)
    outcome = replicas.producing.append(
        entries, acks=asked.acks, timeout_ms=asked.timeout_ms, origin=Origin.CLIENT, validated_by=validation.by
    )
    if isinstance(outcome, list):
        return producing.answer(services, request, asked.acks, outcome + refused)
    answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()

    def done(future: "asyncio.Future[Results]") -> None:
        if not answer.done():
            try:
                answer.set_result(producing.answer(services, request, -1, future.result() + refused))
            except Exception as error:
                answer.set_exception(error)

    outcome.add_done_callback(done)
    return answer


def _begin_large(services: Services, request: Request) -> "asyncio.Future[Encoded]":
    request.session.is_appending = True
    # A copy, because the connection receives on into its buffer.
    request.body = memoryview(bytearray(request.body))
    return tasks.answering(_large(services, request))


async def _large(services: Services, request: Request) -> Encoded:
    if request.session.last_append is not None:
        await request.session.last_append
    work = large_produce.handle(services, request)
    return await (Timed(request, work) if request.begun_s else work)


def _append_later(
    services: Services,
    request: Request,
    asked: produce.ProduceRequest,
    work: Coroutine[Any, Any, tuple[ResultsOrPending, Results]],
    refused: Results,
) -> "asyncio.Future[Encoded]":
    """Answer like `handle` once `work` has appended; the connection's next request waits for the append."""
    session = request.session
    session.is_appending = True

    async def appending() -> tuple[ResultsOrPending, Results]:
        try:
            return await work
        finally:
            session.is_appending = False

    return tasks.answering(_answer_later(services, request, asked, appending(), refused))


def _append_verified(
    services: Services,
    request: Request,
    asked: produce.ProduceRequest,
    entries: Entries,
    verifying: Errors | Awaitable[Errors],
    refused: Results,
) -> "asyncio.Future[Encoded]":
    # A copy, because the connection receives on into its buffer.
    entries = [(tp, memoryview(bytearray(records))) for tp, records in entries]
    before = request.session.last_append
    work = transactional_produce.append_verified(services, request, asked, entries, verifying, before)
    if request.api_version >= transactional_produce.ADDS_SINCE:
        # The coordinator adds to a transaction one request after the other.
        return _append_later(services, request, asked, work, refused)
    return _append_in_order(services, request, asked, work, refused)


def _append_in_order(
    services: Services,
    request: Request,
    asked: produce.ProduceRequest,
    work: Coroutine[Any, Any, tuple[ResultsOrPending, Results]],
    refused: Results,
) -> "asyncio.Future[Encoded]":
    """Do what `_append_later` does, but let small requests of the connection be started before the append."""
    session = request.session
    appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.last_append = appended

    async def appending() -> tuple[ResultsOrPending, Results]:
        try:
            return await work
        finally:
            if session.last_append is appended:
                session.last_append = None
            appended.set_result(None)

    return tasks.answering(_answer_later(services, request, asked, appending(), refused))


async def _answer_later(
    services: Services,
    request: Request,
    asked: produce.ProduceRequest,
    work: Coroutine[Any, Any, tuple[ResultsOrPending, Results]],
    refused: Results,
) -> Encoded:
    outcome, rejected = await work
    if not isinstance(outcome, list):
        request.session.go_on()
        outcome = await outcome
    return producing.answer(services, request, asked.acks, outcome + refused + rejected)


HANDLER = Handler(raw=handle)
