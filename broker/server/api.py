"""The types of an API: its handler, and its row in the table of APIs."""

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
    """Return the fields of an error answer, for the many responses that have one `error_code` at the top."""
    return {"error_code": int(code), "error_message": text}


@dataclass(frozen=True, slots=True)
class Handler:
    """Answers an API's requests with either `raw` (bytes in and out, for hot paths) or `message` (decoded fields).

    `error` makes the fields of the answer if `message` raises. `quick` is asked before `message`, and may answer the
    API's usual requests from their bytes; it returns None for others. It looks at the rights itself, and it is not
    asked where requests are charged for their time.
    """

    message: MessageHandler | None = None
    raw: RawHandler | None = None
    quick: RawHandler | None = None
    error: ErrorFields = top_level_error

    def __post_init__(self) -> None:
        if (self.message is None) == (self.raw is None):
            raise ValueError("a handler has either `message` or `raw`")
        if self.quick is not None and self.message is None:
            raise ValueError("what `quick` does not answer needs a `message`")


@dataclass(frozen=True, slots=True)
class Api:
    """A row of the API table: API key, versions that are served (lowest, highest), handler."""

    key: int
    versions: tuple[int, int]
    handler: Handler
    pipelined: bool = False
    """The next request of a connection may start before this one is answered (answers keep their order)."""
    small_answer: bool = False
    """The answer is as small as the request: it is sent even while other clients leave large answers unread, because
    a delay would harm those who wait for it (producers, members of groups, brokers)."""
    between_brokers: bool = False
    """Brokers send it to each other: no quota throttles it (Kafka's exempt requests)."""

    def __post_init__(self) -> None:
        if self.key not in API_NAMES:
            raise ValueError(f"API key {self.key} has no schema")
        if not 0 <= self.versions[0] <= self.versions[1]:
            raise ValueError(f"{self.name} is served in no version: {self.versions}")

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return API_NAMES[self.key]
