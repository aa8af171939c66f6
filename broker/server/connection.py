"""One client connection: frames out of an own receive buffer, answers back in the order of the requests.

Rule 1: the records of a Produce are used where they were received; nothing copies them on the way.
Rule 2: as in Kafka one request of a connection is worked on at a time, except that Produce requests may
        follow each other while earlier ones wait for their acks (each is appended before the next is begun; where
        that takes a thread, the next waits for the thread).
Rule 3: the buffer grows only as bytes arrive, never by what a size field promises.
Rule 4: a connection that a quota has muted sends what it owes and reads on when its time is up (KIP-219).
Rule 5: whoever does not read its answers gets none: nothing waits for it for longer than `connections.max.idle.ms`
        (listener.py), and all of them together hold no more than unread_answers.py allows.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from logyard.broker.errors import CorruptData
from logyard.broker.server.admission import RequestMemory
from logyard.broker.server.answer_writer import AnswerWriter
from logyard.broker.server.request import Dispatch, Encoded, Session, never_muted, nobody_waits
from logyard.broker.server.unread_answers import Answers

BUFFER_BYTES_MIN = 64 * 1024
# What a connection that sent large requests may keep: growing anew for each would copy more than it saves.
BUFFER_BYTES_KEPT = 4 * 1024 * 1024
FREE_BYTES_MIN = 16 * 1024
# A peer that fills the whole buffer gets a larger one up to this: fewer turns and moves for each request.
BUFFER_BYTES_BUSY = 512 * 1024
PIPELINE_MAX = 100
_SIZE = struct.Struct(">i")

log = structlog.get_logger("logyard.connection")


@dataclass(slots=True)
class _Slot:
    """The place of one unfinished answer in the order of answers."""

    api_key: int
    answer: Encoded = None
    done: bool = False


class Connection(asyncio.BufferedProtocol):
    """Reads frames, hands them to `dispatch` and writes what comes back."""

    def __init__(
        self,
        dispatch: Dispatch,
        listener: str,
        connection_id: int,
        frame_bytes_max: int,
        on_open: Callable[["Connection"], bool],
        on_close: Callable[["Connection"], None],
        memory: RequestMemory | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._may_pipeline = dispatch.may_pipeline
        self._frame_bytes_max = frame_bytes_max
        self._on_open = on_open
        self._on_close = on_close
        self.session = Session(connection_id, listener, "")
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._start = 0
        self._end = 0
        self._filled = False  # the last receive left no room: more is waiting
        self._slots: deque[_Slot] = deque()
        self._writer = AnswerWriter(self, answers)
        self._last_pipelined = False
        self._transport: asyncio.Transport | None = None
        self._read_paused = False
        self._draining = False
        self._stopped = False  # draining or muted: no further request is taken
        self._unmute: asyncio.TimerHandle | None = None
        self.session.mute = self.mute
        self.session.go_on = self._process
        self._memory = memory
        self._granted = 0  # bytes of `memory` for the large request that is being received
        self._starved = False  # waiting for `memory`
        self._unread = answers
        self._held = False  # waiting for others to read their answers
        self._frames = 0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]  # uvloop's class is no asyncio.Transport
        self._writer.open(transport)  # type: ignore[arg-type]
        peer = transport.get_extra_info("peername")
        self.session.client_host = peer[0] if peer else ""
        if not self._on_open(self):
            transport.abort()  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled or len(self._buffer) - self._end < FREE_BYTES_MIN:
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._filled = self._end == len(self._buffer)
        self._process()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.session.is_gone = True
        self._writer.lost()
        if self._unread is not None:
            self._unread.forget(self._let_in)
        if self._memory is not None:
            self._memory.forget(self._fed)
        self._slots.clear()
        if self._unmute is not None:
            self._unmute.cancel()
        self.session.mute, self.session.go_on = never_muted, nobody_waits
        self._release_memory()
        self._on_close(self)

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()
        self._process()

    # -- our side

    @property
    def busy(self) -> bool:
        """Whether an answer is still owed, or the peer is being kept waiting."""
        return bool(self._slots) or self.is_kept_waiting

    @property
    def owed(self) -> list[int]:
        """The APIs of the requests that are being worked on, oldest first."""
        return [slot.api_key for slot in self._slots if not slot.done]

    @property
    def signs_of_life(self) -> int:
        """A figure that grows with every request that is taken and every byte that the peer takes.

        Not with the bytes of a request that is never whole: a byte a minute is no life.
        """
        return self._frames + self.bytes_read

    @property
    def bytes_read(self) -> int:
        """How many bytes of answers the peer has taken."""
        return self._writer.bytes_read

    @property
    def peer(self) -> str:
        return self.session.client_host

    @property
    def is_kept_waiting(self) -> bool:
        """Whether we take no request of it now: by a quota, for want of memory, for others who do not read."""
        return self._unmute is not None or self._starved or self._held

    @property
    def is_closing(self) -> bool:
        """Whether it is closed and gone as soon as the peer has read, or never."""
        return self._writer.is_closing

    def drain(self) -> None:
        """Take no further request; close as soon as nothing is owed."""
        self._draining = self._stopped = True
        if not self._slots:
            self.close()

    def mute(self, ms: int) -> None:
        """Take no further request for that long; a longer time that is running stays."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ms / 1000
        if self._unmute is not None:
            if self._unmute.when() >= until:
                return
            self._unmute.cancel()
        self._stopped = True
        self._unmute = loop.call_at(until, self._go_on)

    def _go_on(self) -> None:
        self._unmute = None
        self._stopped = self._draining
        self._process()

    def close(self) -> None:
        """Send what was answered and close; what is answered from now on is dropped."""
        self._transport = None
        self._writer.close()

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        self._transport = None
        self._writer.abort()

    def _make_room(self) -> None:
        """Move what is unread to the front of a buffer that has room for what is still to come."""
        unread = self._end - self._start
        size = len(self._buffer)
        if unread > size // 2 or (self._filled and size < BUFFER_BYTES_BUSY and self._memory is None):
            size *= 2
        self._filled = False
        waiting = memoryview(self._buffer)[self._start : self._end]
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        memoryview(self._buffer)[:unread] = waiting
        self._start, self._end = 0, unread

    def _process(self) -> None:
        """Work through every complete frame that may be started now, and send what was answered at once."""
        if self._transport is None:
            return
        self._take_frames()
        self._writer.flush()

    def _take_frames(self) -> None:
        while self._transport is not None:
            frame_size = self._complete_frame()
            if frame_size < 0:
                break
            if self._stopped or self._writer.is_paused or (self._slots and not self._may_start()):
                self._hold_reading()
                return
            if self._unread is not None and self._unread.is_full and self._must_wait(self._unread):
                self._hold_reading()
                return
            self._frames += 1
            begin = self._start + 4
            self._start = begin + frame_size
            self._handle(memoryview(self._buffer)[begin : self._start])
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > BUFFER_BYTES_KEPT:
                self._buffer = bytearray(BUFFER_BYTES_MIN)
        if self._transport is None or (self._memory is not None and not self._has_memory(self._memory)):
            return
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def _has_memory(self, memory: RequestMemory) -> bool:
        """Whether the frame at the front of the buffer may be read on; a small one needs nothing of its own.

        Called when no complete frame is left, so what was granted belongs to this frame, or to one that is done with.
        """
        unread = self._end - self._start
        size = _SIZE.unpack_from(self._buffer, self._start)[0] if unread >= 4 else 0
        if size <= BUFFER_BYTES_MIN // 2 or size > self._frame_bytes_max:
            self._release_memory()
            if not unread and len(self._buffer) > BUFFER_BYTES_MIN:
                self._buffer = bytearray(BUFFER_BYTES_MIN)
            return True
        if self._granted == size:
            return True
        self._release_memory()
        if memory.take(size):
            self._granted = size
            return True
        if not self._starved and self._transport is not None:
            self._starved = self._read_paused = True
            self._transport.pause_reading()
            memory.wait(self._fed)
        return False

    def _must_wait(self, unread: Answers) -> bool:
        """Whether the next request has to wait until others have read their answers."""
        if self.session.is_broker or self._dispatch.has_small_answer(self._frame_key()):
            return False
        if not self._held:
            self._held = True
            unread.wait(self._let_in)
        return True

    def _let_in(self) -> None:
        self._held = False
        self._process()

    def _frame_key(self) -> int:
        return int.from_bytes(self._buffer[self._start + 4 : self._start + 6], "big")

    def _fed(self) -> None:
        self._starved = False
        self._process()

    def _release_memory(self) -> None:
        if self._memory is not None and self._granted:
            granted, self._granted = self._granted, 0
            self._memory.give_back(granted)

    def _complete_frame(self) -> int:
        """Size of the frame at the front of the buffer if it is all there, else -1."""
        unread = self._end - self._start
        if unread < 4:
            return -1
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if size < 0 or size > self._frame_bytes_max:
            log.warning("frame refused", size=size, limit=self._frame_bytes_max, peer=self.session.client_host)
            self.close()
            return -1
        return int(size) if unread >= 4 + size else -1

    def _may_start(self) -> bool:
        """Whether the next frame may be started although answers are owed."""
        if not self._last_pipelined or self.session.is_appending or len(self._slots) >= PIPELINE_MAX:
            return False
        return self._may_pipeline(self._frame_key())

    def _hold_reading(self) -> None:
        """Stop the peer only when the buffer is nearly full: a pause costs two system calls."""
        if len(self._buffer) - (self._end - self._start) < 2 * FREE_BYTES_MIN and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self._dispatch(self.session, frame)
        except Exception as error:
            # Whoever gave the turn, another connection that has read or a disk, must not suffer for it.
            self._fail(error)
            return
        api_key = frame[0] << 8 | frame[1]
        if isinstance(answer, asyncio.Future):
            slot = _Slot(api_key)
            self._slots.append(slot)
            answer.add_done_callback(lambda future: self._settle(slot, future))
        elif self._slots:
            self._slots.append(_Slot(api_key, answer, done=True))
        else:
            self._writer.write(answer)
            return
        self._last_pipelined = self._may_pipeline(api_key)

    def _settle(self, slot: _Slot, future: "asyncio.Future[Encoded]") -> None:
        problem = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._transport is None:
            return
        if problem is not None:
            self._fail(problem)
            return
        slot.answer, slot.done = future.result(), True
        while self._slots and self._slots[0].done:
            self._writer.write(self._slots.popleft().answer)
        if self._draining and not self._slots:
            self.close()
        elif not self._slots or self._last_pipelined:
            self._process()
        else:
            self._writer.flush()

    def _fail(self, problem: BaseException) -> None:
        """A request that could not be worked on ends its connection."""
        if isinstance(problem, CorruptData):
            log.warning("request refused, connection closed", peer=self.peer, error=str(problem))
        else:
            log.error("request failed, connection closed", peer=self.peer, exc_info=problem)
        self.close()
