"""PartitionLog: appends, reads, cuts, retention, flushes."""

import errno
import struct

import pytest

from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log.disk import DiskError, DiskFile
from logyard.broker.log.log import Origin, PartitionLog
from logyard.broker.log.memory_disk import MemoryDisk
from logyard.broker.log.open_segments import OpenSegments
from logyard.broker.log.recovery import Checkpointed
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.records.crc import crc32c
from logyard.broker.topic_config import TopicConfig
from tests.support.logs import (
    DIRECTORY,
    NOW,
    content,
    fetched,
    marker,
    names,
    new_log,
    offsets,
    opened,
    produced,
)

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=100)


def fill(log: PartitionLog, count: int, values: int = 2, epoch: int = 0) -> None:
    for number in range(count):
        log.append_as_leader(produced([b"v%03d" % number] * values), epoch, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)


def refusal(call: object, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call(*args, **kwargs)  # type: ignore[operator]
    return refused.value.code


class TestAppendAsLeader:
    def test_offsets_and_epoch_are_stamped_into_the_callers_buffer_and_the_file(self) -> None:
        log = new_log()
        first = produced([b"a", b"b"])
        second = produced([b"c"])
        assert log.append_as_leader(first, 3, now_ms=NOW)[:2] == (0, 1)
        info = log.append_as_leader(second, 4, now_ms=NOW)
        assert (info.first_offset, info.last_offset, info.size, info.append_time_ms) == (2, 2, len(second), -1)
        assert content(log) == bytes(first) + bytes(second)
        headers = [header for _, header in batch.iter_headers(content(log))]
        assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 3), (2, 4)]
        assert log.epochs.entries == ((3, 0), (4, 2))

    def test_log_append_time_replaces_the_producers(self) -> None:
        log = new_log(config=TopicConfig(message_timestamp_type="LogAppendTime"))
        info = log.append_as_leader(produced([b"a"], timestamp=5), 0, now_ms=NOW)
        assert (info.append_time_ms, info.max_timestamp) == (NOW, NOW)
        data = memoryview(content(log))
        header = batch.parse_header(data)
        assert header.max_timestamp == NOW
        assert batch.verify_crc(data, 0, header)

    def test_refused_batches_change_nothing(self) -> None:
        log = new_log(config=TopicConfig(max_message_bytes=200, cleanup_policy=frozenset({"compact"})))
        broken = produced([b"a"])
        broken[-1] ^= 1
        before = bytes(broken)
        assert refusal(log.append_as_leader, broken, 0, now_ms=NOW) is ErrorCode.CORRUPT_MESSAGE
        assert bytes(broken) == before
        assert refusal(log.append_as_leader, produced([b"x" * 300]), 0, now_ms=NOW) is ErrorCode.MESSAGE_TOO_LARGE
        assert refusal(log.append_as_leader, produced([b"x"], key=None), 0, now_ms=NOW) is ErrorCode.INVALID_RECORD
        assert refusal(log.append_as_leader, memoryview(bytearray(5)), 0, now_ms=NOW) is ErrorCode.CORRUPT_MESSAGE
        assert (log.log_end_offset, log.size, log.epochs.latest) == (0, 0, None)

    def test_more_than_a_segment_at_once_is_refused(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=100))
        assert refusal(log.append_as_leader, produced([b"x" * 90]), 0, now_ms=NOW) is ErrorCode.RECORD_LIST_TOO_LARGE

    def test_a_failed_write_is_not_in_the_log(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        fill(log, 1)
        disk.fail(DIRECTORY, errno.ENOSPC)
        with pytest.raises(DiskError, match="t-0"):
            log.append_as_leader(produced([b"lost"]), 0, now_ms=NOW)
        disk.heal()
        assert log.log_end_offset == 2
        assert offsets(content(log)) == [(0, 1)]


class TestProducers:
    def test_a_repeated_batch_is_answered_with_its_old_offsets(self) -> None:
        log = new_log()
        for sequence in range(6):
            log.append_as_leader(
                produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=sequence), 0, now_ms=NOW
            )
        again = log.append_as_leader(produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=2), 0, now_ms=NOW)
        assert (again.duplicate, again.first_offset, again.last_offset, again.size) == (True, 2, 2, 0)
        assert log.log_end_offset == 6
        forgotten = produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=0)
        assert refusal(log.append_as_leader, forgotten, 0, now_ms=NOW) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_gaps_and_old_epochs_are_refused(self) -> None:
        log = new_log()
        log.append_as_leader(produced([b"v"] * 3, producer_id=7, producer_epoch=1, base_sequence=0), 0, now_ms=NOW)
        gap = produced([b"v"], producer_id=7, producer_epoch=1, base_sequence=4)
        assert refusal(log.append_as_leader, gap, 0, now_ms=NOW) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        old = produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=3)
        assert refusal(log.append_as_leader, old, 0, now_ms=NOW) is ErrorCode.INVALID_PRODUCER_EPOCH
        late_start = produced([b"v"], producer_id=7, producer_epoch=2, base_sequence=3)
        assert refusal(log.append_as_leader, late_start, 0, now_ms=NOW) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.append_as_leader(produced([b"v"], producer_id=7, producer_epoch=2, base_sequence=0), 0, now_ms=NOW)
        assert log.log_end_offset == 4

    def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated(self) -> None:
        log = new_log()
        fill(log, 1)
        log.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
        fill(log, 1)
        assert (log.high_watermark, log.last_stable_offset) == (5, 2)
        log.append_as_leader(marker(batch.ABORT, producer_id=7), 0, now_ms=NOW, origin=Origin.COORDINATOR)
        assert log.last_stable_offset == 2
        log.set_high_watermark(6)
        assert log.last_stable_offset == 6
        assert log.aborted_transactions(0, 6) == [(7, 2, 5, 6)]
        assert log.aborted_transactions(0, 2) == []

    def test_a_marker_of_an_older_coordinator_is_fenced(self) -> None:
        log = new_log()
        log.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
        new = marker(batch.COMMIT, producer_id=7, coordinator_epoch=5)
        log.append_as_leader(new, 0, now_ms=NOW, origin=Origin.COORDINATOR)
        old = marker(batch.COMMIT, producer_id=7, coordinator_epoch=4)
        code = refusal(log.append_as_leader, old, 0, now_ms=NOW, origin=Origin.COORDINATOR)
        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_a_plain_batch_inside_a_transaction_is_refused(self) -> None:
        log = new_log()
        log.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
        plain = produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=1)
        assert refusal(log.append_as_leader, plain, 0, now_ms=NOW) is ErrorCode.INVALID_TXN_STATE


