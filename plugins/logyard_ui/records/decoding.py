"""Bytes of keys, values and headers as text for people: JSON, MessagePack, text, numbers, else hexadecimal. Pure.

The text is made here, not in the browser, whose numbers are not exact above 2^53.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

SHOWN_CHARS = 20_000
# Larger ones are shown as text, without a structure.
STRUCTURED_BYTES = 1024 * 1024
_HEX_BYTES = 256
_SCHEMA_HEAD = struct.Struct(">bi")
_INTEGERS = {4: struct.Struct(">i"), 8: struct.Struct(">q")}

Mask = Callable[[Any], Any]
"""Hides parts of a structure; it returns HIDDEN for anything else."""

HIDDEN = "hidden"
_MAPS_AND_LISTS = (*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF)


@dataclass(frozen=True, slots=True)
class Shown:
    """`kind`: json, messagepack, text, schema, bytes, words, hidden; `size`: bytes as they are stored; `cut`: the text
    is only the beginning."""

    kind: str
    text: str
    size: int
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text[:SHOWN_CHARS], "size": self.size, "cut": self.cut or self.is_long}

    @property
    def is_long(self) -> bool:
        return len(self.text) > SHOWN_CHARS


def decode(data: bytes | None, mask: Mask | None = None) -> Shown | None:
    """None for a null. With a mask, what has no fields to be found in is hidden as a whole."""
    if data is None:
        return None
    kind, structure = _structure(data)
    if kind:
        content = structure if mask is None else mask(structure)
        if content is HIDDEN:
            return Shown(HIDDEN, "", len(data))
        return Shown(kind, json.dumps(content, indent=1, ensure_ascii=False, default=_other), len(data))
    return Shown(HIDDEN, "", len(data)) if mask is not None else _plain(data)


def _structure(data: bytes) -> tuple[str, Any]:
    """The kind of a structure and its content; "" where it is none."""
    if not data or len(data) > STRUCTURED_BYTES:
        return "", None
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return "json", json.loads(data)
        except (ValueError, RecursionError):
            return "", None
    if data[0] in _MAPS_AND_LISTS:
        try:
            return "messagepack", msgspec.msgpack.decode(data, strict=False)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return "", None
    return "", None


def _plain(data: bytes) -> Shown:
    text = _text(data)
    if text is not None:
        return Shown("text", text, len(data))
    shown = data[:_HEX_BYTES].hex(" ")
    cut = len(data) > _HEX_BYTES
    if len(data) > _SCHEMA_HEAD.size and data[0] == 0:
        # The head that serializers of a schema registry write.
        _, schema = _SCHEMA_HEAD.unpack_from(data)
        if schema > 0:
            return Shown("schema", f"schema {schema}: {data[_SCHEMA_HEAD.size : _HEX_BYTES].hex(' ')}", len(data), cut)
    if len(data) in _INTEGERS:
        (number,) = _INTEGERS[len(data)].unpack(data)
        return Shown("bytes", f"{shown} (as a number {number})", len(data))
    return Shown("bytes", shown, len(data), cut)


def _text(data: bytes) -> str | None:
    """UTF-8 without control characters other than those of lines; None if it is none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\r\n\t" for c in text[:SHOWN_CHARS]) else None


def _other(value: Any) -> str:
    """What JSON has no form for: bytes, times and extensions of MessagePack."""
    return value.hex(" ") if isinstance(value, (bytes, bytearray)) else str(value)
