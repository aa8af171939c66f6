"""Formats of keys and values: bytes as they are, text, or JSON with a schema; records that do not fit are returned
separately."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.export.schema import ddl
from logyard.spark_jobs.export.schema.json_values import Misfit, reader
from logyard.spark_jobs.segments.arrow import RECORD_SCHEMA

SIDE_FORMATS = ("binary", "string", "json")
SIDES = ("key", "value")


class BadFormat(LogyardError):
    """A combination of format and schema is not valid; the text says what is missing."""


class BadRecord(NamedTuple):
    """A record that does not fit: its row, which side of it, and why."""

    row: int
    side: str
    reason: str


@dataclass(frozen=True)
class SideFormat:
    """How one side (key or value) of every record becomes a column; `schema` is DDL, of JSON only."""

    side: str
    name: str = "binary"
    schema: str = ""

    def __post_init__(self) -> None:
        if self.name == "json" and not self.schema:
            raise BadFormat(f"--{self.side}-format json: give --{self.side}-schema FILE, the columns in Spark's DDL")
        if self.name != "json" and self.schema:
            raise BadFormat(f"--{self.side}-schema goes with --{self.side}-format json, not {self.name}")

    @cached_property
    def type(self) -> pa.DataType:
        """The column's type; raises BadSchema."""
        if self.name == "json":
            return pa.struct(list(ddl.parse(self.schema)))
        return pa.string() if self.name == "string" else pa.binary()

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        return reader(self.type) if self.name == "json" else _utf8

    def column(self, raw: pa.Array) -> tuple[pa.Array, list[BadRecord]]:
        """Return the column of binary values, null for bad ones, and the bad ones. Null stays null."""
        if self.name == "binary":
            return raw, []
        if self.name == "string":
            try:
                return raw.cast(pa.string()), []
            except pa.ArrowInvalid:
                pass  # at least one value is not UTF-8: convert them one by one
        values: list[Any] = []
        bad: list[BadRecord] = []
        for row, value in enumerate(raw.to_pylist()):
            try:
                values.append(None if value is None else self._read(value))
            except Misfit as error:
                bad.append(BadRecord(row, self.side, str(error)[:300]))
                values.append(None)
        return pa.array(values, self.type), bad

    def __reduce__(self) -> tuple[Any, ...]:
        return SideFormat, (self.side, self.name, self.schema)


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not UTF-8 (byte {error.start})") from None


@dataclass(frozen=True)
class Formats:
    """The formats of both sides."""

    key: SideFormat = SideFormat("key")
    value: SideFormat = SideFormat("value")

    def field(self, column: str) -> pa.Field | None:
        """The field of `key` or `value`, None for another column."""
        if column not in SIDES:
            return None
        kind = self.key.type if column == "key" else self.value.type
        return RECORD_SCHEMA.field(column).with_type(kind)

    def apply(self, batch: pa.RecordBatch, columns: Sequence[str]) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Return the batch with formatted sides (those among `columns`), and its bad records, in order of rows."""
        bad: list[BadRecord] = []
        for side in (self.key, self.value):
            if side.name != "binary" and side.side in columns:
                at = batch.schema.get_field_index(side.side)
                column, found = side.column(batch.column(at))
                batch = batch.set_column(at, batch.schema.field(at).with_type(side.type), column)
                bad += found
        return batch, sorted(bad, key=lambda one: one.row)


def good_rows(count: int, bad: Sequence[BadRecord]) -> Any:
    """Return the mask of rows without a bad record."""
    mask = np.ones(count, bool)
    mask[[one.row for one in bad]] = False
    return mask
