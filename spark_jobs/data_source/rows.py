"""What batch reads and streams share: the rows' schema, and reading one split in a task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.split_reader import SplitReader
from logyard.spark_jobs.segments.arrow import RECORD_SCHEMA
from logyard.spark_jobs.segments.splits import OWNER_SCHEMA, Split

# Spark's timestamps are microseconds.
_TIMESTAMP = pa.timestamp("us", tz="UTC")


SCHEMA = pa.schema([f.with_type(_TIMESTAMP) if f.name == "timestamp" else f for f in (*OWNER_SCHEMA, *RECORD_SCHEMA)])


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]  # pyspark has no types here
    """One split; None if there is nothing to read (Spark needs at least one partition)."""

    split: Split | None

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


def known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; raises BadOption naming one that does not exist."""
    unknown = [c for c in columns if c not in SCHEMA.names]
    if unknown:
        raise BadOption(f"column {unknown[0]!r} does not exist: choose among {', '.join(SCHEMA.names)}")
    return tuple(columns)


def read_split(partition: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield one split's rows in the source's types."""
    split = getattr(partition, "split", None)  # Spark makes a bare InputPartition(None) of an empty plan
    if split is None:
        return
    schema = pa.schema([SCHEMA.field(c) for c in columns])
    for batch in SplitReader(split).rows():
        yield batch.cast(schema) if "timestamp" in columns else batch
