"""PartitionLog: truncations, retention, and what is durable."""

import errno
from collections.abc import Iterable

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.log import producer_history
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError, read_whole
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import ProducerEntry, decode_snapshot, encode_snapshot
from logyard.broker.log.recovery import replay
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.retention import delete_old_segments
from tests.support.logs import (
    NOW,
    SMALL,
    content,
    fetched,
    fill,
    new_log,
    offsets,
    opened,
    produced,
    refusal,
    transactional,
)


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

    def test_refused_for_lack_of_descriptors_changes_nothing(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        fill(log, 30)
        before = content(log)
        kept = log.segments[log.segments.number_of(21)]
        kept.load_indexes()
        disk.fail(kept.path(".timeindex"), errno.EMFILE)
        with pytest.raises(DiskError):
            log.truncate_to(21)
        assert log.log_end_offset == 60
        assert content(log) == before
        disk.heal()
        assert log.truncate_to(21)
        fill(log, 5)
        assert offsets(content(log)) == [(n * 2, n * 2 + 1) for n in range(15)]
        assert content(opened(disk, SMALL)) == content(log)

    def test_producers_go_back_to_what_is_left(self) -> None:
        log = new_log(config=SMALL)
        for sequence in range(40):
            data = produced([b"x" * 50], producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(data, 0, now_ms=NOW)
        log.append_as_leader(transactional(8, 0), 0, now_ms=NOW)
        log.truncate_to(25)
        assert log.pending_reload is not None, "a transaction was open"
        log.want_producers()
        assert log.pending_reload is None
        assert log.producers.entries[7].last_sequence == 24
        assert 8 not in log.producers.entries
        assert log.producers.first_unstable_offset is None
        log.append_as_leader(produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=25), 0, now_ms=NOW)

    @pytest.mark.parametrize("harm", ["a byte", "gone"])
    def test_producers_that_cannot_be_read_again_do_not_close_the_log(
        self, harm: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = MemoryDisk()
        log = new_log(disk, SMALL)
        for sequence in range(40):
            data = produced([b"x" * 50], producer_id=7, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(data, 0, now_ms=NOW)
        for offset in replay.snapshot_offsets(disk, log.directory):
            disk.remove(replay.snapshot_path(log.directory, offset))
        log.append_as_leader(transactional(8, 0), 0, now_ms=NOW)
        path = log.segments[1].path(".log")
        log.segments[1].release()
        log.truncate_to(35)
        assert log.pending_reload is not None
        if harm == "gone":
            disk.remove(path)
        else:
            disk.open(path, write=True).write_at(b"\x63", 16)  # the first batch's magic
        told: list[str] = []
        monkeypatch.setattr(log.host.listener, "damaged", lambda _log, what: told.append(what))
        log.append_as_leader(produced([b"v"], producer_id=7, producer_epoch=0, base_sequence=35), 0, now_ms=NOW)
        log.append_as_leader(produced([b"v"]), 0, now_ms=NOW)
        assert log.pending_reload is None
        assert len(told) == 1
        assert path.rpartition("/")[2] in told[0]

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

    def test_the_listener_is_called_before_anything_is_cut(self) -> None:
        disk = MemoryDisk()
        heard: list[tuple[int, int]] = []

        class Listener:
            def rolled(self, tp: object) -> None: ...
            def retired(self, tp: object, paths: object) -> None: ...
            def cut(self, tp: object, offset: int) -> None: ...
            def cutting(self, tp: object, offset: int) -> None:
                heard.append((offset, log.log_end_offset))

        log = new_log(disk, listener=Listener())
        fill(log, 10)
        log.truncate_to(18)
        log.flush()
        log.truncate_to(6)
        assert heard == [(18, 20), (6, 18)]


class TestRetention:
    def test_by_time_below_the_high_watermark_only(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 40)
        log.high_watermark = 30
        assert delete_old_segments(log, NOW + 1000) == 0
        assert delete_old_segments(log, NOW + 1001) == 1
        assert log.log_start_offset == log.segments[0].base_offset <= 30 < log.segments[1].base_offset
        log.set_high_watermark(80)
        delete_old_segments(log, NOW + 1001)
        assert (log.log_start_offset, log.log_end_offset, log.size) == (80, 80, 0)
        assert delete_old_segments(log, NOW + 10**9) == 0

    def test_by_size(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_bytes=2000, retention_ms=-1))
        fill(log, 40)
        sizes = [segment.size for segment in log.segments]
        delete_old_segments(log, NOW)
        assert log.size >= 2000
        assert log.size - log.segments[0].size < 2000
        assert sum(sizes) > log.size

    def test_below_the_log_start_even_if_compacted(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}), retention_ms=1))
        fill(log, 40)
        assert delete_old_segments(log, NOW + 10**9) == 0
        log.advance_log_start(45)
        assert delete_old_segments(log, NOW) == 2
        assert log.segments[0].base_offset <= 45 < log.segments[1].base_offset
        assert log.log_start_offset == 45

    def test_held_segments_stay(self) -> None:
        log = new_log(config=TopicConfig(segment_bytes=1000, retention_ms=1))
        fill(log, 40)
        bases = [segment.base_offset for segment in log.segments]
        log.segments.hold("lease", bases[1:])
        assert delete_old_segments(log, NOW + 10**9) == 1
        log.segments.release_hold("lease")
        assert delete_old_segments(log, NOW + 10**9) == len(bases) - 1

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
        log.flush_state.done(plan)
        assert log.recovery_point == 50
        log.flush()
        assert log.recovery_point == 82
        assert log.prepare_flush() is None

    def test_a_plan_overtaken_by_a_truncation_does_not_advance_the_recovery_point(self) -> None:
        log = new_log()
        fill(log, 10)
        plan = log.prepare_flush()
        assert plan is not None
        log.truncate_to(10)
        fill(log, 10)
        plan.run()
        log.flush_state.done(plan)
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
        assert again.segments.active.max_timestamp == NOW


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
    assert disk.status(again.segments.active.path(".log")).size == 5000
    fill(again, 5, epoch=1)
    assert content(opened(disk, log.config)) == content(again)