def transactional(producer_id: int, sequence: int) -> memoryview:
    return produced([b"txn"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


class TestAppendAsFollower:
    def test_transactions_that_overlap_in_one_fetch_are_all_found(self) -> None:
        leader, follower = new_log(), new_log()
        leader.append_as_leader(transactional(7, 0), 0, now_ms=NOW)
        leader.append_as_leader(transactional(8, 0), 0, now_ms=NOW)
        for producer in (8, 7):
            made = marker(batch.ABORT, producer_id=producer)
            leader.append_as_leader(made, 0, now_ms=NOW, origin=Origin.COORDINATOR)
        follower.append_as_follower(memoryview(bytearray(content(leader))))
        for log in (leader, follower):
            log.set_high_watermark(4)
            # Producer 7's was still open when 8's was aborted: whoever reads the first two records has to skip both.
            assert log.aborted_transactions(0, 2) == [(8, 1, 2, 0), (7, 0, 3, 4)]

    def test_bytes_are_kept_and_epochs_and_producers_taken_from_them(self) -> None:
        log = new_log()
        data = fetched(0, [b"a", b"b"], epoch=1) + fetched(
            2, [b"c"], epoch=4, producer_id=9, producer_epoch=0, base_sequence=0
        )
        info = log.append_as_follower(memoryview(data + fetched(3, [b"cut"])[:-1]))
        assert (info.first_offset, info.last_offset, info.size) == (0, 2, len(data))
        assert content(log) == data
        assert log.epochs.entries == ((1, 0), (4, 2))
        assert log.producers.entries[9].last_offset == 2

    def test_a_wrong_crc_and_offsets_that_do_not_follow_are_refused_whole(self) -> None:
        log = new_log()
        broken = bytearray(fetched(0, [b"a"]) + fetched(1, [b"b"]))
        broken[-1] ^= 1
        assert refusal(log.append_as_follower, memoryview(broken)) is ErrorCode.CORRUPT_MESSAGE
        log.append_as_follower(memoryview(fetched(0, [b"a", b"b"])))
        assert refusal(log.append_as_follower, memoryview(fetched(1, [b"b"]))) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.log_end_offset == 2

    def test_an_empty_log_takes_the_batch_its_start_lies_in(self) -> None:
        log = new_log(start_offset=5)
        log.append_as_follower(memoryview(fetched(3, [b"x"] * 4)))
        assert (log.log_start_offset, log.log_end_offset, log.active.base_offset) == (5, 7, 3)
        assert offsets(content(log)) == [(3, 6)]

    def test_a_fetch_larger_than_a_segment_fills_several(self) -> None:
        log = new_log(config=SMALL)
        data = b"".join(fetched(number, [b"x" * 200]) for number in range(20))
        log.append_as_follower(memoryview(data))
        assert content(log) == data
        assert len(log.segments) > 4
        assert all(segment.size <= 1000 for segment in log.segments)


class TestRoll:
    def test_by_size(self) -> None:
        log = new_log(config=SMALL)
        fill(log, 40)
        assert all(segment.size <= 1000 for segment in log.segments)
        assert len(log.segments) > 3
        assert offsets(content(log)) == [(n * 2, n * 2 + 1) for n in range(40)]

    def test_by_the_records_own_time_less_jitter(self) -> None:
        log = new_log(config=TopicConfig(segment_ms=1000))
        for timestamp in (NOW, NOW + 1000, NOW + 1001, NOW + 1500):
            log.append_as_leader(produced([b"v"], timestamp=timestamp), 0, now_ms=NOW)
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        jittery = new_log(config=TopicConfig(segment_ms=1000, segment_jitter_ms=1000))
        for timestamp in (NOW, NOW + 1000):
            jittery.append_as_leader(produced([b"v"], timestamp=timestamp), 0, now_ms=NOW)
        assert len(jittery.segments) == 2

    def test_by_a_full_index(self) -> None:
        log = new_log(config=TopicConfig(segment_index_bytes=36, index_interval_bytes=1))
        fill(log, 12)
        assert [segment.base_offset for segment in log.segments] == [0, 10, 20]

    def test_by_an_offset_too_far_from_the_base(self) -> None:
        log = new_log()
        log.append_as_follower(memoryview(fetched(0, [b"a"])))
        log.append_as_follower(memoryview(fetched(2**31 + 5, [b"b"])))
        assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]
        assert offsets(content(log)) == [(0, 0), (2**31 + 5, 2**31 + 5)]

    def test_log_files_are_preallocated_where_the_topic_asks_for_it(self) -> None:
        disk = MemoryDisk()
        config = TopicConfig(segment_bytes=1000, preallocate=True)
        log = new_log(disk, config)
        fill(log, 20)
        whole = content(log)
        assert disk.status(log.active.path(".log")).size == 1000
        assert disk.status(log.segments[0].path(".log")).size == log.segments[0].size < 1000
        killed = opened(disk, config)
        assert content(killed) == whole
        killed.append_as_leader(produced([b"on"]), 0, now_ms=NOW)
        killed.close()
        assert disk.status(killed.active.path(".log")).size == killed.active.size
        again = opened(disk, config, Checkpointed(recovery_point=41, clean=True))
        assert content(again) == content(opened(disk, config))
        assert again.log_end_offset == 41

    def test_index_files_are_preallocated_while_active_and_trimmed_when_sealed(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk)
        path = f"{DIRECTORY}/00000000000000000000"
        assert disk.status(path + ".index").size == 10485760
        assert disk.status(path + ".timeindex").size == 10485756
        fill(log, 100)
        log.roll(log.log_end_offset, NOW)
        assert disk.status(path + ".index").size == len(log.segments[0].index) * 8 > 0
        assert disk.status(path + ".timeindex").size == 12
        assert f"{log.log_end_offset:020d}.snapshot" in names(disk)


class TestRead:
    def test_a_fetch_inside_a_batch_gets_the_whole_batch(self) -> None:
        log = new_log()
        fill(log, 3, values=10)
        piece = log.read(15, 1, limit_offset=30, min_one=True)
        assert offsets(piece.load()) == [(10, 19)]

    def test_bounds(self) -> None:
        log = new_log()
        fill(log, 10)
        one = len(content(log)) // 10
        sized = log.read(0, one * 3 + 1, limit_offset=20, min_one=False)
        assert offsets(sized.load()) == [(0, 1), (2, 3), (4, 5)]
        assert sized.size == one * 3
        assert log.read(0, one - 1, limit_offset=20, min_one=False).size == 0
        assert log.read(0, 0, limit_offset=20, min_one=True).size == one
        limited = log.read(2, 1 << 20, limit_offset=6, min_one=True)
        assert offsets(limited.load()) == [(2, 3), (4, 5)]
        assert log.read(6, 1 << 20, limit_offset=6, min_one=True).size == 0
        inside_a_batch = log.read(0, 1 << 20, limit_offset=5, min_one=True)
        assert offsets(inside_a_batch.load()) == [(0, 1), (2, 3)]

    def test_out_of_range(self) -> None:
        log = new_log(start_offset=10)
        assert log.read(10, 100, limit_offset=10, min_one=True).load_nowait() == b""
        assert refusal(log.read, 9, 100, limit_offset=10, min_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refusal(log.read, 11, 100, limit_offset=10, min_one=True) is ErrorCode.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize("max_bytes", [1, 150, 333, 5000])
    def test_sealed_segments_are_found_and_let_go_of(self, max_bytes: int) -> None:
        log = new_log(config=SMALL, open_segments=OpenSegments(files_max=2))
        fill(log, 60)
        log.flush()
        whole = b"".join(bytes(s.read(s.size, 0)) for s in log.segments)
        assert content(log, max_bytes=max_bytes) == whole
        assert sum(segment.file is not None for segment in log.segments) <= 3

    def test_what_is_not_cached_is_left_to_load(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        whole = content(log)
        disk.cold = True
        for segment in log.segments[:-1]:
            segment.release()
        piece = log.read(0, 200, limit_offset=120, min_one=True)
        assert piece.is_cold
        assert piece.load_nowait() is None
        assert offsets(piece.load()) == [(0, 1), (2, 3)]
        assert content(log, max_bytes=300) == whole

    def test_a_damaged_index_is_made_again(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        whole = content(log)
        for segment in log.segments[:-1]:
            segment.release()
            disk.open(segment.path(".index"), write=True).write_at(b"\xff\xff\xff", 0)
        assert content(log) == whole

    def test_a_slice_reads_on_after_its_segment_was_deleted_but_not_after_a_truncation(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 40)
        content(log)
        piece = log.read(0, 100, limit_offset=80, min_one=True)
        tail = log.read(70, 100, limit_offset=80, min_one=True)
        assert log.delete_old_segments(NOW + 5000) > 1
        assert offsets(piece.load()) == [(0, 1)]
        log = new_log()
        fill(log, 40)
        tail = log.read(70, 100, limit_offset=80, min_one=True)
        log.truncate_to(60)
        fill(log, 40)
        assert tail.load_nowait() == b""
        assert tail.load() == b""

    def test_a_segment_that_somebody_removed_is_a_storage_error_of_its_own(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        log.segments[0].release()
        disk.remove(log.segments[0].path(".log"))
        with pytest.raises(StorageError, match="00000000000000000000"):
            log.read(0, 100, limit_offset=120, min_one=True)
        assert log.read(100, 100, limit_offset=120, min_one=True).size > 0


class TestTimestamps:
    def test_the_first_record_that_is_not_older(self) -> None:
        log = new_log(config=SMALL)
        for number in range(30):
            log.append_as_leader(produced([b"v"] * 3, timestamp=NOW + number * 10), 2, now_ms=NOW)
        assert log.timestamp_search(0)() == (NOW, 0, 2)
        assert log.timestamp_search(NOW + 101)() == (NOW + 110, 33, 2)
        assert log.timestamp_search(NOW + 290)() == (NOW + 290, 87, 2)
        assert log.timestamp_search(NOW + 291)() is None
        assert log.max_timestamp_search()() == (NOW + 290, 87, 2)

    def test_nothing_below_the_log_start(self) -> None:
        log = new_log()
        log.append_as_leader(produced([b"v"] * 3), 0, now_ms=NOW)
        log.set_high_watermark(3)
        log.advance_log_start(2)
        assert log.timestamp_search(0)() == (NOW, 2, 0)

    def test_an_empty_log_has_none(self) -> None:
        assert new_log().timestamp_search(0)() is None
        assert new_log().max_timestamp_search()() is None


class TestTruncate:
    def test_across_segments(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 30, epoch=1)
        fill(log, 30, epoch=2)
        log.flush()
        assert log.truncate_to(21)
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (20, 20, 20)
        assert offsets(content(log)) == [(n * 2, n * 2 + 1) for n in range(10)]
        assert log.epochs.entries == ((1, 0),)
        assert not log.truncate_to(20)
        fill(log, 5, epoch=3)
        assert log.epochs.entries == ((1, 0), (3, 20))
        assert content(opened(disk, SMALL)) == content(log)

    def test_producers_go_back_to_what_is_left(self) -> None:
        log = new_log(config=SMALL)
        for sequence in range(40):
            data = produced([b"x" * 50], producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(data, 0, now_ms=NOW)
        log.append_as_leader(transactional(8, 0), 0, now_ms=NOW)
        log.truncate_to(25)
        assert log.reload is not None, "a transaction was open"
        log.want_producers()
        assert log.reload is None
        assert log.producers.entries[7].last_sequence == 24
        assert 8 not in log.producers.entries
        assert log.producers.first_unstable_offset is None
        log.append_as_leader(produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=25), 0, now_ms=NOW)

    def test_fully(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 30)
        log.truncate_fully(1000)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size) == (1000, 1000, 1000, 0)
        assert log.epochs.entries == ()
        log.append_as_follower(memoryview(fetched(1000, [b"x"])))
        log.flush()
        assert content(opened(disk, SMALL)) == content(log)

    def test_below_the_first_segment_starts_over_there(self) -> None:
        log = new_log(start_offset=100)
        fill(log, 3)
        log.truncate_to(50)
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)

    def test_the_keeper_hears_of_a_rewind_before_anything_is_cut(self) -> None:
        disk = MemoryDisk()
        heard: list[tuple[int, int]] = []

        class Keeper:
            def rolled(self, tp: object) -> None: ...
            def retired(self, tp: object, paths: object) -> None: ...
            def cut(self, tp: object, offset: int) -> None: ...
            def rewinding(self, tp: object) -> None:
                heard.append((log.recovery_point, log.log_end_offset))

        log = new_log(disk, keeper=Keeper())
        fill(log, 10)
        log.truncate_to(18)
        log.flush()
        log.truncate_to(6)
        assert heard == [(6, 18)]


class TestRetention:
    def test_by_time_below_the_high_watermark_only(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 40)
        log.high_watermark = 30
        assert log.delete_old_segments(NOW + 1000) == 0
        assert log.delete_old_segments(NOW + 1001) == 1
        assert log.log_start_offset == log.segments[0].base_offset <= 30 < log.segments[1].base_offset
        log.set_high_watermark(80)
        log.delete_old_segments(NOW + 1001)
        assert (log.log_start_offset, log.log_end_offset, log.size) == (80, 80, 0)
        assert log.delete_old_segments(NOW + 10**9) == 0

    def test_by_size(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_bytes=2000, retention_ms=-1))
        fill(log, 40)
        sizes = [segment.size for segment in log.segments]
        log.delete_old_segments(NOW)
        assert log.size >= 2000
        assert log.size - log.segments[0].size < 2000
        assert sum(sizes) > log.size

    def test_below_the_log_start_even_if_compacted(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}), retention_ms=1))
        fill(log, 40)
        assert log.delete_old_segments(NOW + 10**9) == 0
        log.advance_log_start(45)
        assert log.delete_old_segments(NOW) == 2
        assert log.segments[0].base_offset <= 45 < log.segments[1].base_offset
        assert log.log_start_offset == 45

    def test_held_segments_stay(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1))
        fill(log, 40)
        bases = [segment.base_offset for segment in log.segments]
        log.hold("lease", bases[1:])
        assert log.delete_old_segments(NOW + 10**9) == 1
        log.release_hold("lease")
        assert log.delete_old_segments(NOW + 10**9) == len(bases) - 1

    def test_log_start_stays_below_the_high_watermark(self) -> None:
        log = new_log()
        fill(log, 3)
        assert refusal(log.advance_log_start, 7) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.advance_log_start(6)
        assert not log.advance_log_start(5)
        assert log.epochs.entries == ((0, 6),)


