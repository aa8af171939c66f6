"""Tables of the facts that the code has as tables too: both say the same."""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from logyard.broker.controller.partitions import partition_machine, replica_machine
from logyard.broker.protocol.header import FLEXIBLE_FROM
from logyard.broker.server.api_table import VERSIONS
from tests.support import references

Phase = TypeVar("Phase", bound=IntEnum)


def rows(page: str, columns: int) -> list[list[str]]:
    """The rows of a page's tables that have so many columns."""
    lines = (references.FACTS / page).read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    return [row for row in cells if len(row) == columns and set(row[0]) != {"-"}]


def apis() -> dict[int, tuple[str, str]]:
    """The range of 3.9 and the first flexible version there, by API key."""
    found = {}
    for keys, _, _, ranges, flexible_25, flexible_39 in rows("protocol.md", 6):
        numbers = [int(key) for key in re.findall(r"\d+", keys)]
        if not numbers:
            continue  # the head of the table
        each = ranges.split(", ") * (len(numbers) if "," not in ranges else 1)
        found.update({key: (one, flexible_39 or flexible_25) for key, one in zip(numbers, each, strict=True)})
    return found


# What `transaction.version` 2 needs (facts §17.12): Kafka 4.0's highest version, 4.2's of WriteTxnMarkers.
ABOVE_3_9 = {0: "0-12", 26: "0-5", 27: "0-2", 28: "0-5"}


def test_what_is_advertised_is_kafkas_range() -> None:
    ranges = {key: f"{low}-{high}" if low != high else str(low) for key, (low, high) in VERSIONS.items()}
    assert ranges == {key: apis()[key][0] for key in VERSIONS} | ABOVE_3_9


def test_the_first_flexible_versions_are_kafkas() -> None:
    flexible = {key: int(first) for key, (_, first) in apis().items() if first.isdecimal()}
    assert {key: flexible.get(key) for key in FLEXIBLE_FROM} == dict(FLEXIBLE_FROM)


def test_the_state_machines_are_kafkas() -> None:
    # Both machines have New, Online, Offline and NonExistent, under other numbers: the page lists partitions first.
    listed = [(row[0], int(row[1]), set(row[2].split(", "))) for row in rows("controller.md", 3) if row[1].isdecimal()]
    count = len(partition_machine.PREVIOUS)
    assert by_number(listed[:count]) == drawn(partition_machine.PREVIOUS)
    assert by_number(listed[count:]) == drawn(replica_machine.PREVIOUS)


def by_number(listed: list[tuple[str, int, set[str]]]) -> dict[int, tuple[str, set[str]]]:
    return {number: (name, before) for name, number, before in listed}


def drawn(previous: Mapping[Phase, frozenset[Phase]]) -> dict[int, tuple[str, set[str]]]:
    name = {phase: phase.name.title().replace("_", "") for phase in previous}
    return {int(to): (name[to], {name[one] for one in before}) for to, before in previous.items()}
