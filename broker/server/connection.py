"""One client connection: cuts requests out of its receive buffer, and sends the answers in the order of the requests.

Rule 1: the records of a Produce are appended from the receive buffer, without a copy.
Rule 2: as in Kafka, a connection has one request in progress. Only Produce requests may be started while earlier ones
        wait for their acks. Each is appended before the next is started, even if a thread has to validate it first.
        Only while its transaction's coordinator is asked, small ones are started: their partitions are asked about
        together, and their handler appends them in their order.
Rule 3: the buffer grows as bytes arrive, not by what a size field announces.
Rule 4: a connection that is muted by a quota still sends answers; it receives again when the time is over (KIP-219).
Rule 5: a peer that does not read its answers is disconnected after `connections.max.idle.ms` (listener.py), and
        unread_answers.py limits what all such peers together may take.
Rule 6: many requests that came together take no more than AT_ONCE_S, as a rule; then others have a turn.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from logyard.broker.server import addresses, receive_buffers, refused_frames
from logyard.broker.server.admission import RequestMemory
from logyard.broker.server.answer_writer import AnswerWriter
from logyard.broker.server.request import Dispatch, Encoded, Session, never_muted, nobody_waits
from logyard.broker.server.unread_answers import AT_ONCE_S, UnreadAnswers

BUFFER_BYTES_MIN = receive_buffers.BUFFER_BYTES
# A larger buffer is released when it is empty; up to this size it is kept for the next large request.
BUFFER_BYTES_KEPT = 4 * 1024 * 1024
FREE_BYTES_MIN = 16 * 1024
# If a peer fills the whole buffer, it grows up to this size: a larger buffer takes fewer reads and copies.
BUFFER_BYTES_BUSY = 512 * 1024
PIPELINE_MAX = 100
# Larger requests are not started before an earlier one's append: those that wait for it are copied.
AHEAD_BYTES_MAX = 16 * 1024
# Half a megabyte of requests of 14 bytes took a second. One of a KB may take 2 ms: each eighth looks at the time, but
# not one that comes alone, which is at the buffer's begin.
UNTIMED = 8
_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class _Slot:
    """An answer's place in the order of answers."""

    api_key: int = -1  # -1: a token of SASL that is shorter than a key
    answer: Encoded = None
    done: bool = False


