"""An Iceberg table in a directory: what is told to Iceberg's library."""

from pathlib import Path

import pytest

from tests.support.export_runs import Flights, pairs
from tests.support.memory_iceberg import MemoryIceberg, Table

FORMAT = ("--format", "iceberg")


@pytest.fixture
def library() -> MemoryIceberg:
    return MemoryIceberg()


@pytest.fixture
def flights(tmp_path: Path, library: MemoryIceberg) -> Flights:
    return Flights(tmp_path, library)


def the_table(library: MemoryIceberg) -> Table:
    assert library.table is not None
    return library.table


def exported(flights: Flights, times: int, *words: str) -> None:
    for _ in range(times):
        flights.grow(pairs(4))
        flights.run(*FORMAT, *words)


def test_partition_values_are_as_they_were_before_a_path_escaped_them(library: MemoryIceberg, flights: Flights) -> None:
    flights.grow(pairs(8), step_ms=60_000)
    flights.run(*FORMAT, "--partition-by", "at=%Y/%m %H:%M=100%%,topic")
    found = {tuple(file.values) for file in the_table(library).files()}
    assert found == {(f"1970/01 00:0{minute}=100%", "t") for minute in range(8)}
