"""What a handler sees: the request, its connection, the services it may use; and how it registers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from logyard.broker.errors import ErrorCode

if TYPE_CHECKING:
    from logyard.broker.server.services import Services

Buffer = bytes | bytearray | memoryview
# A complete response frame in pieces, or None where the client wants no answer (acks=0).
Encoded = bytes | list[Buffer] | None
Fields = Mapping[str, Any]


def never_muted(ms: int) -> None:
    """Sessions without a connection (tests) have nothing to mute."""


def nobody_waits() -> None:
    """Sessions without a connection have no later request."""


@dataclass(slots=True)
class Session:
    """What is known of the peer of one connection."""

    connection_id: int
    listener: str
    client_host: str
    principal: str = "User:ANONYMOUS"
    client_software: str = "unknown"
    # Read nothing more of this connection for so many milliseconds: set by the connection (KIP-219).
    mute: Callable[[int], None] = never_muted
    # A follower's, as far as what it asks tells: replication goes on where clients have to wait.
    is_broker: bool = False
    # A Produce that is not appended yet, though its handler has returned: nothing may overtake it. `go_on` is to be
    # called once it is: what came behind it need not wait for its answer.
    is_appending: bool = False
    go_on: Callable[[], None] = nobody_waits


@dataclass(slots=True)
class Request:
    """One request as it came: `body` is a writable view of the receive buffer, valid until the handler returns."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    session: Session
    # For quotas of the loop's time only, see throttling.py: when it was begun, what it took until it had to wait.
    begun_s: float = 0.0
    spent_s: float = 0.0


RawHandler = Callable[["Services", Request], Encoded | asyncio.Future[Encoded]]
MessageHandler = Callable[["Services", Request, Any], Fields | Awaitable[Fields]]
ErrorFields = Callable[[Any, int, ErrorCode, str | None], Fields]


def top_level_error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    """The error answer of the many responses that carry one `error_code` at the top."""
    return {"error_code": int(code), "error_message": text}


@dataclass(frozen=True, slots=True)
class Handler:
    """One API: either `raw` (hand-coded hot path) or `message` (decoded, answers with fields)."""

    api_key: int
    name: str
    message: MessageHandler | None = None
    raw: RawHandler | None = None
    error: ErrorFields = field(default=top_level_error)
    # The next request of the connection may be started before this one is answered (answers keep their order).
    pipelined: bool = False


class Dispatch(Protocol):
    """Where a connection takes its frames."""

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]": ...
