"""A store's periodic work: flushes, checkpoints, retention, expiry of producers."""

import asyncio
import errno
from dataclasses import replace

import pytest

from logyard.broker import portions, tasks
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log import retention
from logyard.broker.log.disk.port import DiskError
from logyard.broker.log.layout import CHECKPOINTS
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.settings import settings_from
from logyard.broker.log.store import StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.logs import content, names, produced
from tests.support.stores import A0, A1, CONFIG, ID, ONE, House, settled, until, write


async def in_thread_now(house: House, name: str) -> None:
    """Wait until a checkpoint's new content lies aside, before it is put in place."""
    for _ in range(50):
        if house.disk.exists(f"{ONE}/{name}.tmp"):
            return
        await asyncio.sleep(0)
    raise AssertionError("it is not written")


class TestFlushesAndCheckpoints:
    async def test_sealed_segments_are_flushed_and_old_ones_removed(self, house: House) -> None:
        store = await house.loaded()
        config = TopicConfig(segment_bytes=1000, file_delete_delay_ms=20, retention_bytes=1500)
        log = store.logs.get_or_create(A0, ID, config, is_new=True)
        store.start()
        write(store, A0, 40)
        await until(lambda: log.recovery_point == log.segments.active.base_offset > 0)
        await until(lambda: log.log_start_offset > 0)
        await until(lambda: not any(name.endswith(".deleted") for name in names(house.disk, log.directory)))
        assert f"{log.segments[0].base_offset:020d}.log" in names(house.disk, log.directory)

    async def test_checkpoints_are_written_from_time_to_time(self, house: House) -> None:
        settings = StoreSettings(
            (ONE,),
            recovery_point_checkpoint_interval_ms=5,
            log_start_checkpoint_interval_ms=5,
            high_watermark_checkpoint_interval_ms=5,
        )
        store = await house.loaded(settings)
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        store.start()
        write(store, A0, 10)
        log.advance_log_start(3)
        log.flush()
        await until(lambda: store.checkpointed(A0)["recovery-point-offset-checkpoint"] == 20)
        await until(lambda: store.checkpointed(A0)["log-start-offset-checkpoint"] == 3)
        await until(lambda: store.checkpointed(A0)["replication-offset-checkpoint"] == 20)
        assert house.text(f"{ONE}/log-start-offset-checkpoint") == "0\n1\na 0 3\n"
        operations = house.disk.operations
        await asyncio.sleep(0.02)
        assert house.disk.operations == operations, "what has not changed is not written again"

    async def test_flush_ms_is_kept(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,), flush_scheduler_interval_ms=5))
        log = store.logs.get_or_create(A0, ID, TopicConfig(flush_ms=1000), is_new=True)
        store.start()
        write(store, A0)
        house.clock.set_wall(3600)
        await asyncio.sleep(0.02)
        assert log.recovery_point == 0
        house.clock.set_wall(-7200)
        house.clock.advance(2)
        await until(lambda: log.recovery_point == 2)

    async def test_silent_producers_are_forgotten(self, house: House) -> None:
        store = await house.loaded(
            StoreSettings((ONE,), initial_task_delay_ms=0, producer_id_expiration_check_interval_ms=5)
        )
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=0, timestamp=house.clock.now_ms())
        log.append_as_leader(data, 0, now_ms=house.clock.now_ms())
        store.start()
        await asyncio.sleep(0.02)
        assert len(log.producers) == 1
        house.clock.advance(60)
        await asyncio.sleep(0.02)
        assert len(log.producers) == 1
        store.producer_id_expiration_ms = 60_000  # changed while the broker runs
        await until(lambda: len(log.producers) == 0)

    async def test_a_truncation_below_the_checkpoint_rewrites_it_first(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        log.flush()
        await store.checkpoints.write_everywhere("recovery-point-offset-checkpoint")
        assert house.text(f"{ONE}/recovery-point-offset-checkpoint") == "0\n1\na 0 40\n"
        log.truncate_to(11)
        assert house.text(f"{ONE}/recovery-point-offset-checkpoint") == "0\n1\na 0 10\n"
        assert house.cuts == [(A0, 10)]

    async def test_producers_states_are_read_again_in_a_thread_after_a_truncation(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, read = Reload.run, []

        def noting(reload: Reload) -> None:
            read.append(log.log_end_offset)
            run(reload)

        monkeypatch.setattr(Reload, "run", noting)
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        for sequence in range(20):
            data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
            log.append_as_leader(data, 0, now_ms=0)
        log.truncate_to(11)
        assert log.pending_reload is not None
        await until(lambda: log.pending_reload is None)
        assert log.producers.entries[1].last_sequence == 10
        log.truncate_to(6)
        log.truncate_to(3)
        assert log.pending_reload is not None
        data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=3, transactional=True)
        assert read == [11], "the event loop reads no segment"
        with pytest.raises(ApiError) as refused:
            log.append_as_leader(data, 0, now_ms=0)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS, "clients and coordinators try again"
        with pytest.raises(ApiError):
            log.require_producers()
        assert retention.delete_old_segments(log, 1 << 60) == 0
        await until(lambda: log.pending_reload is None)
        log.append_as_leader(data, 0, now_ms=0)
        await settled()
        assert log.producers.entries[1].last_sequence == 3

    async def test_a_failed_reload_is_tried_again(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        """A follower appends nothing until then: after one missing file descriptor it would have stopped for ever."""
        monkeypatch.setattr(tasks, "PAUSE_S", 0.01)
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        for sequence in range(20):
            data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
            log.append_as_leader(data, 0, now_ms=0)
        run, tries = Reload.run, []

        def fails_first(reload: Reload) -> None:
            tries.append(reload)
            if len(tries) == 1:
                raise DiskError("/x", OSError(errno.EMFILE, "too many open files"))
            run(reload)

        monkeypatch.setattr(Reload, "run", fails_first)
        log.truncate_to(11)
        await until(lambda: log.pending_reload is None)
        assert log.producers.entries[1].last_sequence == 10

    async def test_a_directory_that_fails_while_it_is_read_again_is_offline(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is an error of the disk, and told as one: no task has failed."""
        failed: list[BaseException] = []
        monkeypatch.setattr(tasks, "failed", lambda name, error, again_in_s=None: failed.append(error))
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        for sequence in range(20):
            data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
            log.append_as_leader(data, 0, now_ms=0)
        log.truncate_to(11)
        house.disk.fail(ONE)
        await until(lambda: ONE not in store.online_directories)
        await settled()
        assert failed == []

    async def test_a_log_whose_files_were_taken_away_keeps_no_directory_locked(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)

        def gone() -> None:
            raise FileNotFoundError(log.directory)

        monkeypatch.setattr(log, "close", gone)
        await store.close()
        assert any("not closed cleanly" in note for note in house.notes)
        assert (await house.loaded()).logs.get(A0) is not None

    async def test_a_log_that_cannot_be_flushed_does_not_stop_the_others(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await house.loaded()
        bad, good = (store.logs.get_or_create(TopicPartition("a", n), ID, CONFIG, is_new=True) for n in (0, 1))
        for log in (bad, good):
            log.append_as_leader(produced([b"v"]), 0, now_ms=0)

        def gone(up_to: int | None = None) -> None:
            raise FileNotFoundError(bad.directory)

        monkeypatch.setattr(bad, "prepare_flush", gone)
        bad.host.listener.cut(bad, 1)
        good.host.listener.cut(good, 1)
        await store.flusher.flush_waiting()
        assert good.recovery_point == 1
        good.append_as_leader(produced([b"v"]), 0, now_ms=0)
        for log in (bad, good):
            log.config = replace(log.config, flush_ms=0)
        await store.flusher.flush_overdue()
        assert good.recovery_point == 2

    async def test_a_checkpoint_being_written_does_not_restore_the_old_recovery_point(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        log.flush()
        writing = asyncio.ensure_future(store.checkpoints.write_everywhere("recovery-point-offset-checkpoint"))
        await in_thread_now(house, "recovery-point-offset-checkpoint")
        log.truncate_to(10)
        await writing
        assert not house.disk.exists(f"{ONE}/recovery-point-offset-checkpoint")
        await store.checkpoints.write_everywhere("recovery-point-offset-checkpoint")
        assert house.text(f"{ONE}/recovery-point-offset-checkpoint") == "0\n1\na 0 10\n"

    async def test_the_cleaners_offset_is_durable_and_falls_with_the_log(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        await store.set_cleaner_offset(A0, 30)
        assert house.text(f"{ONE}/cleaner-offset-checkpoint") == "0\n1\na 0 30\n"
        assert store.cleaner_offset(A0) == 30
        log.truncate_to(10)
        assert house.text(f"{ONE}/cleaner-offset-checkpoint") == "0\n1\na 0 10\n"
        store.logs.delete(A0)
        with pytest.raises(StorageError):
            await store.set_cleaner_offset(A0, 5)

    @pytest.mark.parametrize("in_thread", [True, False])
    @pytest.mark.parametrize("is_deleted", [True, False])
    async def test_a_log_start_that_is_being_written_ends_no_later_log(
        self, house: House, is_deleted: bool, in_thread: bool
    ) -> None:
        store = await house.loaded(StoreSettings((ONE,)))
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        log.advance_log_start(25)
        writing = asyncio.ensure_future(store.checkpoints.write_everywhere("log-start-offset-checkpoint"))
        await asyncio.sleep(0)  # it has begun, and waits for a thread
        if in_thread:
            await in_thread_now(house, "log-start-offset-checkpoint")
        if is_deleted:
            store.logs.delete(A0)
            log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        else:
            log.truncate_fully(10)
        start = log.log_start_offset
        write(store, A0, 2)
        kept = content(log)
        await writing
        await settled()
        await store.abandon()
        house.disk.restart()
        found = (await house.loaded(StoreSettings((ONE,)))).logs.get(A0)
        assert found is not None
        assert (found.log_start_offset, content(found)) == (start, kept)

    @pytest.mark.parametrize("in_thread", [True, False])
    @pytest.mark.parametrize("by_new_replica", [True, False])
    async def test_the_cleaner_s_offset_outlives_a_newer_write(
        self, house: House, by_new_replica: bool, in_thread: bool
    ) -> None:
        store = await house.loaded(StoreSettings((ONE,)))
        for tp in (A0, A1):
            store.logs.get_or_create(tp, ID, CONFIG, is_new=True)
            write(store, tp, 20)
            await store.set_cleaner_offset(tp, 5)
        log = store.logs.get(A0)
        assert log is not None
        if by_new_replica:
            store.logs.delete(A1)
        writing = asyncio.ensure_future(store.set_cleaner_offset(A0, 30))
        await asyncio.sleep(0)
        if in_thread:
            await in_thread_now(house, "cleaner-offset-checkpoint")
        if by_new_replica:
            store.logs.get_or_create(A1, ID, CONFIG, is_new=True)  # removes what the checkpoint has of the old one
        else:
            log.truncate_to(10)
        await writing
        others, end = ("", 30) if by_new_replica else ("a 1 5\n", 10)
        entries = sorted(house.text(f"{ONE}/cleaner-offset-checkpoint").splitlines(keepends=True)[2:])
        assert entries == sorted(f"a 0 {end}\n{others}".splitlines(keepends=True))
        assert store.cleaner_offset(A0) == end

    @pytest.mark.parametrize("killed_between", [False, True])
    async def test_a_new_topic_inherits_nothing_from_a_deleted_one_of_its_name(
        self, house: House, killed_between: bool
    ) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        await store.set_cleaner_offset(A0, 30)
        log.advance_log_start(25)
        await store.flusher.flush(log)
        for name in CHECKPOINTS:
            await store.checkpoints.write_everywhere(name)
            assert "a 0 " in house.text(f"{ONE}/{name}")
        store.logs.delete(A0)
        if killed_between:
            await store.abandon()
            house.disk.restart()
            store = await house.loaded()
        log = store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        assert set(store.checkpointed(A0).values()) == {None}
        write(store, A0, 5)
        kept = content(log)
        await store.abandon()
        house.disk.restart()
        again = await house.loaded()
        found = again.logs.get(A0)
        assert found is not None
        assert (found.log_start_offset, content(found)) == (0, kept)
        assert again.logs.high_watermark_at_start(A0) == 0
        assert again.cleaner_offset(A0) is None

    @pytest.mark.parametrize("turns", range(6))
    @pytest.mark.parametrize("change", ["cut", "another"])
    @pytest.mark.parametrize("name", CHECKPOINTS)
    async def test_what_changes_while_a_checkpoint_is_gathered(
        self, house: House, monkeypatch: pytest.MonkeyPatch, name: str, change: str, turns: int
    ) -> None:
        """One log a turn: whenever a log is cut or replaced, no entry of what it was before comes into force."""
        monkeypatch.setattr(portions, "AT_ONCE", 1)
        store = await house.loaded()
        tps = [TopicPartition("a", number) for number in range(4)]
        for tp in tps:
            log = store.logs.get_or_create(tp, ID, CONFIG, is_new=True)
            write(store, tp, 20)
            await store.set_cleaner_offset(tp, 30)
            log.advance_log_start(25)
            await store.flusher.flush(log)
        writing = asyncio.ensure_future(store.checkpoints.write_everywhere(name))
        for _ in range(turns):
            await asyncio.sleep(0)
        for tp in tps[1:3]:
            if change == "another":
                store.logs.delete(tp)
                store.logs.get_or_create(tp, None, CONFIG, is_new=True)
            else:
                found = store.logs.get(tp)
                assert found is not None
                found.truncate_fully(3)
        await writing
        await store.checkpoints.write_everywhere(name)
        most = {"cut": 3, "another": 0}[change]
        assert all((store.checkpointed(tp)[name] or 0) <= most for tp in tps[1:3])
        assert all((store.checkpointed(tp)[name] or 0) > most for tp in (tps[0], tps[3]))

    async def test_logs_are_looked_at_a_portion_a_turn(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        store = await house.loaded()
        for number in range(6):
            store.logs.get_or_create(TopicPartition("a", number), ID, CONFIG, is_new=True)
        monkeypatch.setattr(portions, "AT_ONCE", 2)
        works = [store.checkpoints.write_everywhere(name) for name in CHECKPOINTS]
        for work in (*works, store.flusher.flush_overdue()):
            running = asyncio.ensure_future(work)
            turns = 0
            while not running.done():
                turns += 1
                await asyncio.sleep(0)
            await running
            assert turns >= 3

    async def test_a_deleted_one_is_taken_out_of_the_cleaner_s_checkpoint(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        await store.set_cleaner_offset(A0, 30)
        store.logs.delete(A0)
        await store.checkpoints.write_everywhere("cleaner-offset-checkpoint")
        assert house.text(f"{ONE}/cleaner-offset-checkpoint") == "0\n0\n"


async def test_the_first_look_for_old_segments_is_soon_after_the_start(house: House) -> None:
    store = await house.loaded(StoreSettings((ONE,), initial_task_delay_ms=20, retention_check_interval_ms=3_600_000))
    log = store.logs.get_or_create(A0, ID, replace(CONFIG, segment_bytes=200), is_new=True)
    write(store, A0, 20)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(30)
    store.start()
    await until(lambda: log.segments[0].base_offset > 0)


def test_the_delay_of_the_first_look_is_the_configured_one() -> None:
    config = BrokerConfig.parse("broker.id=1\nzookeeper.connect=z:1\nlog.dirs=/d\nlog.initial.task.delay.ms=7\n")
    assert settings_from(config, 1000).initial_task_delay_ms == 7
