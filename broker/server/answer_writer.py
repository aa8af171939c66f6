"""Writes the answers of one connection: small ones in one write, and counts those that the peer has not read."""

import asyncio
import socket
from collections.abc import Callable, Sequence

import structlog

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import SubmitBlocking
from logyard.broker.log.file_part import FilePart
from logyard.broker.server.file_answers import FileAnswers, has_file, loaded
from logyard.broker.server.request import Encoded, Piece
from logyard.broker.server.unread_answers import Reader, UnreadAnswers

# The small answers of one turn of the event loop are written together up to this size: each write is a system call.
TOGETHER_BYTES = 32 * 1024

log = structlog.get_logger("logyard.answers")


class AnswerWriter:
    """Writes answers to a transport from `open` to `close`; answers before and after are dropped.

    `unread` counts what the peer has not read under `reader`, and may abort that.
    """

    def __init__(self, reader: Reader, unread: UnreadAnswers | None) -> None:
        self._reader = reader
        self._unread = unread
        self._transport: asyncio.Transport | None = None
        self._files: FileAnswers | None = None
        self._resumed: Callable[[], None] = self.resume
        self._closing: asyncio.Transport | None = None  # closed, with something yet to be sent
        self._answers: list[bytes] = []  # to be written at the next flush
        self._answers_size = 0
        self._sent = 0
        self.is_paused = False  # the transport takes no more: the peer does not read

    def open(self, transport: asyncio.Transport) -> None:
        """Begin to write to this transport."""
        self._transport = transport

    def send_files_by(self, sock: socket.socket, run_blocking: SubmitBlocking, resumed: Callable[[], None]) -> None:
        """Send what is in files by the transport's own socket, on which nothing but the written bytes is sent. The
        writer pauses while the peer does not take it, and calls `resumed` when it has. `run_blocking` waits for the
        disk."""
        self._resumed = resumed
        self._files = FileAnswers(sock, run_blocking, self._unread, self._files_sent, self._cut_off)

    def write(self, answer: Encoded) -> None:
        """Send an answer; small ones are sent together by the next `flush`."""
        if answer is None or self._transport is None:
            return
        if not isinstance(answer, bytes):
            if self._answers:
                self.flush()
            size = sum(map(len, answer))
            self._sent += size
            files = self._files
            if files is not None and (files.is_sending or has_file(answer)):
                self._send_by(files, self._transport, answer, size)
                return
            if self.is_paused:
                self._add_unread(size)
            self._transport.writelines(answer)  # type: ignore[arg-type]  # nothing of it is in a file
            return
        self._answers.append(answer)
        self._answers_size += len(answer)
        if self._answers_size > TOGETHER_BYTES:
            self.flush()

    def _send_by(self, files: FileAnswers, transport: asyncio.Transport, answer: Sequence[Piece], size: int) -> None:
        """Send an answer of which some may be in files; the writer is paused until the peer has taken all of it."""
        if not files.is_sending and transport.get_write_buffer_size():
            try:
                behind = loaded(answer)
            except StorageError as error:
                self._cut_off(error)
                return
            if self.is_paused:
                self._add_unread(size)
            transport.writelines(behind)
            return
        files.send(answer, size)
        if files.is_sending:
            self.is_paused = True
            # Records in files take no memory; the rest of an answer may.
            self._add_unread(sum(len(piece) for piece in answer if not isinstance(piece, FilePart)))

    def _files_sent(self) -> None:
        """Go on, or close, now that the peer has taken all that was in files and behind it."""
        if self._closing is not None:
            self._closing.close()
        else:
            self._resumed()

    def _cut_off(self, error: BaseException) -> None:
        # Some of the answer may be sent already, and the rest of it is gone, or the peer.
        log.info("connection cut off in an answer", peer=self._reader.peer, error=str(error))
        self.abort()

    def flush(self) -> None:
        """Write the small answers."""
        answers = self._answers
        if answers and self._transport is not None:
            size = self._answers_size
            self._sent += size
            if self.is_paused:
                self._add_unread(size)
            self._answers, self._answers_size = [], 0
            together = answers[0] if len(answers) == 1 else b"".join(answers)
            if self._files is not None and self._files.is_sending:
                self._files.send([together], size)
            else:
                self._transport.write(together)

    def pause(self) -> None:
        """Note that the transport's buffer is full."""
        self.is_paused = True
        self._add_unread(self._unsent())

    def resume(self) -> None:
        """Note that the peer has read what was in the transport's buffer."""
        self.is_paused = False
        if self._unread is not None:
            self._unread.done(self._reader)

    def close(self) -> None:
        """Send the answers that are there, then close; later answers are dropped."""
        self.flush()
        transport, self._transport = self._transport, None
        if transport is not None:
            self._closing = transport
            if self._files is None or not self._files.is_sending:
                transport.close()
            elif transport.is_reading():
                transport.pause_reading()  # what comes now is for nobody

    def abort(self) -> None:
        """Close at once; answers that were not sent are dropped."""
        transport, self._transport = self._transport or self._closing, None
        if self._files is not None:
            self._files.stop()
        if transport is not None:
            transport.abort()

    def lost(self) -> None:
        """Note that the transport is gone, with what was in its buffer."""
        self._transport = self._closing = None
        self._answers.clear()
        if self._files is not None:
            self._files.stop()
        if self._unread is not None:
            self._unread.done(self._reader)

    @property
    def is_closing(self) -> bool:
        """Whether it was closed and waits for the peer to read the rest."""
        return self._closing is not None

    @property
    def bytes_read(self) -> int:
        """How many bytes of answers the peer has read."""
        return self._sent - self._unsent()

    def _unsent(self) -> int:
        transport = self._transport or self._closing
        if transport is None:
            return 0
        in_files = 0 if self._files is None else self._files.unsent
        return in_files + transport.get_write_buffer_size()

    def _add_unread(self, size: int) -> None:
        if self._unread is not None:
            self._unread.add(self._reader, size)
