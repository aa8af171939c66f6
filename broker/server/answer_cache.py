"""Encoded Metadata answers, kept until the metadata changes: a thousand partitions cost milliseconds to encode."""

import struct

from logyard.broker.server.request import Request

ANSWERS_MAX = 256
_CORRELATION_ID = struct.Struct(">i")


class KeptAnswers:
    """Answers by (version, listener, request body), all of one version of the metadata."""

    def __init__(self) -> None:
        self._of_version = -1
        self._answers: dict[tuple[int, str, bytes], bytes] = {}

    def get(self, request: Request, of_version: int) -> bytes | None:
        """Return the kept answer under this request's correlation id, None where there is none."""
        if of_version != self._of_version:
            self._answers.clear()
            self._of_version = of_version
        kept = self._answers.get((request.api_version, request.session.listener, bytes(request.body)))
        if kept is None:
            return None
        return kept[:4] + _CORRELATION_ID.pack(request.correlation_id) + kept[8:]

    def put(self, request: Request, of_version: int, answer: bytes) -> None:
        """Keep an answer that was made from the metadata of that version."""
        if of_version == self._of_version and len(self._answers) < ANSWERS_MAX:
            self._answers[request.api_version, request.session.listener, bytes(request.body)] = answer
