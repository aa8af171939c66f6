"""Schemas as Spark writes them in DDL (`id BIGINT NOT NULL, tags ARRAY<STRING>`), and as Arrow's: pure.

Types: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, ARRAY<T>,
MAP<STRING, T>, STRUCT<name: T, …>; a column or a field of a struct may be NOT NULL; `names` with odd letters stand in
backticks.
"""

import re
from collections.abc import Callable

import pyarrow as pa

from logyard.broker.errors import LogyardError

TIMESTAMP = pa.timestamp("us", tz="UTC")
_SIMPLE = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
}
_ALIASES = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_NAMES = {**{kind: name for name, kind in _SIMPLE.items()}, pa.timestamp("ms", tz="UTC"): "TIMESTAMP"}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_DEPTH_MAX = 32


class BadSchema(LogyardError):
    """A schema that does not parse; the text says where."""


def parse(text: str) -> pa.Schema:
    """Return the columns of a DDL text; raises BadSchema."""
    reader = _Reader(text)
    fields = reader.fields(end="", depth=0)
    if not fields:
        raise BadSchema("a schema without columns: `name TYPE, …` is expected")
    return pa.schema(fields)


def render(schema: pa.Schema) -> str:
    """Return the DDL of a schema; `parse` reads it back (timestamps as microseconds). Raises BadSchema."""
    return ", ".join(_field(field, " ") for field in schema)


def type_name(kind: pa.DataType) -> str:
    """Return a type's DDL; raises BadSchema for one that has none."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(_field(field, ': ') for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    raise BadSchema(f"type {kind} has no name in DDL")


def _field(field: pa.Field, between: str) -> str:
    name = field.name if re.fullmatch(r"[A-Za-z_]\w*", field.name) else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{between}{type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"


class _Reader:
    """Reads a DDL text from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.rstrip(), 0

    def fields(self, end: str, depth: int) -> list[pa.Field]:
        """Parse `name[:] TYPE [NOT NULL], …` up to `end` (the end of the text for "")."""
        found: dict[str, pa.Field] = {}
        while True:
            name = self._name()
            if name.lower() in {known.lower() for known in found}:
                raise BadSchema(f"column {name} is there twice")
            self._take(":")
            kind = self._type(depth)
            nullable = True
            if self._word("NOT"):
                self._expect(lambda: self._word("NULL"), "NULL")
                nullable = False
            found[name] = pa.field(name, kind, nullable)
            if self._take(","):
                continue
            if end:
                self._expect(lambda: self._take(end), end)
            elif self._at < len(self._text):
                raise self._bad(", or the end")
            return list(found.values())

    def _type(self, depth: int) -> pa.DataType:
        if depth > _DEPTH_MAX:
            raise BadSchema(f"types within types, more than {_DEPTH_MAX} deep")
        at = self._at
        name = self._name().upper()
        name = _ALIASES.get(name, name)
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("DECIMAL", "NUMERIC", "DEC"):
            return self._decimal()
        if name in ("ARRAY", "MAP", "STRUCT"):
            self._expect(lambda: self._take("<"), "<")
            if name == "STRUCT":
                return pa.struct(self.fields(">", depth + 1))
            if name == "MAP":
                if self._type(depth + 1) != pa.string():
                    raise self._bad("STRING as a map's key", at)
                self._expect(lambda: self._take(","), ",")
            value = self._type(depth + 1)
            self._expect(lambda: self._take(">"), ">")
            return pa.list_(value) if name == "ARRAY" else pa.map_(pa.string(), value)
        raise self._bad(f"one of {', '.join([*_SIMPLE, 'DECIMAL', 'ARRAY', 'MAP', 'STRUCT'])}", at)

    def _decimal(self) -> pa.DataType:
        if not self._take("("):
            return pa.decimal128(10, 0)
        precision, scale = self._number(), 0
        if self._take(","):
            scale = self._number()
        self._expect(lambda: self._take(")"), ")")
        if not 1 <= precision <= 38 or scale > precision:
            raise BadSchema(f"DECIMAL({precision}, {scale}): at most 38 digits, not more of them after the point")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        at = self._at
        word = self._name()
        if not (word.isascii() and word.isdigit() and len(word) < 4):
            raise self._bad("a number", at)
        return int(word)

    def _name(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[3]:
            raise self._bad("a name")
        self._at = match.end()
        return match[2] or match[1].replace("``", "`")

    def _take(self, symbol: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[3] != symbol:
            return False
        self._at = match.end()
        return True

    def _word(self, word: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or (match[2] or "").upper() != word:
            return False
        self._at = match.end()
        return True

    def _expect(self, take: Callable[[], bool], what: str) -> None:
        if not take():
            raise self._bad(what)

    def _bad(self, expected: str, at: int | None = None) -> BadSchema:
        at = self._at if at is None else at
        found = self._text[at : at + 20].strip() or "the end"
        return BadSchema(f"at letter {at + 1}: {expected} is expected, found {found!r}")
