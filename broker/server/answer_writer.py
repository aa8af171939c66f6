"""The answers of one connection on their way to the peer: small ones together, and what is not read is counted."""

import asyncio

from logyard.broker.server.request import Encoded
from logyard.broker.server.unread_answers import Answers, Reader

# Small answers of one turn go out in one write of up to about this size: each write is a system call.
TOGETHER_BYTES = 32 * 1024


class AnswerWriter:
    """Writes answers to a transport, which it has from `open` to `close`; what is written before or after is dropped.

    `reader` stands for the peer in `unread`, which may abort it.
    """

    def __init__(self, reader: Reader, unread: Answers | None) -> None:
        self._reader = reader
        self._unread = unread
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.Transport | None = None  # closed, with something yet to be sent
        self._answers: list[bytes] = []  # not written yet
        self._answers_size = 0
        self._sent = 0
        self.is_paused = False  # the transport takes no more: the peer does not read

    def open(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport

    def write(self, answer: Encoded) -> None:
        """Send an answer: a small one with the others of this turn, at the next `flush`."""
        if answer is None or self._transport is None:
            return
        if isinstance(answer, list):
            self.flush()
            self._count(sum(map(len, answer)))
            self._transport.writelines(answer)
            return
        self._answers.append(answer)
        self._answers_size += len(answer)
        if self._answers_size > TOGETHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand the transport what is still held back."""
        answers = self._answers
        if answers and self._transport is not None:
            self._count(self._answers_size)
            self._answers, self._answers_size = [], 0
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))

    def pause(self) -> None:
        """The transport's buffer is full."""
        self.is_paused = True
        if self._unread is not None:
            self._unread.add(self._reader, self._unsent())

    def resume(self) -> None:
        """The peer has read what the transport held."""
        self.is_paused = False
        if self._unread is not None:
            self._unread.done(self._reader)

    def close(self) -> None:
        """Send what was answered and close; what is answered from now on is dropped."""
        self.flush()
        transport, self._transport = self._transport, None
        if transport is not None:
            self._closing = transport
            transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        transport, self._transport = self._transport or self._closing, None
        if transport is not None:
            transport.abort()

    def lost(self) -> None:
        """The transport is gone, with all that it held."""
        self._transport = self._closing = None
        self._answers.clear()
        if self._unread is not None:
            self._unread.done(self._reader)

    @property
    def is_closing(self) -> bool:
        """Whether it is closed and gone as soon as the peer has read, or never."""
        return self._closing is not None

    @property
    def bytes_read(self) -> int:
        """How many bytes of answers the peer has taken."""
        return self._sent - self._unsent()

    def _unsent(self) -> int:
        transport = self._transport or self._closing
        return 0 if transport is None else transport.get_write_buffer_size()

    def _count(self, size: int) -> None:
        self._sent += size
        if self.is_paused and self._unread is not None:
            self._unread.add(self._reader, size)
