"""TLS between a socket's transport and a protocol: the protocol of the one, and the transport of the other.

Rule 1: the protocol is connected before the handshake, so that the connection is counted; it receives nothing, and
        what it writes waits, until the handshake is done. The steps of the handshake are computed in threads.
Rule 2: data is encrypted and decrypted on the event loop, at most PIECE_BYTES or one receive at a time. Small pieces
        are encrypted together. What the socket does not take yet stays unencrypted, and the protocol is paused.
Rule 3: a connection has no receive buffer of its own: all share that of handshakes.py.
Rule 4: what the peer does wrong ends the connection with an alert, and one line in the log.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import structlog

from logyard.broker.tls.handshakes import Handshakes

Buffer = bytes | bytearray | memoryview
# What is encrypted at a time, and what the socket's transport may hold of it.
PIECE_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 256 * 1024
UNREAD_BYTES_MAX = 4 * UNSENT_BYTES_MAX  # with answers to key updates, which a peer asks for without reading them
# A piece of this size is encrypted without a copy.
LARGE_BYTES = 16 * 1024
# The reason for `on_failed` if the peer has sent nothing, as a port scan does.
LEFT_BEFORE = "the peer closed the connection before the handshake"

Identity = TypeVar("Identity")  # what the handshake tells of the peer

log = structlog.get_logger("logyard.tls")


class _State(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()  # closed by this side; what was written is still being sent
    CLOSED = auto()


class TlsTransport(asyncio.BufferedProtocol, Generic[Identity]):
    """See the head of this file.

    :param protocol: what the connection is for; it sees this object as its transport.
    :param new_ssl: makes the TLS state over two BIOs (incoming, outgoing); called in a thread.
    :param identify: reads what is to be known of the peer when the handshake is done, in a thread; it may raise.
    :param on_open: called with that on the event loop, before the protocol receives anything.
    :param on_failed: called with one line if the handshake fails, before `connection_lost`.
    """

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        handshakes: Handshakes,
        new_ssl: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        identify: Callable[[ssl.SSLObject], Identity],
        on_open: Callable[[Identity], None],
        on_failed: Callable[[str], None],
        *,
        speaks_first: bool = False,
    ) -> None:
        self._protocol = protocol
        self._handshakes = handshakes
        self._new_ssl, self._identify = new_ssl, identify
        self._on_open, self._on_failed = on_open, on_failed
        self._speaks_first = speaks_first
        self._state = _State.HANDSHAKE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl: Any = None
        self._raw: Any = None  # uvloop's class is no asyncio.Transport
        self._late: asyncio.TimerHandle | None = None
        self._is_computing = self._is_decrypting = False
        self._reads = True  # the socket is being read
        self._protocol_reads = True  # the protocol wants data
        self._queue: deque[memoryview] = deque()  # written, and not yet encrypted
        self._queued = 0
        self._raw_is_full = self._protocol_is_paused = False

    # -- called by the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = transport
        self._raw.set_write_buffer_limits(UNSENT_BYTES_MAX)
        self._late = asyncio.get_running_loop().call_later(self._handshakes.time_s, self._out_of_time)
        self._protocol.connection_made(self)  # type: ignore[arg-type]  # it has the methods that are used
        if self._speaks_first and self._state is _State.HANDSHAKE and not self._raw.is_closing():
            self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is _State.OPEN:
            self._incoming.write(self._handshakes.scratch[:nbytes])
            self._decrypt()
        elif self._state is _State.HANDSHAKE:
            self._incoming.write(self._handshakes.scratch[:nbytes])
            self._advance()

    def eof_received(self) -> bool:
        if self._state is _State.HANDSHAKE:
            self._fail(self._left())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        was_open = self._state is not _State.HANDSHAKE
        self._end_of_handshake()
        self._state = _State.CLOSED
        self._queue.clear()
        self._queued = 0
        if not was_open:
            self._on_failed(str(exc) if exc else self._left())
        self._protocol.connection_lost(exc)
        self._ssl = None

    def pause_writing(self) -> None:
        self._raw_is_full = True

    def resume_writing(self) -> None:
        self._raw_is_full = False
        self._pump()

    # -- the handshake

    def _advance(self) -> None:
        """Compute the next step in a thread; nothing is read meanwhile."""
        self._handshakes.goes_on(self)
        self._is_computing = True
        self._set_reading(False)
        self._handshakes.compute(self._step).add_done_callback(self._stepped)

    def _step(self) -> tuple[Identity] | None:
        """Return what is known of the peer if the handshake is done, None if it waits for the peer."""
        state = self._ssl
        if state is None:
            state = self._ssl = self._new_ssl(self._incoming, self._outgoing)
        try:
            state.do_handshake()
        except ssl.SSLWantReadError:
            return None
        return (self._identify(state),)

    def _stepped(self, done: "asyncio.Future[tuple[Identity] | None]") -> None:
        self._is_computing = False
        error = None if done.cancelled() else done.exception()
        if self._state is not _State.HANDSHAKE or done.cancelled():
            return  # the connection is gone
        self._send()
        if error is not None:
            self._fail(_described(error))
            return
        result = done.result()
        if result is None:
            self._set_reading(True)
            self._handshakes.waits(self)
            return
        self._end_of_handshake()
        self._handshakes.done += 1
        self._state = _State.OPEN
        self._on_open(result[0])
        self._set_reading(self._protocol_reads)
        self._decrypt()
        self._pump()

    def _out_of_time(self) -> None:
        self.cut_off("the handshake took too long")

    def cut_off(self, why: str) -> None:
        """End an unfinished handshake."""
        if self._state is _State.HANDSHAKE:
            self._fail(why)
            self._raw.abort()

    def _left(self) -> str:
        return LEFT_BEFORE if self._ssl is None else "the peer closed the connection during the handshake"

    def _end_of_handshake(self) -> None:
        self._handshakes.goes_on(self)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _fail(self, why: str) -> None:
        """Close because of what the peer has done; an alert that was written is sent."""
        in_handshake = self._state is _State.HANDSHAKE
        self._end_of_handshake()
        self._state = _State.CLOSED
        self._set_reading(False)
        if in_handshake:
            self._on_failed(why)
        else:
            peer = self._raw.get_extra_info("peername")
            log.warning("connection closed", peer=peer[0] if peer else "", error=why)
        self._raw.close()

    # -- receiving

    def _set_reading(self, reads: bool) -> None:
        if reads is not self._reads and not self._raw.is_closing():
            self._reads = reads
            if reads:
                self._raw.resume_reading()
            else:
                self._raw.pause_reading()

    def _decrypt(self) -> None:
        """Give the protocol what can be decrypted, as long as it wants it."""
        if self._is_decrypting:
            return
        self._is_decrypting = True
        try:
            while self._state is _State.OPEN and self._protocol_reads:
                if not self._incoming.pending and not self._ssl.pending():
                    break
                buffer = self._protocol.get_buffer(-1)
                filled, is_over = self._fill(memoryview(buffer))
                if filled:
                    self._protocol.buffer_updated(filled)
                if is_over:
                    break
        finally:
            self._is_decrypting = False
        if self._outgoing.pending and self._state is _State.OPEN:
            self._send()  # the answer to a key update
            if self._raw.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self._fail("the peer asks for new keys, and does not read the answers")
                self._raw.abort()

    def _fill(self, buffer: memoryview) -> tuple[int, bool]:
        """Decrypt into the buffer; return how many bytes, and whether there is nothing more for now."""
        filled, size, read = 0, len(buffer), self._ssl.read
        try:
            while filled < size:
                count = read(size - filled, buffer[filled:] if filled else buffer)
                if not count:
                    # The peer has closed; this side does after the protocol has got what came before.
                    asyncio.get_running_loop().call_soon(self.close)
                    return filled, True
                filled += count
                if not self._incoming.pending and not self._ssl.pending():
                    return filled, True
        except ssl.SSLWantReadError:
            return filled, True
        except ssl.SSLError as error:
            self._send()
            self._fail(_described(error))
            return 0, True
        return filled, False

    # -- called by the protocol

    def pause_reading(self) -> None:
        self._protocol_reads = False
        if not self._is_computing:
            self._set_reading(False)

    def resume_reading(self) -> None:
        self._protocol_reads = True
        if self._state is not _State.OPEN:
            return
        self._set_reading(True)
        if self._incoming.pending or self._ssl.pending():
            # Not at once: the protocol may call this while it handles data.
            asyncio.get_running_loop().call_soon(self._decrypt)

    def write(self, data: Buffer) -> None:
        size = len(data)
        if self._state is _State.OPEN and not self._queue and not self._raw_is_full and size <= PIECE_BYTES:
            self._encrypt(data, size)
            self._send()
        elif self._state in (_State.OPEN, _State.HANDSHAKE) and size:
            self._enqueue(data)
            self._pump()
        self._tell_if_full()

    def writelines(self, pieces: list[Buffer]) -> None:
        is_free = self._state is _State.OPEN and not self._queue and not self._raw_is_full
        if is_free and sum(map(len, pieces)) <= PIECE_BYTES:
            self.write(b"".join(pieces))
            return
        if self._state in (_State.OPEN, _State.HANDSHAKE):
            for piece in pieces:
                if len(piece):
                    self._enqueue(piece)
            self._pump()
        self._tell_if_full()

    def get_write_buffer_size(self) -> int:
        """How many bytes were written that the peer has not got."""
        return self._queued + (0 if self._raw is None else int(self._raw.get_write_buffer_size()))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._state in (_State.CLOSING, _State.CLOSED) or bool(self._raw.is_closing())

    def close(self) -> None:
        """Send what was written and a close_notify, then close."""
        if self._state is _State.HANDSHAKE:
            self._fail("this side closes the connection")
        elif self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._set_reading(False)
            self._pump()

    def abort(self) -> None:
        """Close at once."""
        if self._state is _State.HANDSHAKE:
            self._fail("this side closes the connection")
        if self._raw is not None:
            self._raw.abort()

    # -- sending

    def _enqueue(self, data: Buffer) -> None:
        piece = data if isinstance(data, memoryview) else memoryview(data)
        self._queue.append(piece)
        self._queued += len(piece)

    def _pump(self) -> None:
        """Encrypt what waits, until the socket's transport is full; then close if that was asked for."""
        if self._state not in (_State.OPEN, _State.CLOSING):
            return
        while self._queue and not self._raw_is_full:
            data = self._next_piece()
            self._queued -= len(data)
            self._encrypt(data, len(data))
            self._send()
        if self._queue:
            return
        if self._state is _State.CLOSING:
            self._finish()
        elif self._protocol_is_paused and not self._raw_is_full:
            self._protocol_is_paused = False
            self._protocol.resume_writing()

    def _next_piece(self) -> Buffer:
        """Take up to PIECE_BYTES off the queue: a part of a large piece, or small ones together."""
        first = self._queue.popleft()
        if len(first) > PIECE_BYTES:
            self._queue.appendleft(first[PIECE_BYTES:])
            return first[:PIECE_BYTES]
        if len(first) >= LARGE_BYTES or not self._queue:
            return first
        pieces, size = [first], len(first)
        while self._queue and size + len(self._queue[0]) <= PIECE_BYTES:
            pieces.append(self._queue.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    def _encrypt(self, data: Buffer, size: int) -> None:
        """Encrypt all of it; OpenSSL takes a record at a time."""
        done = self._ssl.write(data)
        if done < size:
            rest = memoryview(data)
            while done < size:
                done += self._ssl.write(rest[done:])

    def _send(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _tell_if_full(self) -> None:
        if (self._queue or self._raw_is_full) and not self._protocol_is_paused and self._state is _State.OPEN:
            self._protocol_is_paused = True
            self._protocol.pause_writing()

    def _finish(self) -> None:
        """Send close_notify and close; the peer's own is not waited for."""
        self._state = _State.CLOSED
        with suppress(ssl.SSLError):  # it wants the peer's close_notify
            self._ssl.unwrap()
        self._send()
        self._raw.close()


def _described(error: BaseException) -> str:
    """Say what went wrong in words that help, without a line number of OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return _HINTS.get(reason) or (reason or str(error)).lower().replace("_", " ")
    return str(error)


_HINTS = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS: its security protocol may be another one",
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "the peer's versions of TLS are not enabled",
    "NO_SHARED_CIPHER": "no cipher suite in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has no certificate, and one is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not trust this side's certificate",
}
