"""The records that a look finds, as JSON: decoded, masked, and searched in what the reader may see."""

from collections.abc import Callable
from typing import Any

from logyard.admin.ports import DescribingClient
from logyard.operators.contents.decoding import Shown, writable
from logyard.operators.contents.masks import Fields
from logyard.operators.contents.schemas.decoder import BySchema
from logyard.operators.contents.shown import HEADER_CHARS, Search, contents, shown_headers
from logyard.plugins.logyard_ui.records.reading import Answer, Keep, Question, Raw, read
from logyard.plugins.logyard_ui.records.words import in_words


def keeping(topic: str, fields: Fields | None, search: Search, by_schema: BySchema | None = None) -> Keep:
    """Decode a record, and keep it where it is one of those that are looked for."""

    def keep(raw: Raw) -> dict[str, Any] | None:
        key, value = _decoded(topic, raw, fields, by_schema)
        if not search.wants_key(key):
            return None
        headers = shown_headers(raw.headers, fields)
        if not search.wants(key, value, headers):
            return None
        return {
            "partition": raw.partition,
            "offset": raw.offset,
            "timestamp_ms": raw.timestamp_ms if raw.timestamp_ms >= 0 else None,
            "key": None if key is None else key.as_json(),
            "value": None if value is None else value.as_json(),
            "headers": [
                [writable(name[:HEADER_CHARS]), None if shown is None else shown.as_json(HEADER_CHARS)]
                for name, shown in headers
            ],
            "headers_total": len(raw.headers),
            "transactional": raw.transactional,
        }

    return keep


def look(
    client: DescribingClient,
    question: Question,
    leaders: dict[int, int],
    keep: Keep,
    left: Callable[[], bool],
) -> Answer:
    """Read by a client that is closed at the end. Raises ApiError, ClusterUnreachable."""
    try:
        return read(client, question, leaders, keep, left)
    finally:
        client.close()


def answer_json(question: Question, answer: Answer, *, masked: bool) -> dict[str, Any]:
    return {
        "topic": question.topic,
        "records": answer.found,
        "looked_at": answer.looked_at,
        "bytes": answer.bytes,
        "ended": answer.ended,
        "masked": masked,
        "problems": {str(number): text for number, text in sorted(answer.problems.items())},
    }


def _decoded(
    topic: str, raw: Raw, fields: Fields | None, by_schema: BySchema | None
) -> tuple[Shown | None, Shown | None]:
    told = in_words(topic, raw.key, raw.value) if fields is None else None
    return told or contents(raw.key, raw.value, fields, by_schema)
