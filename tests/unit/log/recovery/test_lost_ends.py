"""Opening a compacted log after a loss of power that took the end of one segment and left the next."""

import random

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery.recovery import Checkpointed
from tests.support.logs import DIRECTORY, ROOT, content, fetched, new_log, offsets, opened

COMPACTED = TopicConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}))


def followed(disk: MemoryDisk, count: int = 10) -> PartitionLog:
    """A follower's log: of each three offsets the leader has compacted one away, so segments may begin behind a gap."""
    log = new_log(disk, COMPACTED)
    for number in range(count):
        log.append_as_follower(memoryview(fetched(3 * number, [b"c" * 300, b"d"])))
    assert len(log.segments) > 3
    return log


def shorten(disk: MemoryDisk, log: PartitionLog, number: int) -> int:
    """Take the last batch from a closed segment's file; returns that batch's offset."""
    segment = log.segments[number]
    last = segment.find(log.end_of(number) - 2, segment.read)
    assert last is not None
    disk.open(segment.path(".log"), write=True).truncate(last.position)
    return last.base_offset


def test_whatever_the_power_takes_there_is_no_hole() -> None:
    ends = set()
    for seed in range(300):
        disk = MemoryDisk()
        log = followed(disk)
        whole = content(log)
        disk.sync_directory(ROOT)
        if up_to := 6 * (seed % 6):
            log.flush(up_to)
        disk.restart(random.Random(seed).randrange)
        again = opened(disk, COMPACTED)
        left = content(again)
        assert whole.startswith(left), f"seed {seed}: {offsets(left)}"
        ends.add(len(left))
    assert {0, len(whole)} < ends, "the power took all, nothing, and all between"


def test_a_segment_that_lost_its_end_ends_the_log() -> None:
    disk = MemoryDisk()
    log = followed(disk)
    lost = shorten(disk, log, 1)
    notes: list[str] = []
    again = opened(disk, COMPACTED, notes=notes)
    assert again.log_end_offset == lost - 1, "the offset before it was compacted away"
    assert len(again.segments) == 2
    assert any("the loss of power" in note for note in notes)


def test_after_the_cut_it_goes_on() -> None:
    disk = MemoryDisk()
    shorten(disk, followed(disk), 1)
    log = opened(disk, COMPACTED)
    for number in range(20, 30):
        log.append_as_follower(memoryview(fetched(3 * number, [b"n" * 300])))
    whole = content(log)
    assert content(opened(disk, COMPACTED)) == whole


def test_a_followers_gaps_are_kept() -> None:
    disk = MemoryDisk()
    log = followed(disk)
    whole = content(log)
    again = opened(disk, COMPACTED)
    assert content(again) == whole
    assert again.log_end_offset == log.log_end_offset


def test_what_a_cleaner_wrote_in_its_place_may_be_shorter() -> None:
    """Kafka's cleaner removes the last records of a segment, too, and leaves a new file."""
    disk = MemoryDisk()
    log = followed(disk)
    path = log.segments[1].path(".log")
    cleaned = disk.open(f"{path}.cleaned", create=True, write=True)
    cleaned.write_at(fetched(log.segments[1].base_offset, [b"kept"]), 0)
    disk.rename(f"{path}.cleaned", path)
    assert opened(disk, COMPACTED).log_end_offset == log.log_end_offset


def test_a_log_that_was_cut_and_grew_again_is_whole() -> None:
    disk = MemoryDisk()
    log = followed(disk)
    log.truncate_to(log.segments[2].base_offset - 3)
    log.roll(50, 0)
    log.append_as_follower(memoryview(fetched(50, [b"later"])))
    whole = content(log)
    again = opened(disk, COMPACTED)
    assert content(again) == whole
    assert again.log_end_offset == 51


@pytest.mark.parametrize(("former", "later"), [(False, False), (False, True), (True, False)])
def test_where_a_file_tells_nothing_a_gap_is_a_followers(former: bool, later: bool) -> None:
    """Written by Kafka or an earlier version, copied without attributes, or on a file system that has none."""
    disk = MemoryDisk()
    disk.has_attributes = former
    log = new_log(disk, COMPACTED)
    for base in (0, 3, 6, 9):
        disk.has_attributes = later if base == 6 else former
        log.append_as_follower(memoryview(fetched(base, [b"c" * 300, b"d"])))
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    shorten(disk, log, 0)
    assert opened(disk, COMPACTED).log_end_offset == 11


def test_an_empty_segment_behind_a_gap_is_not_the_logs_end() -> None:
    """The power went between its creation and its attribute, and took the records before it."""
    disk = MemoryDisk()
    log = new_log(disk, COMPACTED)
    log.append_as_follower(memoryview(fetched(0, [b"a", b"b"])))
    disk.open(f"{DIRECTORY}/{6:020}.log", create=True)
    again = opened(disk, COMPACTED)
    assert again.log_end_offset == 2
    assert len(again.segments) == 1


def test_a_kill_takes_nothing() -> None:
    disk = MemoryDisk()
    log = followed(disk)
    shorten(disk, log, 1)
    assert opened(disk, COMPACTED, Checkpointed(same_boot=True)).log_end_offset == log.log_end_offset
