"""Bytes of keys, values and headers as text for people: JSON, MessagePack, text, numbers, else hexadecimal. Pure.

The text is made here, not in the browser, whose numbers are not exact above 2^53.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from logyard.operators.contents.schemas.decoder import HEAD, BySchema, schema_of
from logyard.operators.contents.schemas.problems import Undecoded

SHOWN_CHARS = 20_000
# What is larger, or nested deeper, is shown as text, without a structure.
STRUCTURED_BYTES = 1024 * 1024
DEPTH_MAX = 40
# What is larger is shown in one line: a deep structure would become a hundred times as long by its indentation.
INDENTED_BYTES = 64 * 1024
_HEX_BYTES = 256
_INTEGERS = {4: struct.Struct(">i"), 8: struct.Struct(">q")}

Mask = Callable[[Any], Any]
"""Hides parts of a structure; it returns HIDDEN for anything else."""

HIDDEN = "hidden"
_JSON = (b"{", b"[")
_MAPS_AND_LISTS = (*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF)


@dataclass(frozen=True, slots=True)
class Shown:
    """`kind`: json, messagepack, avro, protobuf, text, schema, bytes, words, hidden; `size`: bytes as they are stored;
    `cut`: the text is only the beginning; `problem`: why its schema does not show it."""

    kind: str
    text: str
    size: int
    cut: bool = False
    problem: str = ""

    def as_json(self, most: int = SHOWN_CHARS) -> dict[str, Any]:
        """With the first so many characters of the text."""
        return {
            "kind": self.kind,
            "text": writable(self.text[:most]),
            "size": self.size,
            "cut": self.cut or len(self.text) > most,
        } | ({"problem": writable(self.problem)} if self.problem else {})


def decode(data: bytes | None, mask: Mask | None = None, by_schema: BySchema | None = None) -> Shown | None:
    """None for a null. With a mask, what has no fields to be found in is hidden as a whole.

    `by_schema` decodes what has the head of a schema registry's serializers.
    """
    if data is None:
        return None
    kind, structure, problem = "", None, ""
    if by_schema is not None and len(data) <= STRUCTURED_BYTES:
        kind, structure, problem = _by_schema(data, by_schema)
    if not kind:
        kind, structure = _structure(data)
    if kind:
        content = structure if mask is None else mask(structure)
        return Shown(HIDDEN, "", len(data)) if content is HIDDEN else Shown(kind, _written(content, data), len(data))
    if mask is not None:
        return Shown(HIDDEN, "", len(data))
    return replace(_plain(data), problem=problem)


def _by_schema(data: bytes, by_schema: BySchema) -> tuple[str, Any, str]:
    """As `_structure`, with why there is none."""
    try:
        found = by_schema(data)
        return ("", None, "") if found is None else (found[0], _named(found[1], DEPTH_MAX), "")
    except (Undecoded, ValueError) as why:
        return "", None, str(why)


def _written(content: Any, data: bytes) -> str:
    if isinstance(content, str):
        return content  # an Avro schema may be of a text alone
    indent = 1 if len(data) <= INDENTED_BYTES else None
    return json.dumps(content, indent=indent, ensure_ascii=False, default=_other)


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
    schema = schema_of(data)
    if schema is not None:
        return Shown("schema", f"schema {schema}: {data[HEAD.size : _HEX_BYTES].hex(' ')}", len(data), cut)
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
