"""Opening a directory: damage, lost files, leftovers."""

from collections.abc import Callable

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.retention import delete_old_segments
from tests.support.damaged_logs import SMALL, filled, log_file, spoil
from tests.support.logs import (
    DIRECTORY,
    NOW,
    content,
    fetched,
    names,
    new_log,
    offsets,
    opened,
    produced,
)


class TestDamage:
    def test_a_torn_batch_at_the_end_is_cut_off(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        whole = content(log)
        spoil(disk, log.segments.active.path(".log"), log.segments.active.size, fetched(80, [b"torn"])[:-3])
        notes: list[str] = []
        again = opened(disk, SMALL, notes=notes)
        assert content(again) == whole
        assert any("bytes cut off at offset 80" in note for note in notes)
        assert again.log_end_offset == 80
        assert disk.status(again.segments.active.path(".log")).size == again.segments.active.size

    def test_everything_after_a_wrong_crc_is_cut_off(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        segment = log.segments[2]
        place = segment.find(segment.base_offset + 4, segment.read)
        assert place is not None
        spoil(disk, segment.path(".log"), place.position + 70)
        again = opened(disk, SMALL)
        assert again.log_end_offset == segment.base_offset + 4
        assert [s.base_offset for s in again.segments] == [s.base_offset for s in list(log.segments)[:3]]
        assert offsets(content(again))[-1] == (segment.base_offset + 2, segment.base_offset + 3)
        assert not [name for name in names(disk) if name > f"{segment.base_offset:020d}z" and name[0] == "0"]
        again.append_as_leader(produced([b"on"]), 9, now_ms=NOW)

    def test_below_the_recovery_point_nothing_is_read(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        spoil(disk, log.segments[0].path(".log"), 70)
        again = opened(disk, SMALL, Checkpointed(recovery_point=log.segments.active.base_offset))
        assert again.log_end_offset == 80

    def test_a_time_index_whose_bytes_were_lost_with_the_power_is_rebuilt(self) -> None:
        """The records were synced before the segment was sealed; of its indexes only one is durable."""
        disk = MemoryDisk()
        log = filled(disk, count=4)
        log.flush()
        whole, sealed = content(log), log.segments.active
        log.roll(log.log_end_offset, NOW)
        disk.open(sealed.path(".index")).sync()
        disk.sync_directory(DIRECTORY)
        disk.restart(lambda n: 1 if n == 3 else 0)  # files keep their sizes, and lose their unsynced bytes
        again = opened(disk, SMALL, Checkpointed(recovery_point=log.recovery_point))
        assert content(again) == whole
        assert again.segments[0].max_timestamp == sealed.max_timestamp == NOW + 3
        again.set_high_watermark(again.log_end_offset)
        assert delete_old_segments(again, NOW + again.config.retention_ms) == 0

    @pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xff" * 100, b"\0" * 3])
    def test_garbage_after_the_last_batch(self, garbage: bytes) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        whole = content(log)
        spoil(disk, log.segments.active.path(".log"), log.segments.active.size, garbage)
        assert content(opened(disk, SMALL)) == whole

    def test_a_broken_end_is_recovered_despite_the_clean_mark(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        whole = content(log)
        log.close()
        spoil(disk, log.segments.active.path(".log"), log.segments.active.size, b"\0" * 40)
        notes: list[str] = []
        again = opened(disk, SMALL, Checkpointed(recovery_point=80, clean=True), notes)
        assert content(again) == whole
        assert any("although the shutdown was clean" in note for note in notes)

    def test_a_followers_gap_survives_a_kill(self) -> None:
        """A follower appends over offsets that were compacted away; the topic is no longer compacted."""
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        log.append_as_follower(memoryview(fetched(0, [b"a", b"b"])))
        log.roll(5, NOW)
        for base in range(10, 20):
            log.append_as_follower(memoryview(fetched(base, [b"c" * 200])))
        whole = content(log)
        notes: list[str] = []
        again = opened(disk, SMALL, Checkpointed(same_boot=True), notes)
        assert again.log_end_offset == 20
        assert content(again) == whole
        assert any("offsets 2 to 4 are missing" in note for note in notes)

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    @pytest.mark.parametrize("has_attributes", [True, False])
    def test_a_gap_after_a_power_loss_ends_the_log(self, policy: str, has_attributes: bool) -> None:
        """A compacted one only where the segment behind the gap tells of more than there is."""
        disk = MemoryDisk()
        disk.has_attributes = has_attributes
        config = TopicConfig(segment_bytes=1000, cleanup_policy=frozenset({policy}))
        log = filled(disk, config=config)
        segment = log.segments[1]
        last = segment.find(log.segments[2].base_offset - 1, segment.read)
        assert last is not None
        disk.open(segment.path(".log"), write=True).truncate(last.position)
        again = opened(disk, config)
        assert again.log_end_offset == (last.base_offset if policy == "delete" or has_attributes else 80)

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    def test_a_gap_among_deleted_records_is_no_loss(self, policy: str) -> None:
        """DeleteRecords has moved the log's start beyond it; the segments themselves go with the next retention."""
        disk = MemoryDisk()
        config = TopicConfig(segment_bytes=1000, cleanup_policy=frozenset({policy}))
        log = filled(disk, config=config)
        segment, start = log.segments[1], log.segments[2].base_offset
        whole = content(log, start)
        last = segment.find(start - 1, segment.read)
        assert last is not None
        disk.open(segment.path(".log"), write=True).truncate(last.position)
        again = opened(disk, config, Checkpointed(log_start_offset=start))
        assert (again.log_start_offset, again.log_end_offset) == (start, 80)
        assert content(again) == whole

    def test_batches_whose_epoch_falls_back_are_leftovers(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        log.append_as_follower(memoryview(fetched(0, [b"a"], epoch=5)))
        spoil(disk, log_file(0), log.size, fetched(1, [b"b"], epoch=3))
        assert opened(disk).log_end_offset == 1


class TestLostFiles:
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize(
        "harm",
        [
            lambda disk, path: disk.remove(path),
            lambda disk, path: disk.open(path, write=True).truncate(5),
            lambda disk, path: disk.open(path, write=True).truncate(10485760),
        ],
    )
    @pytest.mark.parametrize("kind", [".index", ".timeindex"])
    def test_an_index_is_made_again(self, kind: str, harm: Callable[[MemoryDisk, str], None], clean: bool) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        whole = content(log)
        expected = [len(segment.time_index) > 0 for segment in log.segments]
        log.close()
        for segment in log.segments:
            harm(disk, segment.path(kind))
        again = opened(disk, SMALL, Checkpointed(recovery_point=80, clean=clean))
        assert content(again, max_bytes=200) == whole
        assert [segment.max_timestamp for segment in again.segments] == [s.max_timestamp for s in log.segments]
        assert expected
        assert again.timestamp_search(NOW + 17)() == (NOW + 17, 34, 1)

    def test_an_index_without_its_log_is_removed(self) -> None:
        disk = MemoryDisk()
        filled(disk, 2)
        disk.open(f"{DIRECTORY}/00000000000000000099.index", create=True)
        opened(disk, SMALL)
        assert "00000000000000000099.index" not in names(disk)

    def test_an_empty_directory_is_an_empty_log_at_the_known_start(self) -> None:
        disk = MemoryDisk()
        disk.make_directory(DIRECTORY)
        log = opened(disk, known=Checkpointed(log_start_offset=17))
        assert (log.log_start_offset, log.log_end_offset) == (17, 17)

    def test_a_log_that_ends_below_its_start_starts_over_there(self) -> None:
        disk = MemoryDisk()
        filled(disk)
        log = opened(disk, SMALL, Checkpointed(log_start_offset=500))
        assert (log.log_start_offset, log.log_end_offset, log.size, log.epochs.entries) == (500, 500, 0, ())

    @pytest.mark.parametrize("data", [b"", b"0\n7\n1 1\n", b"\xff"])
    def test_epochs_come_from_the_log_when_their_file_is_damaged(self, data: bytes) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        path = f"{DIRECTORY}/leader-epoch-checkpoint"
        file = disk.open(path, write=True)
        file.truncate(0)
        file.write_at(data, 0)
        again = opened(disk, SMALL, Checkpointed(recovery_point=log.segments.active.base_offset))
        assert again.epochs.entries == log.epochs.entries == ((0, 0), (1, 20), (2, 40), (3, 60))
        assert read_whole(disk, path) == b"0\n4\n0 0\n1 20\n2 40\n3 60\n"

    @pytest.mark.parametrize("clean", [False, True])
    def test_epochs_are_read_again_with_records_whose_deletion_was_lost(self, clean: bool) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        log.advance_log_start(45)
        assert log.epochs.entries == ((2, 45), (3, 60))
        point = log.segments.active.base_offset
        if clean:
            log.close()
        again = opened(disk, SMALL, Checkpointed(recovery_point=point, clean=clean))  # no checkpoint of the log's start
        assert again.log_start_offset == 0
        assert again.epochs.entries == ((0, 0), (1, 20), (2, 40), (3, 60))
        assert read_whole(disk, f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n4\n0 0\n1 20\n2 40\n3 60\n"
        assert again.epochs.end_offset_for(1) == (1, 40)
        half = opened(disk, SMALL, Checkpointed(recovery_point=point, log_start_offset=30))
        assert half.epochs.entries == ((1, 30), (2, 40), (3, 60))

    def test_no_epoch_comes_back_from_below_a_batch_that_names_none(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        for epoch, first in ((4, 0), (-1, 1), (5, 2), (6, 3)):
            log.append_as_follower(memoryview(fetched(first, [b"v"], epoch=epoch)))
        log.epochs.truncate_from_start(4)
        log.close()
        assert opened(disk, SMALL, Checkpointed(clean=True)).epochs.entries == ((5, 2), (6, 3))

    def test_an_epoch_nobody_wrote_under_goes_at_the_start(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        log.epochs.assign(9, 80)
        assert opened(disk, SMALL).epochs.latest == 3


class TestLeftovers:
    def test_temporary_files_go_and_a_decided_swap_is_finished(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        whole = content(log)
        first = log.segments[0]
        data = read_whole(disk, first.path(".log"))
        for name in ("00000000000000000000.log.deleted", "00000000000000000500.index.deleted"):
            disk.open(f"{DIRECTORY}/{name}", create=True)
        swap = disk.open(first.path(".log", ".swap"), create=True, write=True)
        swap.write_at(data, 0)
        again = opened(disk, SMALL, Checkpointed(recovery_point=80))
        assert content(again) == whole
        assert not [name for name in names(disk) if name.endswith((".deleted", ".swap", ".cleaned"))]

    def test_recovery_does_not_touch_leases(self) -> None:
        disk = MemoryDisk()
        filled(disk, 2)
        disk.make_directory(f"{DIRECTORY}/.leases/abc/links")
        opened(disk, SMALL)
        assert disk.exists(f"{DIRECTORY}/.leases/abc/links")


def test_old_message_formats_are_walked_and_checked() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    import struct
    import zlib

    def legacy(offset: int) -> bytes:
        body = struct.pack(">bbqii", 1, 0, NOW + offset, -1, 3) + b"old"
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    data = b"".join(legacy(offset) for offset in range(10))
    log.append_as_follower(memoryview(data))
    again = opened(disk)
    assert (again.log_end_offset, content_bytes(again)) == (10, data)
    assert again.timestamp_search(NOW + 4)() == (NOW + 4, 4, -1)
    spoil(disk, log_file(0), len(data) - 1)
    assert opened(disk).log_end_offset == 9


def content_bytes(log: PartitionLog) -> bytes:
    return bytes(log.read(0, 1 << 20, limit_offset=log.log_end_offset, min_one=True).load())


def test_a_clean_start_of_an_empty_log_writes_nothing_for_the_epoch_it_was_led_in() -> None:
    disk = MemoryDisk()
    log = new_log(disk, SMALL)
    log.epochs.assign(7, 0)  # as a leader does, before anything is appended
    log.close()
    before = read_whole(disk, f"{DIRECTORY}/leader-epoch-checkpoint")
    inode = disk.status(f"{DIRECTORY}/leader-epoch-checkpoint").inode
    again = opened(disk, SMALL, Checkpointed(clean=True))
    assert list(again.epochs.entries) == []
    assert read_whole(disk, f"{DIRECTORY}/leader-epoch-checkpoint") == before
    assert disk.status(f"{DIRECTORY}/leader-epoch-checkpoint").inode == inode
    again.append_as_leader(produced([b"v"]), 8, now_ms=NOW)
    again.close()
    assert [(e.epoch, e.start_offset) for e in opened(disk, SMALL, Checkpointed(clean=True)).epochs.entries] == [(8, 0)]


def test_an_unclean_start_brings_the_epoch_file_in_line() -> None:
    disk = MemoryDisk()
    log = new_log(disk, SMALL)
    log.epochs.assign(7, 0)
    assert list(opened(disk, SMALL).epochs.entries) == []
    assert read_whole(disk, f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize("outage", [None, lambda count: 0, lambda count: count // 2, lambda count: count - 1])
def test_a_log_to_which_nothing_came_is_closed_without_a_sync_and_opens_clean_again(
    outage: Callable[[int], int] | None,
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.append_as_leader(produced([b"of a producer"], producer_id=7, producer_epoch=0, base_sequence=0), 4, now_ms=NOW)
    whole, end = content(log), log.log_end_offset
    log.close()
    again = opened(disk, SMALL, Checkpointed(recovery_point=end, clean=True))
    again.epochs.assign(9, end)
    disk.syncs = 0
    again.close()
    assert disk.syncs == 0
    disk.restart(choose=outage)
    notes: list[str] = []
    last = opened(disk, SMALL, Checkpointed(recovery_point=end, clean=True), notes)
    assert outage is not None or notes == []
    assert content(last) == whole
    assert (last.log_end_offset, last.producers.entries[7].last_sequence) == (end, 0)


def test_a_log_that_grew_or_was_cut_after_a_clean_start_is_synced_when_it_is_closed() -> None:
    changes: tuple[Callable[[PartitionLog], object], ...] = (
        lambda log: log.append_as_leader(produced([b"new"]), 5, now_ms=NOW),
        lambda log: log.truncate_to(70),
    )
    for change in changes:
        disk = MemoryDisk()
        filled(disk).close()
        again = opened(disk, SMALL, Checkpointed(recovery_point=80, clean=True))
        change(again)
        whole, end, disk.syncs = content(again), again.log_end_offset, 0
        again.close()
        assert disk.syncs > 0
        disk.restart(choose=lambda count: 0)
        assert content(opened(disk, SMALL, Checkpointed(recovery_point=end, clean=True))) == whole
