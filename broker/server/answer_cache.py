"""Caches encoded Metadata answers until the metadata or the ACLs change: encoding a thousand partitions takes
milliseconds.

An answer shows what its principal may see from its host: with an authorizer it is kept for those alone.
"""

import struct
from collections.abc import Awaitable

from logyard.broker.server.request import Request

ANSWERS_MAX = 256
# Of all answers together: a client may ask for the same topics in as many ways as it likes, of all at once too.
BYTES_MAX = 64 << 20
_CORRELATION_ID = struct.Struct(">i")

Versions = tuple[int, int]
"""Of the metadata, and of the rights."""
Viewer = tuple[str, str] | None
"""The principal and host that an answer is for; None: everybody."""
Key = tuple[int, str, bytes, Viewer]


class AnswerCache:
    """Answers by (API version, listener, request body, viewer), all for one version of what they show."""

    def __init__(self) -> None:
        self._of_versions: Versions = (-1, -1)
        self._answers: dict[Key, bytes] = {}
        self._bytes = 0
        self._making: dict[tuple[Versions, Key], Awaitable[bytes]] = {}

    def get(self, request: Request, of_versions: Versions, viewer: Viewer) -> bytes | None:
        """Return the cached answer with this request's correlation id, None if there is none."""
        if of_versions != self._of_versions:
            self._answers.clear()
            self._bytes = 0
            self._of_versions = of_versions
        cached = self._answers.get(_key(request, viewer))
        return None if cached is None else answering(request, cached)

    def making(self, request: Request, of_versions: Versions, viewer: Viewer) -> Awaitable[bytes] | None:
        """Return the answer that is being made for others who ask the same, None if there is none."""
        return self._making.get((of_versions, _key(request, viewer)))

    def begin(self, request: Request, of_versions: Versions, viewer: Viewer, made: Awaitable[bytes]) -> None:
        """An answer is being made: who asks the same meanwhile waits for it."""
        self._making[of_versions, _key(request, viewer)] = made

    def end(self, request: Request, of_versions: Versions, viewer: Viewer) -> None:
        """It is made, or cannot be."""
        del self._making[of_versions, _key(request, viewer)]

    def put(self, request: Request, of_versions: Versions, viewer: Viewer, answer: bytes) -> None:
        """Cache an answer that was made from those versions. The oldest give way, and the last one is always kept."""
        if of_versions != self._of_versions:
            return
        key = _key(request, viewer)
        self._drop(key)
        while self._answers and (len(self._answers) >= ANSWERS_MAX or self._bytes + len(answer) > BYTES_MAX):
            self._drop(next(iter(self._answers)))
        self._answers[key] = answer
        self._bytes += len(answer)

    def _drop(self, key: Key) -> None:
        self._bytes -= len(self._answers.pop(key, b""))


def answering(request: Request, answer: bytes) -> bytes:
    """Return the answer with this request's correlation id."""
    return answer[:4] + _CORRELATION_ID.pack(request.correlation_id) + answer[8:]


def _key(request: Request, viewer: Viewer) -> Key:
    return request.api_version, request.session.listener, bytes(request.body), viewer
