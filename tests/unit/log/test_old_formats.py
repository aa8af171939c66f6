"""A log of message formats v0 and v1, as fetched from an old leader: look-ups by time, segments."""

import pytest

from logyard.broker.log.checkpoints import encode_epochs
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import write_whole
from logyard.broker.log.leader_epochs import EpochEntry
from tests.support.batches import Rec
from tests.support.logs import DIRECTORY, NOW, fetched, new_log, opened
from tests.support.old_logs import OldBatch, old


def wrapper(n: int, **fields: int) -> OldBatch:
    return old([Rec(3 * n + i, b"k", b"v", NOW + 10 * n + 3 * i) for i in range(3)], **fields)


def test_the_first_record_that_is_not_older_lies_inside_a_wrapper() -> None:
    log = new_log()
    for n in range(5):
        log.append_as_follower(memoryview(wrapper(n).encode()))
    for n in range(5):
        for i in range(3):
            time = NOW + 10 * n + 3 * i
            assert log.timestamp_search(time)() == (time, 3 * n + i, -1)
    assert log.timestamp_search(NOW + 4)() == (NOW + 6, 2, -1)
    assert log.timestamp_search(NOW + 47)() is None


def test_log_append_time_is_that_of_the_first_record_of_a_wrapper() -> None:
    log = new_log()
    for n in range(3):
        log.append_as_follower(memoryview(wrapper(n, append_time=NOW + 100 * n).encode()))
    assert log.timestamp_search(NOW + 1)() == (NOW + 100, 3, -1)


def test_messages_without_a_time_are_not_found_by_one() -> None:
    log = new_log()
    log.append_as_follower(memoryview(wrapper(0, magic=0).encode()))
    assert log.timestamp_search(NOW)() is None


def test_an_old_message_ends_the_known_epochs() -> None:
    """Its epoch is unknown: a later leader would count it as the last known epoch's, and have followers truncate it."""
    log = new_log()
    log.append_as_follower(memoryview(fetched(0, [b"v"] * 3, epoch=5)))
    log.epochs.assign(6, 3)  # led without a record
    log.append_as_follower(memoryview(wrapper(1).encode()))
    assert log.epochs.entries == ()
    log.append_as_follower(memoryview(fetched(6, [b"v"], epoch=7) + wrapper(3).encode() + fetched(12, [b"v"], epoch=7)))
    assert log.epochs.entries == ((7, 12),)


@pytest.mark.parametrize("on_disk", [(), ((5, 0), (6, 3)), ((7, 12),), None])
def test_a_recovery_finds_the_epochs_behind_the_last_old_message(on_disk: tuple[tuple[int, int], ...] | None) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    log.append_as_follower(memoryview(fetched(0, [b"v"] * 3, epoch=5)))
    log.append_as_follower(memoryview(wrapper(1).encode()))
    log.append_as_follower(memoryview(fetched(6, [b"v"], epoch=7) + wrapper(3).encode() + fetched(12, [b"v"], epoch=7)))
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if on_disk is None:
        write_whole(disk, path, b"")  # lost with the power
    else:
        write_whole(disk, path, encode_epochs([EpochEntry(*entry) for entry in on_disk]))
    assert opened(disk).epochs.entries == ((7, 12),)
