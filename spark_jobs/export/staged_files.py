"""Checking files that executors report as staged: the driver does it before a version names them, an executor before it
reads what another one wrote."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logyard.broker.errors import LogyardError


class NotShared(LogyardError):
    """A staged file is missing or differs from what was written: driver and executors do not share the destination."""


def check_seen(directory: str, files: Iterable[Mapping[str, Any]]) -> None:
    """Check that every staged file of an export's directory exists, with its size and the rows in its footer.

    :param files: `staged` (relative to the directory), `bytes` and `rows` of each, as in a manifest.

    Raises NotShared naming the first file that differs.
    """
    for file in files:
        path = os.path.join(directory, str(file["staged"]))
        found = _difference(path, int(file["bytes"]), int(file["rows"]))
        if found:
            raise NotShared(
                f"an executor wrote {path}, and for the driver {found}: executors and driver do not share {directory}:"
                " nothing was committed; give a --destination that is one directory for all of them"
            )


def _difference(path: str, size: int, rows: int) -> str:
    """Return how a file differs from what its executor reported, "" if it does not."""
    try:
        there = os.path.getsize(path)
    except FileNotFoundError:
        return "it is not there"
    if there != size:
        return f"it has {there} bytes, not {size}"
    try:
        footer = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        return f"it is no Parquet file ({error})"
    return "" if footer.num_rows == rows else f"it has {footer.num_rows} rows, not {rows}"


def sync_staged(directory: str, files: Iterable[Mapping[str, Any]]) -> None:
    """Make the names of staged files durable, after executors renamed them: no version may name a file that a power
    failure can lose."""
    above: set[str] = set()
    for file in files:
        place = os.path.dirname(str(file["staged"]))
        while place and place not in above:
            above.add(place)
            place = os.path.dirname(place)
    for place in sorted(above, reverse=True):
        sync_directory(os.path.join(directory, place))
    sync_directory(directory)


def sync_directory(directory: str) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
