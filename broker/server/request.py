"""What a handler sees of a request: the request itself and the connection it came on."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
    # The connection is lost: nobody takes an answer any more.
    is_gone: bool = False


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


class Dispatch(Protocol):
    """Where a connection takes its frames, and what it has to know of an API before it hands a frame over."""

    def __call__(self, session: Session, frame: memoryview) -> "Encoded | asyncio.Future[Encoded]": ...
    def may_pipeline(self, api_key: int) -> bool: ...
    def has_small_answer(self, api_key: int) -> bool: ...
