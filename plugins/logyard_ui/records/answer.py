"""The records that a look finds, as JSON: decoded, masked, and searched in what the reader may see."""

from collections.abc import Callable
from typing import Any

from logyard.admin.ports import DescribingClient
from logyard.plugins.logyard_ui.records.decoding import HIDDEN, Shown, decode, may_have_fields, writable
from logyard.plugins.logyard_ui.records.masks import Fields
from logyard.plugins.logyard_ui.records.reading import Answer, Keep, Question, Raw, read
from logyard.plugins.logyard_ui.records.words import in_words

HEADERS_MAX = 50


def keeping(topic: str, fields: Fields | None, key: str, text: str) -> Keep:
    """Decode a record, and keep it where its key contains `key`, and key, value or a header `text`.

    The search sees what is shown, so that nobody can guess what is hidden by searching for it.
    """
    wanted_key, wanted = key.casefold(), text.casefold()

    def keep(raw: Raw) -> dict[str, Any] | None:
        shown_key, shown_value = _decoded(topic, raw, fields)
        if wanted_key and wanted_key not in _text(shown_key):
            return None
        headers = _headers(raw, fields)
        if wanted and not any(wanted in part for part in (_text(shown_key), _text(shown_value), *_texts(headers))):
            return None
        return {
            "partition": raw.partition,
            "offset": raw.offset,
            "timestamp_ms": raw.timestamp_ms if raw.timestamp_ms >= 0 else None,
            "key": None if shown_key is None else shown_key.as_json(),
            "value": None if shown_value is None else shown_value.as_json(),
            "headers": [[writable(name), None if shown is None else shown.as_json()] for name, shown in headers],
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


def _decoded(topic: str, raw: Raw, fields: Fields | None) -> tuple[Shown | None, Shown | None]:
    mask = None if fields is None else fields.of_structure
    told = in_words(topic, raw.key, raw.value) if fields is None else None
    return told or (decode(raw.key, mask), decode(raw.value, mask))


def _headers(raw: Raw, fields: Fields | None) -> list[tuple[str, Shown | None]]:
    return [(str(name), _header(str(name), value, fields)) for name, value in raw.headers[:HEADERS_MAX]]


def _header(name: str, value: bytes | None, fields: Fields | None) -> Shown | None:
    if fields is None or value is None:
        return decode(value)
    if fields.has(name):
        return Shown(HIDDEN, "", len(value))
    # A plain text has no fields; what may have some is shown as far as they can be told.
    return decode(value, fields.of_structure if may_have_fields(value) else None)


def _text(shown: Shown | None) -> str:
    return "" if shown is None else shown.text.casefold()


def _texts(headers: list[tuple[str, Shown | None]]) -> list[str]:
    return [f"{name.casefold()} {_text(shown)}" for name, shown in headers]
