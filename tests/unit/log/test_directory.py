"""LogDirectory: what it knows of the machine's restarts."""

import pytest

from logyard.broker.log.directory import LogDirectory
from logyard.broker.log.disk.memory import MemoryDisk


class Machine(MemoryDisk):
    """A disk of a machine that has a given boot id."""

    def __init__(self) -> None:
        super().__init__()
        self.boot = ""

    def boot_id(self) -> str:
        return self.boot


def begun(disk: MemoryDisk) -> bool:
    """Load a directory as at a start; returns whether no write can have been lost since the last time."""
    directory = LogDirectory(disk, "/data", print)
    directory.open()
    directory.begin()
    directory.note_loaded()
    directory.unlock()
    return directory.same_boot


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [("a", "a", True), ("a", "b", False), ("", "", False), ("", "a", False), ("a", "", False)],
)
def test_writes_may_be_lost_unless_the_machine_is_known_not_to_have_restarted(
    before: str, now: str, same: bool
) -> None:
    disk = Machine()
    disk.boot = before
    begun(disk)
    disk.boot = now
    assert begun(disk) is same
