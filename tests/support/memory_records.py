"""The twin of `throttles.records.Records`: an owner's records in memory, and an owner for the command's runs."""

import json

from logyard.admin.reassignment.ending import ThrottleOwner
from logyard.admin.reassignment.throttles.records import Record


class MemoryRecords:
    """The twin of `Records`: a table, by way of JSON."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}

    def load(self) -> list[Record]:
        return [Record.from_json(text) for text in self.table.values()]

    def put(self, record: Record) -> None:
        self.table[record.owner] = json.dumps(record.as_json())

    def drop(self, owner: str) -> None:
        self.table.pop(owner, None)


def throttle_owner(name: str = "run", records: MemoryRecords | None = None) -> ThrottleOwner:
    """A run of `logyard reassign` whose records are these, one table for all clusters; no other run works."""
    table = records if records is not None else MemoryRecords()
    return ThrottleOwner(name, lambda cluster_id: table, lambda other: False)
