"""LogStore: starts, replicas created and removed, failing directories, clean and unclean shutdowns."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import StorageError
from logyard.broker.log import layout
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.directory import DuplicateReplica, IdentityMismatch
from logyard.broker.log.disk.port import read_whole, write_whole
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.logs import content, fetched, names, offsets, produced
from tests.support.stores import A0, A1, B0, CONFIG, ID, ONE, TWO, House, until, write


class TestIdentity:
    async def test_directories_are_claimed_once_and_for_all(self, house: House) -> None:
        store = house.store()
        assert await store.open() is None
        await store.claim(3, "cluster")
        assert "broker.id=3\ncluster.id=cluster\n" in house.text(f"{ONE}/meta.properties")
        await store.load()
        await store.close()
        assert await house.store().open() == DirectoryIdentity(3, "cluster")

    async def test_directories_that_differ_are_refused(self, house: House) -> None:
        for path, broker in ((ONE, 1), ("/disks/two", 2)):
            house.disk.make_directory(path)
            text = f"version=0\nbroker.id={broker}\ncluster.id=c\n".encode()
            write_whole(house.disk, f"{path}/meta.properties", text)
        with pytest.raises(IdentityMismatch, match="broker 2"):
            await house.store().open()

    @pytest.mark.parametrize("content", [b"", b"\xff\x00 garbage"])
    async def test_an_empty_identity_is_written_again(self, house: House, content: bytes) -> None:
        store = house.store()
        await store.open()
        await store.claim(3, "cluster")
        await store.load()
        await store.close()
        for path in ("/disks/two", ONE):
            write_whole(house.disk, f"{path}/meta.properties", content)
            store = house.store()
            assert await store.open() == DirectoryIdentity(3, "cluster")
            await store.claim(3, "cluster")
            await store.load()
            assert store.online_directories == (ONE, TWO)
            assert "broker.id=3\ncluster.id=cluster\n" in house.text(f"{path}/meta.properties")
            await store.close()

    @pytest.mark.parametrize("content", [b"version=7\n", b"version=0\nbroker.id=x\n"])
    async def test_one_that_cannot_be_read_takes_its_directory_offline(self, house: House, content: bytes) -> None:
        store = house.store()
        await store.open()
        await store.claim(3, "cluster")
        await store.load()
        await store.close()
        write_whole(house.disk, "/disks/two/meta.properties", content)
        store = house.store()
        assert await store.open() == DirectoryIdentity(3, "cluster")
        await store.load()
        assert store.online_directories == (ONE,)
        assert read_whole(house.disk, "/disks/two/meta.properties") == content
        assert any("meta.properties" in note and "repair it" in note for note in house.notes)
        await store.close()
        write_whole(house.disk, f"{ONE}/meta.properties", content)
        with pytest.raises(StorageError, match="no log directory works"):
            await house.store().open()

    async def test_a_second_broker_on_the_same_directory_is_refused(self, house: House) -> None:
        await house.loaded()
        with pytest.raises(StorageError, match="in use by another broker"):
            await house.store().open()


class TestReplicas:
    async def test_new_replicas_go_to_the_directory_with_the_fewest(self, house: House) -> None:
        store = await house.loaded()
        made = [store.logs.get_or_create(tp, ID, CONFIG, is_new=True) for tp in (A0, A1, B0)]
        assert [log.directory for log in made] == ["/disks/one/a-0", "/disks/two/a-1", "/disks/one/b-0"]
        assert store.logs.get_or_create(A0, ID, CONFIG, is_new=False) is made[0]
        assert made[0].topic_id == ID
        assert house.text("/disks/one/a-0/partition.metadata").startswith("version: 0\ntopic_id: ")
        chosen = store.logs.get_or_create(TopicPartition("c", 0), None, CONFIG, is_new=True, directory=TWO)
        assert chosen.directory == "/disks/two/c-0"

    async def test_the_limit_of_open_files_limits_replicas(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,), partitions_max=1))
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        with pytest.raises(StorageError, match="ulimit") as refused:
            store.logs.get_or_create(A1, None, CONFIG, is_new=True)
        assert refused.value.is_passing, "there is room once another is deleted"
        store.logs.delete(A0)
        store.logs.get_or_create(A1, None, CONFIG, is_new=True)

    async def test_a_replica_refused_for_open_files_is_created_later(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,)))
        house.disk.fail_at[house.disk.operations + 2] = errno.EMFILE
        with pytest.raises(StorageError, match="ulimit -n") as failed:
            store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        assert failed.value.is_passing
        assert store.logs.get_or_create(A0, ID, CONFIG, is_new=True).directory == f"{ONE}/a-0"
        assert house.offline == []

    async def test_a_deleted_one_is_renamed_now_and_removed_later(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        write(store, A0)
        store.logs.delete(A0)
        assert store.logs.get(A0) is None
        marked = f"a-0.{ID.hex}-delete"
        assert marked in names(house.disk, ONE)
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        await until(lambda: marked not in names(house.disk, ONE))
        assert house.disk.exists("/disks/two/a-0") or house.disk.exists("/disks/one/a-0")

    async def test_the_names_of_many_deleted_ones_are_synced_together(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each was synced by itself: with a slow disk, threads were busy for minutes after a large topic's deletion."""
        store = await house.loaded(StoreSettings((ONE,)))
        replicas = [TopicPartition("a", number) for number in range(50)]
        for tp in replicas:
            store.logs.get_or_create(tp, None, CONFIG, is_new=True)
        synced: list[list[str]] = []
        sync = house.disk.sync_directory

        def counted(path: str) -> None:
            synced.append(names(house.disk, path))
            sync(path)

        monkeypatch.setattr(house.disk, "sync_directory", counted)
        for tp in replicas:
            store.logs.delete(tp)
        await until(lambda: bool(synced))
        later = TopicPartition("a", 50)
        store.logs.get_or_create(later, None, CONFIG, is_new=True)
        store.logs.delete(later)
        await until(lambda: not any(name.endswith("-delete") for name in names(house.disk, ONE)))
        assert len(synced) <= 4
        assert "a-50" not in synced[-1]

    @pytest.mark.parametrize("delay_ms", [CONFIG.file_delete_delay_ms, 0])
    async def test_many_deleted_ones_are_removed_by_one_thread(
        self, house: House, monkeypatch: pytest.MonkeyPatch, delay_ms: int
    ) -> None:
        """They had all threads for the disk, where reads and flushes waited behind them."""
        running, most, done, run = 0, 0, 0, house.run

        async def counted(work: Callable[[], Any]) -> Any:
            nonlocal running, most, done
            removes = isinstance(work, partial) and work.func.__name__ == "remove_leftover"
            running, most = running + removes, max(most, running + removes)
            try:
                return await run(work)
            finally:
                running, done = running - removes, done + removes

        monkeypatch.setattr(house, "run", counted)
        store = await house.loaded()
        replicas = [TopicPartition("a", number) for number in range(20)]
        for tp in replicas:
            store.logs.get_or_create(tp, None, replace(CONFIG, file_delete_delay_ms=delay_ms), is_new=True)
        for tp in replicas:
            store.logs.delete(tp)
        await until(lambda: done == len(replicas))
        assert most == 1

    async def test_leftovers_of_a_deletion_go_after_the_next_start(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        store.logs.delete(A0)
        await store.abandon()
        house.disk.restart()
        again = await house.loaded()
        assert again.logs.get(A0) is None
        await until(lambda: names(house.disk, ONE) == [".lock", ".logyard-boot"])

    async def test_a_directory_of_no_replica_is_reported_and_kept(self, house: House) -> None:
        house.disk.make_directory(f"{ONE}/lost+found")
        house.disk.make_directory(f"{ONE}/a-0.{ID.hex}-stray")
        store = await house.loaded()
        assert store.strays == [f"{ONE}/a-0.{ID.hex}-stray", f"{ONE}/lost+found"]

    async def test_one_replica_in_two_directories_ends_the_start(self, house: House) -> None:
        for path in (ONE, "/disks/two"):
            house.disk.make_directory(f"{path}/a-0")
        with pytest.raises(DuplicateReplica, match="a-0 is in"):
            await house.loaded()


class TestStart:
    async def test_after_an_orderly_end_nothing_is_recovered(self, house: House) -> None:
        store = await house.loaded()
        for tp in (A0, A1):
            store.logs.get_or_create(tp, ID, CONFIG, is_new=True)
            write(store, tp, 30)
        first = store.logs.get(A0)
        assert first is not None
        first.advance_log_start(33)
        first.set_high_watermark(50)
        kept = content(first)
        await store.close()
        assert house.text(f"{ONE}/.kafka_cleanshutdown") == '{"version":0,"brokerEpoch":-1}'
        assert house.text(f"{ONE}/recovery-point-offset-checkpoint") == "0\n1\na 0 60\n"
        assert house.text(f"{ONE}/replication-offset-checkpoint") == "0\n1\na 0 50\n"
        assert house.text(f"{ONE}/log-start-offset-checkpoint") == "0\n1\na 0 33\n"
        house.disk.restart(lambda n: 0)
        house.notes.clear()
        again = await house.loaded()
        log = again.logs.get(A0)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.topic_id) == (33, 60, 50, ID)
        assert content(log) == kept
        assert again.logs.high_watermark_at_start(A0) == 50
        assert not house.disk.exists(f"{ONE}/.kafka_cleanshutdown")
        assert house.notes == [f"{ONE}: 1 logs, closed cleanly", f"{TWO}: 1 logs, closed cleanly"]

    async def test_after_a_kill_the_tail_is_recovered_and_the_high_watermark_clamped(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 30)
        await store.checkpoints.write_everywhere(layout.HIGH_WATERMARKS)
        house.disk.restart()
        tail = log.segments.active
        house.disk.open(tail.path(".log"), write=True).truncate(tail.size - 1)
        again = (await house.loaded()).logs.get(A0)
        assert again is not None
        assert (again.log_end_offset, again.high_watermark) == (58, 58)
        assert any("to be recovered" in note for note in house.notes)

    async def test_what_is_appended_after_a_recovery_s_cut_is_checked_by_the_next_one(self, house: House) -> None:
        """The cut is below the recovery point on disk: the broker goes before it would write that checkpoint again."""
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 40)
        await store.flusher.flush(log)
        for name in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            await store.checkpoints.write_everywhere(name)
        await store.set_cleaner_offset(A0, 80)
        house.disk.restart()
        tail = log.segments.active
        house.disk.open(tail.path(".log"), write=True).truncate(1)
        store = await house.loaded()
        cut = store.logs.current[A0].log_end_offset
        assert cut == tail.base_offset
        assert {store.checkpointed(A0)[name] for name in layout.CHECKPOINTS} == {cut, None}
        for _ in range(10):  # larger ones, so that segments begin between the cut and the old recovery point
            store.logs.current[A0].append_as_leader(produced([b"v" * 400] * 2), 0, now_ms=house.clock.now_ms())
        house.disk.restart(lambda n: {2: 0, 3: 1}.get(n, n - 1))  # names and sizes are kept, pages are not
        again = (await house.loaded()).logs.current[A0]
        assert again.log_end_offset < cut + 20
        assert offsets(content(again))[-1][1] == again.log_end_offset - 1

    async def test_where_records_are_synced_at_once_a_recovered_tail_is_too(self, house: House) -> None:
        """A leader alone in its ISR serves it at once; a later power loss removed it (simulator, seed 20)."""
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        await store.close()
        write(await house.loaded(), A0, 30)
        house.disk.restart()  # a kill: nothing is synced, nothing is lost
        house.config = replace(CONFIG, flush_messages=1)
        await house.loaded()
        house.disk.restart(lambda n: 0)  # a loss of power
        again = (await house.loaded()).logs.get(A0)
        assert again is not None
        assert again.log_end_offset == 60

    async def test_a_damaged_recovery_point_file_costs_a_recovery_not_the_directory(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 30)
        house.disk.restart()
        write_whole(house.disk, f"{ONE}/recovery-point-offset-checkpoint", b"0\n5\nnonsense\n")
        again = (await house.loaded()).logs.get(A0)
        assert again is not None
        assert again.log_end_offset == 60
        assert any("ignored" in note for note in house.notes)

    async def test_a_damaged_high_watermark_file_takes_its_directory_offline(self, house: House) -> None:
        await (await house.loaded()).close()
        write_whole(house.disk, f"{ONE}/replication-offset-checkpoint", b"0\n5\nnonsense\n")
        store = await house.loaded()
        assert store.online_directories == (TWO,)
        assert house.offline == [(ONE, [])]

    async def test_a_log_that_cannot_be_opened_affects_no_other(self, house: House) -> None:
        store = await house.loaded()
        for tp in (A0, B0):
            store.logs.get_or_create(tp, ID, CONFIG, is_new=True, directory=ONE)
            write(store, tp, 30)
        log = store.logs.get(A0)
        assert log is not None
        broken = log.segments[0]
        await store.close()
        house.disk.restart()
        house.disk.open(broken.path(".log"), write=True).write_at(b"\xff" * 40, 0)
        house.disk.remove(broken.path(".index"))
        house.disk.remove(f"{ONE}/.kafka_cleanshutdown")
        again = await house.loaded()
        assert again.logs.get(B0) is not None
        assert again.logs.get(A0) is None
        with pytest.raises(StorageError, match="cannot be opened"):
            again.logs.get_or_create(A0, ID, CONFIG, is_new=False)
        again.logs.delete(A0)
        again.logs.get_or_create(A0, ID, CONFIG, is_new=True)

    async def test_many_logs_are_loaded_in_groups(self, house: House) -> None:
        settings = StoreSettings((ONE,), recovery_threads_per_dir=3)
        store = await house.loaded(settings)
        for partition in range(50):
            store.logs.get_or_create(TopicPartition("t", partition), None, CONFIG, is_new=True)
        await store.close()
        again = await house.loaded(settings)
        assert len(again.logs.all_current()) == 50
        assert house.notes[-1] == f"{ONE}: 50 of 50 logs loaded"


