"""PartitionLog: appends, by a leader and by a follower, and where they begin a new segment."""

import errno
import struct

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.records.crc import crc32c
from tests.support.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    content,
    fetched,
    fill,
    marker,
    names,
    new_log,
    offsets,
    opened,
    produced,
    refusal,
    transactional,
)


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

    def test_an_empty_log_refuses_a_header_that_makes_no_sense_as_any_other_does(self) -> None:
        damaged = bytearray(fetched(0, [b"a"]))
        damaged[16] = 9  # the magic
        assert refusal(new_log().append_as_follower, memoryview(damaged)) is ErrorCode.CORRUPT_MESSAGE

    def test_an_empty_log_takes_the_batch_its_start_lies_in(self) -> None:
        log = new_log(start_offset=5)
        log.append_as_follower(memoryview(fetched(3, [b"x"] * 4)))
        assert (log.log_start_offset, log.log_end_offset, log.segments.active.base_offset) == (5, 7, 3)
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
        assert disk.status(log.segments.active.path(".log")).size == 1000
        assert disk.status(log.segments[0].path(".log")).size == log.segments[0].size < 1000
        killed = opened(disk, config)
        assert content(killed) == whole
        killed.append_as_leader(produced([b"on"]), 0, now_ms=NOW)
        killed.close()
        assert disk.status(killed.segments.active.path(".log")).size == killed.segments.active.size
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
