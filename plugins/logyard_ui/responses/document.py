"""A JSON document for many viewers: encoded once, compressed once, with a hash of its content as version."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

# Compressing less than this costs more than it saves.
_COMPRESS_BYTES = 1024


class Document:
    """`version` is the same for the same content, in every process."""

    def __init__(self, body: bytes, version: str) -> None:
        self.body, self.version = body, version

    @classmethod
    def versioned(cls, content: Mapping[str, Any]) -> "Document":
        """A JSON object with its own version as first member."""
        text = _dump(content)
        version = _version(text)
        return cls(b'{"version":"' + version.encode() + b'",' + text[1:], version)

    @classmethod
    def plain(cls, content: Mapping[str, Any]) -> "Document":
        text = _dump(content)
        return cls(text, _version(text))

    @classmethod
    def raw(cls, body: bytes) -> "Document":
        """Bytes as they are, such as those of a file."""
        return cls(body, _version(body))

    @cached_property
    def compressed(self) -> bytes | None:
        """The body by gzip; None where it is too short for that to pay."""
        return gzip.compress(self.body, 5, mtime=0) if len(self.body) >= _COMPRESS_BYTES else None


def _dump(content: Mapping[str, Any]) -> bytes:
    # ASCII only, and without the three characters that could end a script element, wherever the text is embedded.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("ascii")


def _version(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
