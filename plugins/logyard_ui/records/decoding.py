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
# What is larger, or nested deeper, is shown as text, without a structure.
STRUCTURED_BYTES = 1024 * 1024
DEPTH_MAX = 40
# What is larger is shown in one line: a deep structure would become a hundred times as long by its indentation.
INDENTED_BYTES = 64 * 1024
_HEX_BYTES = 256
_SCHEMA_HEAD = struct.Struct(">bi")
_INTEGERS = {4: struct.Struct(">i"), 8: struct.Struct(">q")}

Mask = Callable[[Any], Any]
"""Hides parts of a structure; it returns HIDDEN for anything else."""

HIDDEN = "hidden"
_JSON = (b"{", b"[")
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
        return {
            "kind": self.kind,
            "text": writable(self.text[:SHOWN_CHARS]),
            "size": self.size,
            "cut": self.cut or self.is_long,
        }

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
        indent = 1 if len(data) <= INDENTED_BYTES else None
        return Shown(kind, json.dumps(content, indent=indent, ensure_ascii=False, default=_other), len(data))
    return Shown(HIDDEN, "", len(data)) if mask is not None else _plain(data)


def may_have_fields(data: bytes) -> bool:
    """Whether it begins as a structure does."""
    return data.lstrip()[:1] in _JSON or (data[:1] != b"" and data[0] in _MAPS_AND_LISTS)


def writable(text: str) -> str:
    """The text as UTF-8 can write it: half of a pair of surrogates, which JSON allows, stays an escape."""
    return text.encode(errors="backslashreplace").decode()


def _structure(data: bytes) -> tuple[str, Any]:
    """The kind of a structure and its content, with texts as names; "" where it is none, or nested too deep."""
    if not data or len(data) > STRUCTURED_BYTES:
        return "", None
    try:
        if data.lstrip()[:1] in _JSON:
            return "json", _named(json.loads(data), DEPTH_MAX)
        if data[0] in _MAPS_AND_LISTS:
            return "messagepack", _named(msgspec.msgpack.decode(data, strict=False), DEPTH_MAX)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "", None
    return "", None


def _named(content: Any, depth: int) -> Any:
    """The same with a text for every name: those of MessagePack may be anything. Raises ValueError if it is deeper."""
    if not isinstance(content, (dict, list)):
        return content
    if not depth:
        raise ValueError("nested too deep")
    if isinstance(content, list):
        return [_named(part, depth - 1) for part in content]
    return {_name(name): _named(part, depth - 1) for name, part in content.items()}


def _name(name: Any) -> str:
    """A name in bytes is read as text, so that a mask finds it."""
    if isinstance(name, bytes):
        return _text(name) or _other(name)
    return str(name)


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
