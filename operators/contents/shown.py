"""A record as a reader may see it, and whether it is one of those that are looked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from logyard.operators.contents.decoding import HIDDEN, Shown, decode, may_have_fields
from logyard.operators.contents.masks import Fields
from logyard.operators.contents.schemas.decoder import BySchema

HEADERS_MAX, HEADER_CHARS = 50, 1_000
"""How many headers of a record are shown, and searched; and how much of the name and of the value of each is shown."""

Headers = Sequence[tuple[str, bytes | None]]


def contents(
    key: bytes | None, value: bytes | None, fields: Fields | None, by_schema: BySchema | None = None
) -> tuple[Shown | None, Shown | None]:
    """Key and value, without the fields that are hidden from the reader."""
    mask = None if fields is None else fields.of_structure
    return decode(key, mask, by_schema), decode(value, mask, by_schema)


def shown_headers(headers: Headers, fields: Fields | None) -> list[tuple[str, Shown | None]]:
    """The first HEADERS_MAX of them."""
    return [(str(name), _header(str(name), value, fields)) for name, value in headers[:HEADERS_MAX]]


def _header(name: str, value: bytes | None, fields: Fields | None) -> Shown | None:
    if fields is None or value is None:
        return decode(value)
    if fields.has(name):
        return Shown(HIDDEN, "", len(value))
    # A plain text has no fields; what may have some is shown as far as they can be told.
    return decode(value, partial(fields.of_structure, header=name) if may_have_fields(value) else None)


@dataclass(frozen=True, slots=True)
class Search:
    """Records whose key contains `key`, and whose key, value or a header contains `text`; both in small letters.

    It sees what is shown, so that nobody can guess what is hidden by searching for it.
    """

    key: str = ""
    text: str = ""

    @classmethod
    def of(cls, key: str, text: str) -> "Search":
        return cls(key.casefold(), text.casefold())

    def __bool__(self) -> bool:
        """Whether anything is looked for."""
        return bool(self.key or self.text)

    def wants_key(self, key: Shown | None) -> bool:
        return not self.key or self.key in _text(key)

    def wants(self, key: Shown | None, value: Shown | None, headers: Sequence[tuple[str, Shown | None]]) -> bool:
        """Whether the text is there; the key is asked before, by `wants_key`."""
        if not self.text:
            return True
        named = (f"{name.casefold()} {_text(shown)}" for name, shown in headers)
        return any(self.text in part for part in (_text(key), _text(value), *named))


def _text(shown: Shown | None) -> str:
    return "" if shown is None else shown.text.casefold()
