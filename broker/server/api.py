"""One API: what answers its requests, and the row of the table that registers it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol.schema import API_NAMES
from logyard.broker.server.request import Encoded, Fields, Request
from logyard.broker.server.services import Services

RawHandler = Callable[[Services, Request], Encoded | asyncio.Future[Encoded]]
MessageHandler = Callable[[Services, Request, Any], Fields | Awaitable[Fields]]
ErrorFields = Callable[[Any, int, ErrorCode, str | None], Fields]


def top_level_error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    """The error answer of the many responses that carry one `error_code` at the top."""
    return {"error_code": int(code), "error_message": text}


@dataclass(frozen=True, slots=True)
class Handler:
    """What answers an API: either `raw` (hand-coded hot path) or `message` (decoded, answers with fields).

    `error` makes the fields of the answer when `message` raises.
    """

    message: MessageHandler | None = None
    raw: RawHandler | None = None
    error: ErrorFields = top_level_error

    def __post_init__(self) -> None:
        if (self.message is None) == (self.raw is None):
            raise ValueError("a handler has either `message` or `raw`")


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the API table: an API key, the versions that are served (lowest, highest), and the handler."""

    key: int
    versions: tuple[int, int]
    handler: Handler
    pipelined: bool = False
    """The next request of a connection may start before this one is answered (answers keep their order)."""
    small_answer: bool = False
    """The answer is as small as the request: it is sent even while other clients leave large answers unread. Whoever
    waits for it (a producer, a group's member, a broker) loses more than time."""
    between_brokers: bool = False
    """Brokers send it to each other: no quota holds it back (Kafka's exempt requests)."""

    def __post_init__(self) -> None:
        if self.key not in API_NAMES:
            raise ValueError(f"API key {self.key} has no schema")
        if not 0 <= self.versions[0] <= self.versions[1]:
            raise ValueError(f"{self.name} is served in no version: {self.versions}")

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return API_NAMES[self.key]
