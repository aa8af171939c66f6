"""A JSON document that many viewers are given: written once, packed once, known by a hash of what it says."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

# Packing less than this costs more than it saves.
_PACK_BYTES = 1024


class Document:
    """`version` is the same for the same content, in every process."""

    def __init__(self, body: bytes, version: str) -> None:
        self.body, self.version = body, version

    @classmethod
    def versioned(cls, content: Mapping[str, Any]) -> "Document":
        """An object with its own version as its first member."""
        text = _dump(content)
        version = _version(text)
        return cls(b'{"version":"' + version.encode() + b'",' + text[1:], version)

    @classmethod
    def plain(cls, content: Mapping[str, Any]) -> "Document":
        text = _dump(content)
        return cls(text, _version(text))

    @classmethod
    def raw(cls, body: bytes) -> "Document":
        """Bytes that are no JSON, as they are."""
        return cls(body, _version(body))

    @cached_property
    def packed(self) -> bytes | None:
        """The same for those who take gzip; None where it is short."""
        return gzip.compress(self.body, 5, mtime=0) if len(self.body) >= _PACK_BYTES else None


def _dump(content: Mapping[str, Any]) -> bytes:
    # ASCII only, and without the three characters that could end a script element, wherever somebody puts the text.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("ascii")


def _version(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