class TestFlush:
    def test_the_recovery_point_moves_when_the_plan_has_run(self) -> None:
        log = new_log(config=SMALL)
        fill(log, 40)
        plan = log.prepare_flush(50)
        assert plan is not None
        plan.run()
        fill(log, 1)
        assert log.recovery_point == 0
        log.flushed(plan)
        assert log.recovery_point == 50
        log.flush()
        assert log.recovery_point == 82
        assert log.prepare_flush() is None

    def test_a_plan_overtaken_by_a_truncation_claims_nothing(self) -> None:
        log = new_log()
        fill(log, 10)
        plan = log.prepare_flush()
        assert plan is not None
        log.truncate_to(10)
        fill(log, 10)
        plan.run()
        log.flushed(plan)
        assert log.recovery_point == 0

    def test_flush_messages_is_honoured_before_the_append_returns(self) -> None:
        log = new_log(config=TopicConfig(flush_messages=4))
        fill(log, 1)
        assert log.recovery_point == 0
        fill(log, 1)
        assert log.recovery_point == 4

    def test_a_closed_log_opens_without_recovery(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 40)
        whole, entries = content(log), log.epochs.entries
        log.close()
        with pytest.raises(StorageError, match="closed"):
            log.read(0, 1, limit_offset=1, min_one=True)
        disk.restart(lambda n: 0)  # lose what was not synced
        notes: list[str] = []
        again = opened(disk, SMALL, Checkpointed(recovery_point=80, clean=True), notes)
        assert notes == []
        assert content(again) == whole
        assert (again.epochs.entries, again.recovery_point) == (entries, 80)
        assert again.active.max_timestamp == NOW


