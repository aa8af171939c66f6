"""Partition columns of an export as a table in an Iceberg catalog has them: transforms of columns. Pure."""

from dataclasses import dataclass
from datetime import date

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.partition_columns import PartitionColumn

# The letters of a pattern → Iceberg's transform of the time with the same values.
_TRANSFORMS = {"Y": "year", "Ym": "month", "Ymd": "day", "YmdH": "hour"}
_HOUR_US = 3_600_000_000
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """A partition column: its name, the column that it is made from, and how (`identity`, `year` … `hour`)."""

    name: str
    source: str
    transform: str


def transform_of(column: PartitionColumn) -> PartitionBy:
    """Return a partition column as Iceberg has it; raises ExportRefused."""
    if not column.pattern:
        return PartitionBy(column.name, "topic", "identity")
    letters = "".join(one[0] for one in column.pattern.split("%")[1:])
    if letters not in _TRANSFORMS:
        raise ExportRefused(
            f"--partition-by {column.text}: for a table in a catalog a pattern has year, month, day, hour in this"
            " order: %Y, %Y-%m, %Y-%m-%d or %Y-%m-%dT%H"
        )
    return PartitionBy(column.name, "timestamp", _TRANSFORMS[letters])


def transformed(transform: str, timestamp_us: int) -> int:
    """Return the value of a time: years, months, days or hours since 1970."""
    hours = timestamp_us // _HOUR_US
    if transform == "hour":
        return hours
    days = hours // 24
    if transform == "day":
        return days
    day = date.fromordinal(days + _EPOCH)
    return day.year - 1970 if transform == "year" else (day.year - 1970) * 12 + day.month - 1