class Connection(asyncio.BufferedProtocol):
    """Receives frames, passes them to `dispatch`, and writes the answers."""

    def __init__(
        self,
        dispatch: Dispatch,
        listener: str,
        connection_id: int,
        frame_bytes_max: int,
        on_open: Callable[["Connection"], bool],
        on_close: Callable[["Connection"], None],
        memory: RequestMemory | None = None,
        answers: UnreadAnswers | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._may_pipeline = dispatch.may_pipeline
        self._frame_bytes_max = frame_bytes_max
        self.clock: Callable[[], float] = perf_counter
        self._on_open, self._on_close = on_open, on_close
        self.session = Session(connection_id, listener, "")
        self.address = ""
        self._buffer = receive_buffers.NONE  # until the peer sends something: it may be in a handshake, or silent
        self._start = self._end = 0
        self._filled = False  # the last receive filled the buffer: there is probably more
        self._slots: deque[_Slot] = deque()
        self.writer = AnswerWriter(self, answers)
        self._last_pipelined = False
        self._transport: asyncio.Transport | None = None
        self._read_paused = self._draining = False
        self._stopped = False  # draining, muted, or others have a turn: no further request is taken
        self._unmute: asyncio.TimerHandle | None = None
        self.session.mute = self.mute
        self.session.go_on = self._process
        self._memory = memory
        self._granted = 0  # bytes of `memory` for the large request that is being received
        self._waits_for_memory = False
        self._unread = answers
        self._waits_for_readers = False  # other connections have too many unread answers
        self._frames = 0

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]  # uvloop's class is no asyncio.Transport
        self.writer.open(transport)  # type: ignore[arg-type]
        peer = transport.get_extra_info("peername")
        self.address = addresses.plain(peer[0]) if peer else ""
        self.session.client_host = addresses.as_java(self.address)
        if not self._on_open(self):
            transport.abort()  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._buffer and not self._filled:
            self._buffer = receive_buffers.take()
        elif self._filled or len(self._buffer) - self._end < FREE_BYTES_MIN:
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._end = self._end + nbytes
        self._filled = end == len(self._buffer)
        if self._transport is not None:
            self._take_frames()
            self.writer.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.session.is_gone = True
        self.writer.lost()
        if self._unread is not None:
            self._unread.forget(self._let_in)
        if self._memory is not None:
            self._memory.forget(self._fed)
        self._slots.clear()
        if self._unmute is not None:
            self._unmute.cancel()
        self.session.gone()
        self.session.mute, self.session.go_on, self.session.gone = never_muted, nobody_waits, nobody_waits
        self._release_memory()
        self._on_close(self)

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()
        self._process()

    # -- called by the broker

    def use(self, dispatch: Dispatch, frame_bytes_max: int) -> None:
        """Hand the next frames to `dispatch`; larger ones than `frame_bytes_max` are refused."""
        self._dispatch = dispatch
        self._may_pipeline = dispatch.may_pipeline
        self._frame_bytes_max = frame_bytes_max

    @property
    def busy(self) -> bool:
        """Whether a request is in progress, or the peer has to wait."""
        return bool(self._slots) or self.is_kept_waiting

    @property
    def owed(self) -> list[int]:
        """The API keys of the requests in progress, oldest first."""
        return [slot.api_key for slot in self._slots if not slot.done]

    @property
    def signs_of_life(self) -> int:
        """A counter that grows with each request received and each byte of answers read.

        The bytes of an incomplete request do not count: a peer that sends a byte a minute is idle.
        """
        return self._frames + self.bytes_read

    @property
    def bytes_read(self) -> int:
        """How many bytes of answers the peer has read."""
        return self.writer.bytes_read

    @property
    def peer(self) -> str:
        return self.session.client_host

    @property
    def is_kept_waiting(self) -> bool:
        """Whether its next request has to wait: for a quota, for memory, or until others read their answers."""
        return self._unmute is not None or self._waits_for_memory or self._waits_for_readers

    @property
    def is_closing(self) -> bool:
        """Whether it was closed and waits for the peer to read the rest."""
        return self.writer.is_closing

    def drain(self) -> None:
        """Start no further request; close when those in progress are answered."""
        self._draining = self._stopped = True
        if not self._slots:
            self.close()

    def mute(self, ms: int) -> None:
        """Start no further request for `ms` milliseconds; a mute that ends later stays."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ms / 1000
        if self._unmute is not None:
            if self._unmute.when() >= until:
                return
            self._unmute.cancel()
        self._stopped = True
        self._unmute = loop.call_at(until, self._unmuted)

    def _unmuted(self) -> None:
        self._unmute = None
        self._go_on()

    def _go_on(self) -> None:
        self._stopped = self._draining or self._unmute is not None
        self._process()

    def close(self) -> None:
        """Send the answers that are there, then close; later answers are dropped."""
        self._transport = None
        self.writer.close()

    def abort(self) -> None:
        """Close at once; answers that were not sent are dropped."""
        self._transport = None
        self.writer.abort()

    def _make_room(self) -> None:
        """Move the unread bytes to the front of the buffer, or of a larger one."""
        unread = self._end - self._start
        size = len(self._buffer) or BUFFER_BYTES_MIN
        if unread > size // 2 or (self._filled and size < BUFFER_BYTES_BUSY and self._memory is None):
            size *= 2
        self._filled = False
        waiting = memoryview(self._buffer)[self._start : self._end]
        if size > len(self._buffer):
            self._buffer = receive_buffers.take() if size == BUFFER_BYTES_MIN else bytearray(size)
        memoryview(self._buffer)[:unread] = waiting
        self._start, self._end = 0, unread

    def _process(self) -> None:
        """Start all complete requests that may be started now, and send the answers that are ready."""
        if self._transport is None:
            return
        # Mostly an answer is ready, and nothing has come since.
        if self._buffer or self._read_paused or self._memory is not None:
            self._take_frames()
        self.writer.flush()

    def _take_frames(self) -> None:
        begun_s = 0.0
        while self._transport is not None:
            begin = self._start + 4
            if begin > self._end:
                break
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            if not 0 <= size <= self._frame_bytes_max:
                refused_frames.tell_of_size(size, self._frame_bytes_max, self.peer)
                self.close()
                return
            end = begin + size
            if end > self._end:
                break
            if self._stopped or self.writer.is_paused or (self._slots and not self._may_start(size)):
                self._hold_reading()
                return
            if self._unread is not None and self._unread.is_full and self._must_wait(self._unread):
                self._hold_reading()
                return
            if begin > 4 and not self._frames % UNTIMED:
                begun_s = begun_s or self.clock()
                if self.clock() - begun_s >= AT_ONCE_S:
                    self._rest()
                    return
            self._frames += 1
            self._start = end
            self._handle(memoryview(self._buffer)[begin:end])
        if self._start == self._end:
            self._let_go()
        if self._transport is None or (self._memory is not None and not self._has_memory(self._memory)):
            return
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def _rest(self) -> None:
        """Let others have a turn."""
        self._stopped = True
        self._hold_reading()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _let_go(self) -> None:
        """Nothing is unread: a small buffer is anybody's, a large one is kept for the next large request."""
        self._start = self._end = 0
        size = len(self._buffer)
        if size == BUFFER_BYTES_MIN:
            receive_buffers.give_back(self._buffer)
            self._buffer = receive_buffers.NONE
        elif size > BUFFER_BYTES_KEPT:
            self._buffer = receive_buffers.NONE

    def _has_memory(self, memory: RequestMemory) -> bool:
        """Take memory for the incomplete frame at the front of the buffer; return whether to receive on.

        Small frames need none. The memory taken before belongs to this frame, or to one that is done: no complete
        frame is left.
        """
        unread = self._end - self._start
        size = _SIZE.unpack_from(self._buffer, self._start)[0] if unread >= 4 else 0
        if size <= BUFFER_BYTES_MIN // 2 or size > self._frame_bytes_max:
            self._release_memory()
            if not unread:
                self._buffer = receive_buffers.NONE
            return True
        if self._granted == size:
            return True
        self._release_memory()
        if memory.take(size):
            self._granted = size
            return True
        if not self._waits_for_memory and self._transport is not None:
            self._waits_for_memory = self._read_paused = True
            self._transport.pause_reading()
            memory.wait(self._fed)
        return False

    def _must_wait(self, unread: UnreadAnswers) -> bool:
        """Whether the next request has to wait until others have read their answers."""
        if self.session.is_broker or self._dispatch.has_small_answer(self._frame_key()):
            return False
        if not self._waits_for_readers:
            self._waits_for_readers = True
            unread.wait(self._let_in)
        return True

    def _let_in(self) -> None:
        self._waits_for_readers = False
        self._process()

    def _frame_key(self) -> int:
        return int.from_bytes(self._buffer[self._start + 4 : self._start + 6], "big")

    def _fed(self) -> None:
        self._waits_for_memory = False
        self._process()

    def _release_memory(self) -> None:
        if self._memory is not None and self._granted:
            granted, self._granted = self._granted, 0
            self._memory.give_back(granted)

    def _may_start(self, frame_size: int) -> bool:
        """Whether the next request may be started although others are in progress."""
        session = self.session
        if not self._last_pipelined or session.is_appending or len(self._slots) >= PIPELINE_MAX:
            return False
        if session.last_append is not None and frame_size > AHEAD_BYTES_MAX:
            return False
        return self._may_pipeline(self._frame_key())

    def _hold_reading(self) -> None:
        """Stop receiving if the buffer is nearly full: stopping sooner would cost two system calls more often."""
        if len(self._buffer) - (self._end - self._start) < 2 * FREE_BYTES_MIN and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self._dispatch(self.session, frame)
        except Exception as error:
            # The caller may serve another connection, or a disk: it must not fail.
            self._fail(error)
            return
        if isinstance(answer, asyncio.Future):
            slot = _Slot()
            answer.add_done_callback(lambda future: self._settle(slot, future))
        elif self._slots:
            slot = _Slot(answer=answer, done=True)
        else:
            self.writer.write(answer)
            return
        if len(frame) > 1:
            slot.api_key = frame[0] << 8 | frame[1]
        self._slots.append(slot)
        self._last_pipelined = self._may_pipeline(slot.api_key)

    def _settle(self, slot: _Slot, future: "asyncio.Future[Encoded]") -> None:
        problem = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._transport is None:
            return
        if problem is not None:
            self._fail(problem)
            return
        slot.answer, slot.done = future.result(), True
        while self._slots and self._slots[0].done:
            self.writer.write(self._slots.popleft().answer)
        if self._draining and not self._slots:
            self.close()
        elif not self._slots or self._last_pipelined:
            self._process()
        else:
            self.writer.flush()

    def _fail(self, problem: BaseException) -> None:
        """Close the connection: its request failed."""
        refused_frames.tell_of_failure(problem, self.peer)
        self.close()
