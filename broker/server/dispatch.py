"""Takes a frame to its handler and encodes the answer: header, version check, decoding, errors, counters."""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.controller import garbage_collector
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.server import authorization
from logyard.broker.server.api import Api, top_level_error
from logyard.broker.server.large_answers import is_large
from logyard.broker.server.request import Encoded, Fields, Request, Session, Unanswerable
from logyard.broker.server.services import Services
from logyard.broker.server.throttling import Timed, charge_time
from logyard.broker.server.turns import LARGE_BODY_BYTES, in_thread
from logyard.broker.znodes.ops import SessionExpired

API_VERSIONS = 18

log = structlog.get_logger("logyard.dispatch")


class ApiCounter:
    """Counts an API's requests, errors, and seconds on the event loop."""

    __slots__ = ("errors", "name", "requests", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.errors = 0
        self.seconds = 0.0


class Dispatcher:
    """Answers the requests of the given APIs; all connections of a broker share one instance."""

    def __init__(self, services: Services, apis: Iterable[Api]) -> None:
        self._services = services
        self._quotas = services.quotas
        self._served = {api.key: (api, *api.versions, ApiCounter(api.name), api.handler.raw) for api in apis}
        self.counters = {key: counter for key, (_, _, _, counter, _) in self._served.items()}
        self._pipelined = frozenset(key for key, (api, *_) in self._served.items() if api.pipelined)
        self._small_answers = frozenset(key for key, (api, *_) in self._served.items() if api.small_answer)

    def may_pipeline(self, api_key: int) -> bool:
        """Whether a connection's next request may start before one of this API is answered."""
        return api_key in self._pipelined

    def has_small_answer(self, api_key: int) -> bool:
        """Whether the API's answers are as small as its requests."""
        return api_key in self._small_answers

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]":
        """Answer one frame, at once or by a future. Raises CorruptData if the connection has to be closed."""
        api_key, version, correlation_id, client_id, body = parse_request_header(frame)
        served = self._served.get(api_key)
        if served is None:
            raise CorruptData(f"api key {api_key} is not served")
        api, low, high, counter, raw = served
        if not low <= version <= high:
            if api_key == API_VERSIONS:
                return codec.encode_response(API_VERSIONS, 0, correlation_id, _only_api_versions(low, high))
            raise CorruptData(f"{api.name} v{version} is not served, only v{low} to v{high}")
        request = Request(api_key, version, correlation_id, client_id, body, session)
        counter.requests += 1
        begun = time.perf_counter()
        if self._quotas.request is not None and not (api.between_brokers and self._services.rights.is_open):
            request.begun_s = begun
        try:
            if raw is not None:
                return raw(self._services, request)
            return self._message(api, request)
        finally:
            counter.seconds += time.perf_counter() - begun
            if request.begun_s:
                request.spent_s += time.perf_counter() - begun

    def refusal(self, session: Session, frame: memoryview, code: ErrorCode) -> bytes | None:
        """Return the answer that refuses a frame with `code`, in the form of its API.

        None if there is no such form: the API or version is not served, or the frame is too large to be looked at.
        """
        api_key, version, correlation_id, client_id, body = parse_request_header(frame)
        served = self._served.get(api_key)
        if served is None or len(body) > LARGE_BODY_BYTES or not served[1] <= version <= served[2]:
            return None
        handler = served[0].handler
        if handler.raw is not None and handler.error is top_level_error:
            return None
        message = codec.decode_request(api_key, version, body)
        request = Request(api_key, version, correlation_id, client_id, body, session)
        return self._encode(request, handler.error(message, version, code, None))

    def _message(self, api: Api, request: Request) -> "Encoded | asyncio.Future[Encoded]":
        quick = api.handler.quick
        if quick is not None and not request.begun_s:
            answer = quick(self._services, request)
            if answer is not None:
                return answer
        if _is_long(request):
            return tasks.answering(self._large_message(api, request, bytes(request.body)))
        message = codec.decode_request(request.api_key, request.api_version, request.body)
        handle = api.handler.message
        assert handle is not None
        try:
            if not self._services.rights.is_open:
                self._admit(api, request, message)
            outcome = handle(self._services, request, message)
        except Exception as error:
            outcome = api.handler.error(message, request.api_version, *self._reason(api, request, error))
        if isinstance(outcome, Awaitable):
            if request.begun_s:
                outcome = Timed(request, outcome)
            return tasks.answering(self._finish(api, request, message, outcome))
        fields = self._charged(request, outcome)
        if is_large(fields):
            return tasks.answering(self._answer(api, request, message, fields))
        return self._encode(request, fields)

    def _admit(self, api: Api, request: Request, message: Any) -> None:
        """Check the rights. Who may act as a broker is not throttled; who only tries to is."""
        authorization.admit(self._services, request, message)
        if api.between_brokers:
            request.begun_s = 0.0

    async def _large_message(self, api: Api, request: Request, body: bytes) -> Encoded:
        """Decode the request in a thread, as its answer is encoded: each takes 0.3 s for a megabyte of small parts."""
        request.body = memoryview(body)
        if not api.between_brokers:
            return await self._decoded(api, request)
        # A controller's orders may make a million objects: whole collections of them would take 0.5 s each.
        with garbage_collector.patient:
            return await self._decoded(api, request)

    async def _decoded(self, api: Api, request: Request) -> Encoded:
        services, waits = self._services, not api.between_brokers
        message = await services.large_requests.decode(services.replicas, request, waits=waits)
        handle = api.handler.message
        assert handle is not None
        try:
            if not self._services.rights.is_open:
                self._admit(api, request, message)
            outcome: Any = handle(self._services, request, message)
            if isinstance(outcome, Awaitable):
                outcome = await (Timed(request, outcome) if request.begun_s else outcome)
            fields = self._charged(request, outcome)
        except Exception as error:
            return await self._refuse(api, request, message, error)
        return await self._answer(api, request, message, fields)

    async def _finish(self, api: Api, request: Request, message: Any, outcome: Awaitable[Fields]) -> Encoded:
        try:
            fields = self._charged(request, await outcome)
        except Exception as error:
            return await self._refuse(api, request, message, error)
        return await self._answer(api, request, message, fields)

    async def _answer(self, api: Api, request: Request, message: Any, fields: Fields) -> Encoded:
        try:
            return await self._encoded(request, fields)
        except Exception as error:
            return await self._refuse(api, request, message, error)

    async def _refuse(self, api: Api, request: Request, message: Any, error: Exception) -> Encoded:
        """Many answers have the error in each part: those to a large request are made in a thread, as it was read."""
        make = partial(api.handler.error, message, request.api_version, *self._reason(api, request, error))
        fields = await in_thread(self._services.replicas, make) if _is_long(request) else make()
        return await self._encoded(request, self._charged(request, fields))

    async def _encoded(self, request: Request, fields: Fields) -> Encoded:
        if _is_long(request) or is_large(fields):
            return await in_thread(self._services.replicas, partial(self._encode, request, fields))
        return self._encode(request, fields)

    def _charged(self, request: Request, fields: Fields) -> Fields:
        """Return the fields with the throttle time, and mute the connection for that time."""
        throttle_ms: int = fields.get("throttle_time_ms", 0)
        if request.begun_s and self._quotas.request is not None:
            throttle_ms = max(throttle_ms, charge_time(self._quotas.request, request))
            fields = {**fields, "throttle_time_ms": throttle_ms}
        if throttle_ms:
            request.session.mute(throttle_ms)
        return fields

    def _encode(self, request: Request, fields: Fields) -> bytes:
        return codec.encode_response(request.api_key, request.api_version, request.correlation_id, fields)

    def _reason(self, api: Api, request: Request, error: Exception) -> tuple[ErrorCode, str | None]:
        """Count an error, and return what the client is told of it. Raises Unanswerable."""
        self.counters[api.key].errors += 1
        if isinstance(error, Unanswerable):
            raise error
        if isinstance(error, ApiError):
            return error.code, error.message
        if isinstance(error, SessionExpired):
            # The request may be good: the client may try again.
            return ErrorCode.REQUEST_TIMED_OUT, "the broker's ZooKeeper session ended, try again"
        log.error("handler failed", api=api.name, version=request.api_version, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, None


def _is_long(request: Request) -> bool:
    return len(request.body) > LARGE_BODY_BYTES


def _only_api_versions(low: int, high: int) -> Fields:
    """Return the v0 answer to an ApiVersions version that is too new (KIP-511): UNSUPPORTED_VERSION and the range."""
    return {
        "error_code": int(ErrorCode.UNSUPPORTED_VERSION),
        "api_keys": [{"api_key": API_VERSIONS, "min_version": low, "max_version": high}],
    }