def test_topic_id_is_kept_and_another_one_refused() -> None:
    import uuid

    disk = MemoryDisk()
    log = new_log(disk)
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    log.assign_topic_id(one)
    log.assign_topic_id(one)
    assert refusal(log.assign_topic_id, other) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert opened(disk).topic_id == one


def test_every_record_is_checked_where_that_is_asked_for() -> None:
    # The header is right and the CRC fits, but the third record's offset delta is not 2.
    records = [Record(at, NOW, b"k", b"v") for at in (0, 1, 3)]
    wrong = batch.build(records, base_offset=0)
    struct.pack_into(">i", wrong, 23, 2)
    struct.pack_into(">I", wrong, 17, crc32c(memoryview(wrong)[21:]))
    new_log().append_as_leader(memoryview(bytearray(wrong)), 0, now_ms=NOW)
    log = new_log(validate_records=True)
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(memoryview(wrong), 0, now_ms=NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_a_segment_sealed_behind_a_flush_is_synced_with_the_next() -> None:
    disk = MemoryDisk()
    log = new_log(disk, TopicConfig(preallocate=True, segment_bytes=5000, index_interval_bytes=0))
    fill(log, 5)
    log.flush()
    log.roll(log.log_end_offset, NOW)
    log.flush()
    fill(log, 1)
    log.flush()
    assert log.prepare_flush() is None
    kept = content(log)
    disk.restart(lambda n: 0)  # nothing unsynced is left
    again = opened(disk, log.config, Checkpointed(recovery_point=log.recovery_point))
    assert content(again) == kept
    assert disk.status(again.segments[0].path(".log")).size == log.segments[0].size < 5000


def test_after_a_kill_a_preallocated_tail_is_no_damage() -> None:
    disk = MemoryDisk()
    log = new_log(disk, TopicConfig(preallocate=True, segment_bytes=5000))
    fill(log, 20)
    again = opened(disk, log.config)
    assert content(again) == content(log)
    assert disk.status(again.active.path(".log")).size == 5000
    fill(again, 5, epoch=1)
    assert content(opened(disk, log.config)) == content(again)


def test_a_thread_keeps_what_it_reads_though_the_segment_lets_go_of_it() -> None:
    log = new_log(config=SMALL)
    fill(log, 40)
    segment = log.segments[0]

    class Impatient(MemoryDisk):
        """Lets the segment go whenever a file of it is opened, as another reader's turn might."""

        def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
            found = log.disk.open(path, create=create, write=write)
            segment.release()
            return found

    segment.release()
    segment.disk = Impatient()
    assert segment.index.floor(segment.base_offset) == 0
    assert segment.time_index.floor(0) == segment.base_offset
    assert segment.log_file().size() == segment.size
    assert log.timestamp_search(NOW)() == (NOW, 0, 0)