class TestSnapshotsOfManyProducers:
    """What a roll writes of very many producers is encoded and written by the flush, in its thread."""

    @pytest.fixture
    def log(self, monkeypatch: pytest.MonkeyPatch) -> PartitionLog:
        """Three segments; each of twenty producers has a batch in each."""
        monkeypatch.setattr(producer_history, "AT_ONCE", 10)
        encoded: list[int] = []

        def noting(entries: Iterable[ProducerEntry]) -> bytes:
            made = encode_snapshot(entries)
            encoded.append(len(made))
            return made

        monkeypatch.setattr(producer_history, "encode_snapshot", noting)
        log = new_log(config=TopicConfig(segment_bytes=2300))
        for sequence in range(4):
            for producer_id in range(20):
                data = produced([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
                log.append_as_leader(data, 0, now_ms=NOW)
        assert len(log.segments) == 3
        assert not encoded, "on the event loop"
        return log

    def snapshot(self, log: PartitionLog, number: int) -> bytes:
        return read_whole(log.disk, replay.snapshot_path(log.directory, log.segments[number].base_offset))

    def test_a_flush_writes_them(self, log: PartitionLog) -> None:
        assert [self.snapshot(log, number) for number in (1, 2)] == [b"", b""]
        plan = log.prepare_flush()
        assert plan is not None
        data = produced([b"v"], producer_id=3, producer_epoch=0, base_sequence=4)
        log.append_as_leader(data, 0, now_ms=NOW)
        plan.run()
        for number in (1, 2):
            base = log.segments[number].base_offset
            entries = decode_snapshot(self.snapshot(log, number))
            assert [entry.producer_id for entry in entries] == list(range(20))
            assert max(entry.last_offset for entry in entries) == base - 1, "as they were when it was rolled"
        log.flush_state.done(plan)
        following = log.prepare_flush()
        assert following is not None
        assert following.late == []
        log.close()
        again = opened(log.disk, log.config, Checkpointed(clean=True, recovery_point=log.log_end_offset))
        assert again.producers.entries.keys() == log.producers.entries.keys()
        assert again.producers.entries[3].last_sequence == 4

    def test_after_a_kill_they_are_read_from_the_log(self, log: PartitionLog) -> None:
        again = opened(log.disk, log.config)
        last = {producer_id: entry.last_sequence for producer_id, entry in again.producers.entries.items()}
        assert last == dict.fromkeys(range(20), 3)

    def test_those_above_a_cut_do_not_come_back(self, log: PartitionLog) -> None:
        plan, cut = log.prepare_flush(), log.segments[2].base_offset
        assert plan is not None
        log.truncate_to(cut - 1)
        plan.run()
        log.flush_state.done(plan)
        log.flush()
        assert cut not in replay.snapshot_offsets(log.disk, log.directory)
        assert [entry.producer_id for entry in decode_snapshot(self.snapshot(log, 1))] == list(range(20))


class TestCutsOfManyProducers:
    """Their states are cut in the thread that would read them."""

    @pytest.fixture
    def log(self, monkeypatch: pytest.MonkeyPatch) -> PartitionLog:
        """Twenty producers with four batches each: the batch of a producer's sequence is at 20 * sequence + its id."""
        monkeypatch.setattr(producer_history, "AT_ONCE", 10)
        log = new_log()
        for sequence in range(4):
            for producer_id in range(20):
                data = produced([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
                log.append_as_leader(data, 0, now_ms=NOW)
        return log

    def ends(self, log: PartitionLog) -> dict[int, int]:
        return {producer_id: entry.last_offset for producer_id, entry in log.producers.entries.items()}

    def test_a_thread_cuts_them_without_the_log(self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[object] = []
        monkeypatch.setattr(replay, "load_snapshot", lambda *found: read.append(found))
        log.truncate_to(70)
        first = log.pending_reload
        assert first is not None
        assert max(self.ends(log).values()) == 79, "nothing is cut on the event loop"
        log.truncate_to(50)
        second = log.pending_reload
        assert second is not None
        for reload in (first, second):
            reload.run()
            log.finish_reload(reload)
        assert log.pending_reload is None
        assert not read
        assert self.ends(log) == {each: each + (40 if each < 10 else 20) for each in range(20)}

    def test_the_log_is_read_where_a_producer_has_no_batch_left(self, log: PartitionLog) -> None:
        log.truncate_to(15)
        log.want_producers()
        assert self.ends(log) == {each: each for each in range(15)}