class TestFailures:
    async def test_an_io_error_takes_the_directory_and_its_logs_offline(self, house: House) -> None:
        store = await house.loaded()
        failing = store.logs.get_or_create(A0, ID, CONFIG, is_new=True, directory=ONE)
        store.logs.get_or_create(B0, ID, CONFIG, is_new=True, directory=TWO)
        house.disk.fail(f"{ONE}/", errno.ENOSPC)
        with pytest.raises(StorageError):
            write(store, A0)
        await asyncio.sleep(0)
        assert house.offline == [(ONE, [A0])]
        assert store.online_directories == (TWO,)
        assert store.logs.get(A0) is None
        house.disk.heal()
        with pytest.raises(StorageError, match="offline"):
            failing.append_as_leader(produced([b"v"]), 0, now_ms=0)
        write(store, B0)
        with pytest.raises(StorageError, match="may be in"):
            store.logs.get_or_create(A1, ID, CONFIG, is_new=False)
        assert store.logs.get_or_create(A1, ID, CONFIG, is_new=True).directory == "/disks/two/a-1"
        await store.close()
        assert not house.disk.exists(f"{ONE}/.kafka_cleanshutdown")
        assert house.disk.exists("/disks/two/.kafka_cleanshutdown")

    async def test_a_new_replica_goes_to_the_next_directory_when_one_fails_under_it(self, house: House) -> None:
        store = await house.loaded()
        house.disk.fail(f"{ONE}/")
        assert store.logs.get_or_create(A0, ID, CONFIG, is_new=True).directory == "/disks/two/a-0"
        await asyncio.sleep(0)
        assert store.online_directories == (TWO,)

    async def test_without_a_working_directory_there_is_no_start(self, house: House) -> None:
        house.disk.fail("/disks")
        with pytest.raises(StorageError, match="no log directory works"):
            await house.loaded()


async def test_a_store_on_the_real_disk(tmp_path: Any) -> None:
    from logyard.broker.log.disk.real import OsDisk

    loop = asyncio.get_running_loop()

    def make() -> LogStore:
        return LogStore(
            StoreSettings((str(tmp_path),), recovery_threads_per_dir=2),
            OsDisk(),
            ManualClock(),
            lambda work: loop.run_in_executor(None, work),
            topic_config=lambda topic: CONFIG,
        )

    store = make()
    await store.open()
    await store.claim(1, "c")
    await store.load()
    log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
    for number in range(50):
        log.append_as_follower(memoryview(fetched(number, [b"x" * 100])))
    whole = content(log)
    log.truncate_to(40)
    kept = content(log)
    assert whole.startswith(kept)
    store.start()
    await store.close()
    again = make()
    await again.load()
    found = again.logs.get(A0)
    assert found is not None
    assert (content(found), found.log_end_offset, found.topic_id) == (kept, 40, ID)
    await again.close()
