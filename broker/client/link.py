"""One connection to another broker: requests are pipelined by correlation id, and each has a time-out.

A link connects at its first request, and again at the next one after it broke; callers pause between tries. A large
answer is received into a separate buffer, so that its records can be kept without a copy.

With a log-in, a link logs in when it connects, and again before the session ends. After a refused log-in the next one
waits, longer each time, because whoever has to change a password is slow.
"""

import asyncio
import itertools
import math
import struct
from collections.abc import Mapping
from typing import Any

import structlog

from logyard.broker.client.peer_login import FIRST_CORRELATION_ID, PeerRefusesLogin, PeerSession
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.protocol import codec
from logyard.broker.replication.ports import LinkError

FRAME_BYTES_MAX = 256 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024
# Larger answers are decoded in a thread: 3 µs for each part of a message, of which a part may have six bytes.
LARGE_ANSWER_BYTES = 16 * 1024
# Of a session's lifetime; Kafka's clients renew after 85 to 95 %.
RENEWED_AFTER = 0.85
REFUSED_PAUSE_S = 0.5
REFUSED_PAUSE_MAX_S = 5.0
REFUSALS_PER_LINE = 12
_SIZE = struct.Struct(">i")


log = structlog.get_logger("logyard.link")


class _OutOfTime(Exception):
    """An answer did not come in time."""


