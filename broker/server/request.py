"""The types that handlers get: a request, and the session of its connection."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from logyard.broker.errors import CorruptData
from logyard.broker.log.file_part import FilePart
from logyard.broker.protocol.header import RequestHeader

Buffer = bytes | bytearray | memoryview
Piece = Buffer | FilePart
"""A piece of an answer: bytes, or, where the session sends files, where they are."""
Encoded = bytes | Sequence[Piece] | None
"""A complete response frame, whole or in pieces; None if the client wants no answer (acks=0)."""
Answer = Encoded | asyncio.Future[Encoded]
"""An answer that is there, or that comes later."""
Fields = Mapping[str, Any]


def never_muted(ms: int) -> None:
    """Do nothing: a session without a connection (in tests) cannot be muted."""


def nobody_waits() -> None:
    """Do nothing: a session without a connection has no next request."""


class Unanswerable(CorruptData):
    """A request that is not answered: its connection is closed, as by Kafka, which fails to parse it."""


@dataclass(slots=True)
class Session:
    """What the broker knows of the peer of one connection.

    `client_host` is written as Java writes addresses; `principal` is `User:name`; `protocol` one of Kafka's security
    protocols.
    """

    connection_id: int
    listener: str
    client_host: str
    principal: str = "User:ANONYMOUS"
    protocol: str = "PLAINTEXT"
    client_software: str = "unknown"
    # Starts no further request of this connection for so many milliseconds (KIP-219); set by the connection.
    mute: Callable[[int], None] = never_muted
    # The peer has fetched as a follower: it does not have to wait when clients have to.
    is_broker: bool = False
    # The handler of a Produce has returned, but its records are not appended yet: no request may be started. Once they
    # are, the handler clears this and calls `go_on`: the next request does not have to wait for the answer.
    is_appending: bool = False
    # Done when the last Produce that is being verified, or follows such a one, is appended: small ones may be started
    # meanwhile, to be verified too, and are appended after it.
    last_append: asyncio.Future[None] | None = None
    go_on: Callable[[], None] = nobody_waits
    # Pieces of its answers may be in files: the connection sends them from there.
    sends_files: bool = False
    # The connection is lost: nobody will read an answer.
    is_gone: bool = False
    # The peer has logged in with a delegation token.
    is_token_login: bool = False
    # Answers the SaslHandshake of a peer that has logged in; None: it may not log in again now (logins/login.py).
    renew: Callable[[RequestHeader], Answer] | None = None
    # Called once when the connection is lost.
    gone: Callable[[], None] = nobody_waits
    # What the authorizer has decided, by operation, resource type and name (None: any); for which ACLs and principal.
    decisions: dict[tuple[int, int, str | None], bool] = field(default_factory=dict)
    decided_version: int = -1
    decided_principal: str = ""


@dataclass(slots=True)
class Request:
    """One request; `body` is a writable view of the receive buffer, valid until the handler returns."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    session: Session
    # For quotas of request time only (throttling.py): when it was begun, and its seconds on the event loop.
    begun_s: float = 0.0
    spent_s: float = 0.0


class Dispatch(Protocol):
    """Answers a connection's frames, and tells what the connection has to know of an API before that."""

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]": ...
    def may_pipeline(self, api_key: int) -> bool: ...
    def has_small_answer(self, api_key: int) -> bool: ...
