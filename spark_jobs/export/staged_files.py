"""Looking at what executors say they have staged: by the driver before a version names it, by an executor before it
reads what another one wrote."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logyard.broker.errors import LogyardError


class NotShared(LogyardError):
    """Who looks for a staged file does not find it as it was written: the destination is not the same for all."""


def check_seen(directory: str, files: Iterable[Mapping[str, Any]]) -> None:
    """Look at every staged file of an export's directory: is it there, of its size, with its rows in its footer?

    :param files: `staged` (relative to the directory), `bytes` and `rows` of each, as in a manifest.

    Raises NotShared naming the first that is not.
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
    """What is not as the executor said, "" where all is."""
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
    """Make the names of staged files durable, which their executors renamed: a version that names them must not
    outlive them."""
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
