"""Partition columns of an export: which directory (`date=2026-01-31/topic=flights`) a record's row goes to. Pure.

A column is `topic`, `date` (of the record's timestamp, UTC), or `NAME=PATTERN`, the timestamp formatted by strftime:
`hour=%Y-%m-%dT%H`. The same record always goes to the same directory.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.segments.arrow import RECORD_SCHEMA

DATE = "%Y-%m-%d"
# The value that Hive and Spark use for null: here, a time outside the years that dates can express.
NOWHERE = "__HIVE_DEFAULT_PARTITION__"
# The shortest time that each letter of a pattern distinguishes.
_STEPS_MS = {**dict.fromkeys("YymdjGVu", 86_400_000), "H": 3_600_000, "M": 60_000, "%": 86_400_000}
_OWNED = {"partition", *RECORD_SCHEMA.names}


class BadPartitioning(LogyardError):
    """A partition column is not valid; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One column; `pattern` is empty for the topic."""

    name: str
    pattern: str

    @property
    def text(self) -> str:
        """Its form on the command line."""
        return self.name if self.pattern in ("", DATE) else f"{self.name}={self.pattern}"

    def values(self, topic: str, timestamps: Any) -> tuple[list[str], Any]:
        """Return the distinct values and each row's index among them; `timestamps` are int64 milliseconds."""
        if not self.pattern:
            return [topic], np.zeros(len(timestamps), np.int64)
        step = min(_STEPS_MS[letter] for letter in re.findall("%(.)", self.pattern))
        floors, rows = np.unique(timestamps // step, return_inverse=True)
        return [_written(self.pattern, floor * step) for floor in floors.tolist()], rows


def _written(pattern: str, timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return NOWHERE


def parse(texts: Sequence[str]) -> tuple[PartitionColumn, ...]:
    """Parse `topic`, `date` and `NAME=PATTERN`; raises BadPartitioning."""
    columns = tuple(_column(text.strip()) for text in texts)
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise BadPartitioning(f"--partition-by: {name} is given twice")
    return columns


def _column(text: str) -> PartitionColumn:
    if text in ("topic", "date"):
        return PartitionColumn(text, "" if text == "topic" else DATE)
    name, equals, pattern = text.partition("=")
    letters = re.findall("%(.)", pattern)
    unknown = [letter for letter in letters if letter not in _STEPS_MS]
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or name in _OWNED or name == "topic":
        raise BadPartitioning(
            f"--partition-by {text!r}: topic, date or NAME=PATTERN is expected, NAME none of the export's columns"
        )
    if unknown or not set(letters) - {"%"}:
        raise BadPartitioning(
            f"--partition-by {text!r}: a pattern of {' '.join('%' + letter for letter in _STEPS_MS)} is expected"
        )
    return PartitionColumn(name, pattern)


def directories(columns: Sequence[PartitionColumn], topic: str, timestamps: Any) -> tuple[list[str], Any]:
    """Return the distinct directories of some rows and each row's index among them."""
    names, rows = [""], np.zeros(len(timestamps), np.int64)
    for column in columns:
        values, mine = column.values(topic, timestamps)
        both, rows = np.unique(rows * len(values) + mine, return_inverse=True)
        pairs = [divmod(int(one), len(values)) for one in both.tolist()]
        names = [f"{names[a]}/{column.name}={quote(values[b], safe=' -_.')}".lstrip("/") for a, b in pairs]
    return names, rows


def values_of(directory: str) -> dict[str, str]:
    """Return the partition columns' values, as they were before `directories` escaped them."""
    parts = (part.partition("=") for part in directory.split("/"))
    return {name: unquote(value) for name, equals, value in parts if equals}
