"""Caches encoded Metadata answers until the metadata changes: encoding a thousand partitions takes milliseconds."""

import struct

from logyard.broker.server.request import Request

ANSWERS_MAX = 256
_CORRELATION_ID = struct.Struct(">i")


class AnswerCache:
    """Answers by (API version, listener, request body), all for one version of the metadata."""

    def __init__(self) -> None:
        self._of_version = -1
        self._answers: dict[tuple[int, str, bytes], bytes] = {}

    def get(self, request: Request, of_version: int) -> bytes | None:
        """Return the cached answer with this request's correlation id, None if there is none."""
        if of_version != self._of_version:
            self._answers.clear()
            self._of_version = of_version
        cached = self._answers.get((request.api_version, request.session.listener, bytes(request.body)))
        if cached is None:
            return None
        return cached[:4] + _CORRELATION_ID.pack(request.correlation_id) + cached[8:]

    def put(self, request: Request, of_version: int, answer: bytes) -> None:
        """Cache an answer that was made from that version of the metadata."""
        if of_version == self._of_version and len(self._answers) < ANSWERS_MAX:
            self._answers[request.api_version, request.session.listener, bytes(request.body)] = answer
