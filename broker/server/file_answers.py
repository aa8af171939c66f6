"""Answers with records that are sent from their files, by the socket itself: only where nothing else is to be sent."""

import socket
from collections.abc import Sequence

from logyard.broker.log.file_part import FilePart
from logyard.broker.server.request import Buffer

Piece = Buffer | FilePart


def has_file(answer: Sequence[Piece]) -> bool:
    """Whether some of the answer is in a file."""
    return any(isinstance(piece, FilePart) for piece in answer)


def is_cut(answer: Sequence[Piece]) -> bool:
    """Whether records of it are in a log that was cut meanwhile."""
    return any(isinstance(piece, FilePart) and piece.is_cut for piece in answer)


def loaded(answer: Sequence[Piece]) -> list[Buffer]:
    """Return the pieces with what is in files read from them."""
    return [piece.read() if isinstance(piece, FilePart) else piece for piece in answer]


def send(sock: socket.socket, answer: Sequence[Piece]) -> list[Buffer]:
    """Send the pieces, as far as the socket takes them now; returns the rest, read from its file.

    Raises OSError if the peer is gone, StorageError if a file cannot be read.
    """
    # What comes before and behind the records leaves with them.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    rest: list[Buffer] = []
    for number, piece in enumerate(answer):
        sent = piece.send(sock) if isinstance(piece, FilePart) else _send(sock, piece)
        if sent < len(piece):
            left = piece.read(sent) if isinstance(piece, FilePart) else memoryview(piece)[sent:]
            rest = [left, *loaded(answer[number + 1 :])]
            break
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    return rest


def _send(sock: socket.socket, data: Buffer) -> int:
    try:
        return sock.send(data) if data else 0
    except BlockingIOError:
        return 0
