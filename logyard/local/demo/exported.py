"""Reads the exported files with pyarrow, and compares them with what the topic must have."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from logyard.local.demo import checks
from logyard.local.errors import LocalError


def read(directory: Path) -> pd.DataFrame:
    """Return the exported rows: partition, offset, key, value. Raises LocalError if there are none."""
    files = [str(path) for path in sorted(directory.rglob("*.parquet"))]
    if not files:
        raise LocalError(f"no Parquet file was exported to {directory}")
    try:
        table = ds.dataset(files, format="parquet").to_table(columns=checks.COLUMNS)
    except (pa.ArrowException, OSError) as error:
        raise LocalError(
            f"what was exported to {directory} cannot be read: {next(iter(str(error).splitlines()), error)}"
        ) from error
    rows = {name: table.column(name).to_pylist() for name in checks.COLUMNS}
    return pd.DataFrame(rows, columns=checks.COLUMNS).sort_values(checks.PLACE, ignore_index=True)


def require(expected: pd.DataFrame, found: pd.DataFrame) -> None:
    """Raise LocalError unless row count, offsets and checksum are the expected ones."""
    difference = checks.compare(expected, found)
    if difference:
        raise LocalError(f"the export does not hold what the topic holds: {difference}")
    if checks.checksum(expected) != checks.checksum(found):
        raise LocalError("the export's checksum is not the topic's")