class _Frames(asyncio.BufferedProtocol):
    """Splits received bytes into answers, and sets the futures that wait for them."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[memoryview]] = {}
        self.transport: asyncio.Transport | None = None
        self.trouble: str | None = None
        self._scratch = bytearray(SCRATCH_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's class is no asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.trouble = self.trouble or (str(exc) if exc else "the other side closed the connection")
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(LinkError(self.trouble))
        self.waiting.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._frame_filled += nbytes
            if self._frame_filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._settle(memoryview(frame))
            return
        self._filled += nbytes
        self._split()

    def _split(self) -> None:
        start = 0
        while self._filled - start >= 4:
            (size,) = _SIZE.unpack_from(self._scratch, start)
            if not 4 <= size <= FRAME_BYTES_MAX:
                self._break(f"an answer has {size} bytes; 4 to {FRAME_BYTES_MAX} are accepted")
                return
            here = self._filled - start - 4
            if here >= size:
                self._settle(memoryview(bytes(memoryview(self._scratch)[start + 4 : start + 4 + size])))
                start += 4 + size
                continue
            if size > SCRATCH_BYTES - 4:
                self._frame = bytearray(size)
                self._frame[:here] = memoryview(self._scratch)[start + 4 : self._filled]
                self._frame_filled, start = here, self._filled
            break
        rest = self._filled - start
        if start:
            self._scratch[:rest] = self._scratch[start : self._filled]
            self._filled = rest

    def _settle(self, frame: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        future = self.waiting.pop(correlation_id, None)
        if future is not None and not future.done():
            future.set_result(frame)

    def _break(self, trouble: str) -> None:
        self.trouble = trouble
        if self.transport is not None:
            self.transport.abort()


class Link:
    """See the head of this file. Times are seconds."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        security: PeerSecurity = PLAIN,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._security = security
        self._correlation_ids = itertools.count(1)
        self._frames: _Frames | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._session: PeerSession | None = None
        self._renew_at_s = math.inf  # when the session has to be renewed, by the loop's clock
        self._refusals = 0  # in a row
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._frames is not None and self._frames.transport is not None

    async def request(
        self,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        correlation_id: int | None = None,
    ) -> Any:
        """Send a request and return the decoded answer.

        Raises LinkError, CorruptData, or ValueError if the fields do not fit the schema. A caller that passes a
        `correlation_id` has one request in flight at a time.
        """
        if correlation_id is None:
            correlation_id = self.next_correlation_id()
        frame = codec.encode_request(api_key, version, correlation_id, self._client_id, fields)
        answer = await self.request_frame(correlation_id, frame, timeout_s=timeout_s)
        if len(answer) > LARGE_ANSWER_BYTES:
            return (await asyncio.to_thread(codec.decode_response, api_key, version, answer))[1]
        return codec.decode_response(api_key, version, answer)[1]

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids) & 0x7FFFFFFF

    @property
    def client_id(self) -> str:
        return self._client_id

    async def request_frame(
        self, correlation_id: int, frame: bytes | bytearray, *, timeout_s: float | None = None
    ) -> memoryview:
        """Send a complete request frame; return the answer's frame without its size field. Raises LinkError."""
        frames = self._frames
        if frames is None or frames.transport is None or self._must_renew():
            frames = await self._ready()
        return await self._request_on(frames, correlation_id, frame, timeout_s)

    async def _request_on(
        self, frames: _Frames, correlation_id: int, frame: bytes | bytearray, timeout_s: float | None
    ) -> memoryview:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[memoryview] = loop.create_future()
        frames.waiting[correlation_id] = future
        assert frames.transport is not None
        frames.transport.write(frame)
        # Not asyncio.timeout, which would take a tenth of the time of a small request.
        late = loop.call_later(timeout_s or self._request_timeout_s, self._out_of_time, future)
        try:
            return await future
        except _OutOfTime:
            # A new connection, so that a late answer cannot arrive.
            trouble = f"{self.host}:{self.port} did not answer in time"
            if self._frames is frames:
                self.disconnect(trouble)
            raise LinkError(trouble) from None
        finally:
            late.cancel()
            frames.waiting.pop(correlation_id, None)

    @staticmethod
    def _out_of_time(future: "asyncio.Future[memoryview]") -> None:
        if not future.done():
            future.set_exception(_OutOfTime())

    async def _ready(self) -> _Frames:
        """Return the connection: a new one if there is none, logged in again if the session ends soon."""
        async with self._connecting:
            self._refuse_if_closed()
            frames = self._frames
            if frames is None or frames.transport is None:
                return await self._connect()
            if self._must_renew():
                await self._log_in(frames)
            return frames

    def _must_renew(self) -> bool:
        return self._renew_at_s != math.inf and asyncio.get_running_loop().time() >= self._renew_at_s

    async def _connect(self) -> _Frames:
        if self._refusals:
            await asyncio.sleep(min(REFUSED_PAUSE_MAX_S, REFUSED_PAUSE_S * 2 ** min(self._refusals - 1, 10)))
            self._refuse_if_closed()
        self._session, self._renew_at_s = None, math.inf
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                frames = await self._security.connect(_Frames, self.host, self.port)
        except (OSError, TimeoutError) as error:
            raise LinkError(f"{self.host}:{self.port} cannot be reached: {str(error) or 'time-out'}") from error
        if frames.transport is None:
            raise LinkError(f"{self.host}:{self.port} closed the connection at once")
        await self._log_in(frames)
        self._frames = frames
        if self._closed:  # meanwhile
            self.disconnect("the link was closed")
        self._refuse_if_closed()
        return frames

    async def _log_in(self, frames: _Frames) -> None:
        """Log in, or renew the session, if the link has to; on any failure the connection is closed.

        Raises LinkError.
        """
        login = self._security.login
        if login is None:
            return
        correlation_ids = itertools.count(FIRST_CORRELATION_ID)

        async def ask(api_key: int, version: int, fields: Mapping[str, Any], /) -> Any:
            correlation_id = next(correlation_ids)
            frame = codec.encode_request(api_key, version, correlation_id, self._client_id, fields)
            answer = await self._request_on(frames, correlation_id, frame, None)
            return codec.decode_response(api_key, version, answer)[1]

        begun_s = asyncio.get_running_loop().time()
        try:
            if self._session:
                session = await login.renew(ask, self.host, self._session.version)
            else:
                session = await login.log_in(ask, self.host)
        except PeerRefusesLogin as error:
            self._drop(frames)
            self._note_refusal(login.mechanism, str(error))
            raise PeerRefusesLogin(f"{self.host}:{self.port} refuses the log-in: {error}") from None
        except BaseException:
            # A connection that is not logged in must not be used.
            self._drop(frames)
            raise
        self._session, self._refusals = session, 0
        self._renew_at_s = math.inf if session.lifetime_s is None else begun_s + session.lifetime_s * RENEWED_AFTER

    def _note_refusal(self, mechanism: str, why: str) -> None:
        """Log the first refusal, and then about one in a minute."""
        if self._refusals % REFUSALS_PER_LINE == 0:
            log.error(
                "this broker cannot log in to another, trying again",
                peer=f"{self.host}:{self.port}",
                mechanism=mechanism,
                why=why,
            )
        self._refusals += 1

    def _drop(self, frames: _Frames) -> None:
        if self._frames is frames:
            self._frames = None
        if frames.transport is not None:
            frames.trouble = "the log-in failed"
            frames.transport.abort()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise LinkError("the link is closed")

    def disconnect(self, why: str) -> None:
        """Close the connection; waiting requests get LinkError. The next request connects again."""
        frames, self._frames = self._frames, None
        if frames is not None and frames.transport is not None:
            frames.trouble = why
            frames.transport.abort()

    def close(self) -> None:
        """Close the link; later requests get LinkError."""
        self._closed = True
        self.disconnect("the link was closed")
