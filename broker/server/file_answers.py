"""Answers of one connection with records that are sent from their files, by the socket itself, as the peer takes them.

Rule 1: from the first piece that the socket does not take at once, all that follows goes behind it, and nothing to the
        transport, until the peer has taken all.
Rule 2: `sendfile` waits for the disk, so only what is in memory is sent. What was found there is believed to be there
        for BELIEVED_S; then it is asked again, and a thread brings back what was dropped meanwhile.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import Pending, SubmitBlocking
from logyard.broker.log.file_part import CUT, FilePart
from logyard.broker.server.request import Buffer, Piece
from logyard.broker.server.unread_answers import UnreadAnswers

BELIEVED_S = 0.05


def has_file(answer: Sequence[Piece]) -> bool:
    """Whether some of the answer is in a file."""
    return any(isinstance(piece, FilePart) for piece in answer)


def loaded(answer: Sequence[Piece]) -> list[Buffer]:
    """Return the pieces with what is in files read from them. Raises StorageError."""
    _refuse_cut(answer)
    return [piece.read() if isinstance(piece, FilePart) else piece for piece in answer]


class FileAnswers:
    """Sends pieces, in order, from `send` until the peer has taken all, or until `stop`.

    `on_sent` is called when the peer has taken what it did not take at once, `on_failure` when some of an answer cannot
    be sent: the peer is gone, a file cannot be read, or the log was cut and other records may be there.
    """

    def __init__(
        self,
        sock: socket.socket,
        run_blocking: SubmitBlocking,
        counter: UnreadAnswers | None,
        on_sent: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._socket, self._run_blocking, self._counter = sock, run_blocking, counter
        self._on_sent, self._on_failure = on_sent, on_failure
        self._pieces: deque[Piece] = deque()
        self._size = 0  # bytes of the pieces
        self._at = 0  # so much of the first piece is sent
        self._watched = -1  # a descriptor of its own: the socket's belongs to the transport
        self._began = 0.0  # when something had to wait: all of it was in memory then
        self._found = 0.0  # when what is left of the first piece was
        self._time: Callable[[], float] = float  # that of the loop, from the first wait on

    @property
    def is_sending(self) -> bool:
        """Whether the peer has not taken all yet."""
        return bool(self._pieces)

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken."""
        return self._size - self._at

    def send(self, answer: Sequence[Piece], size: int) -> None:
        """Send an answer of that size behind what is there: as much as the socket takes now, the rest as the peer takes
        it."""
        begins = not self._pieces
        self._pieces.extend(answer)
        self._size += size
        if not begins:
            return
        try:
            _refuse_cut(answer)
            if not self._send(self._socket.fileno()):
                self._wait()
        except (OSError, StorageError) as error:
            self._fail(error)

    def stop(self) -> None:
        """Send no more; what is left is dropped."""
        if self._pieces:
            self._count(self._pieces[0], self._at)
        self._pieces.clear()
        self._size = self._at = 0
        self._unwatch()

    def _send(self, to: int) -> bool:
        """Send what the socket of this descriptor takes; returns whether that is all."""
        # Hot path: once for each 160 KB or so (socket.send.buffer.bytes).
        pieces = self._pieces
        while pieces:
            piece, at = pieces[0], self._at
            if isinstance(piece, FilePart):
                size = piece.size
                if to == self._watched and self._time() - self._found > BELIEVED_S and not self._may_be_sent(piece):
                    return False
                at += piece.send(to, at)
            else:
                # The head of an answer leaves with the records behind it.
                size = len(piece)
                data = memoryview(piece)[at:] if at else piece
                at += _sent(self._socket, data, socket.MSG_MORE if len(pieces) > 1 else 0)
            if at < size:
                self._at = at
                return False
            pieces.popleft()
            self._count(piece, size)
            self._size -= size
            self._at, self._found = 0, self._began
        return True

    def _count(self, piece: Piece, size: int) -> None:
        if self._counter is not None and isinstance(piece, FilePart):
            self._counter.sent_from_files += size

    def _may_be_sent(self, piece: FilePart) -> bool:
        """Whether what is left of the first piece is in memory; if not, a thread is asked to bring it there."""
        if piece.is_in_memory(self._at):
            self._found = self._time()
            return True
        self._warm(piece)
        return False

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watched < 0:
            self._watched = os.dup(self._socket.fileno())
            self._time = loop.time
            self._began = self._found = self._time()
        loop.add_writer(self._watched, self._writable)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            asyncio.get_running_loop().remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _writable(self) -> None:
        try:
            is_all = self._send(self._watched)
        except Exception as error:  # of any kind: the loop would call again at once
            self._fail(error)
            return
        if is_all:
            self._unwatch()
            self._on_sent()

    def _warm(self, piece: FilePart) -> None:
        asyncio.get_running_loop().remove_writer(self._watched)
        self._run_blocking(partial(piece.warm, self._at)).add_done_callback(self._warmed)

    def _warmed(self, warmed: Pending[None]) -> None:
        if self._watched < 0:
            return  # stopped meanwhile
        try:
            warmed.result()
        except BaseException as error:  # a cancelled one too
            self._fail(error)
            return
        self._found = self._time()
        self._wait()

    def _fail(self, error: BaseException) -> None:
        self.stop()
        self._on_failure(error)


def _refuse_cut(pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        if isinstance(piece, FilePart) and piece.is_cut:
            raise StorageError(CUT)


def _sent(sock: socket.socket, data: Buffer, flags: int) -> int:
    try:
        return sock.send(data, flags) if data else 0
    except BlockingIOError:
        return 0
