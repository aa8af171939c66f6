"""LogStore: starts, replicas made and removed, checkpoints, failing directories, clean and unclean ends."""

import asyncio
import errno
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from logyard.broker import tasks
from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import StorageError
from logyard.broker.log import layout
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.directory import DuplicateReplica, IdentityMismatch
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError, read_whole, write_whole
from logyard.broker.log.expiry import Expiry
from logyard.broker.log.layout import CHECKPOINTS
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.settings import settings_from
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.model import TopicPartition
from tests.support.logs import content, fetched, names, produced

ONE, TWO = "/disks/one", "/disks/two/"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = uuid.UUID(int=77)
SETTINGS = StoreSettings((ONE, TWO), initial_task_delay_ms=10, retention_check_interval_ms=10)
CONFIG = TopicConfig(segment_bytes=1000, file_delete_delay_ms=20)


class House:
    """A disk, and the stores that come and go on it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("/disks")
        self.disk.sync_directory("/")
        self.clock = ManualClock()
        self.notes: list[str] = []
        self.offline: list[tuple[str, list[TopicPartition]]] = []
        self.cuts: list[tuple[TopicPartition, int]] = []
        self.stores: list[LogStore] = []
        self.config = CONFIG

    def store(self, settings: StoreSettings = SETTINGS) -> LogStore:
        store = LogStore(
            settings,
            self.disk,
            self.clock,
            self.run,
            topic_config=lambda topic: self.config,
            new_uuid=lambda: ID,
            note=self.notes.append,
            on_offline=lambda path, replicas: self.offline.append((path, replicas)),
        )
        store.on_cut = lambda tp, offset: self.cuts.append((tp, offset))
        self.stores.append(store)
        return store

    async def run(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        result = work()
        await asyncio.sleep(0)  # a thread's answer does not come at once
        return result

    async def loaded(self, settings: StoreSettings = SETTINGS) -> LogStore:
        store = self.store(settings)
        await store.load()
        return store

    def text(self, path: str) -> str:
        return read_whole(self.disk, path).decode()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    for store in house.stores:
        await store.abandon()


def write(store: LogStore, tp: TopicPartition, count: int = 1) -> None:
    log = store.get(tp)
    assert log is not None
    for _ in range(count):
        log.append_as_leader(produced([b"v"] * 2), 0, now_ms=ManualClock().now_ms())
    log.set_high_watermark(log.log_end_offset)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


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
    async def test_one_that_says_nothing_is_written_anew(self, house: House, content: bytes) -> None:
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
        assert any("meta.properties" in note and "mend it" in note for note in house.notes)
        await store.close()
        write_whole(house.disk, f"{ONE}/meta.properties", content)
        with pytest.raises(StorageError, match="no log directory works"):
            await house.store().open()

    async def test_a_second_broker_on_the_same_directory_is_refused(self, house: House) -> None:
        await house.loaded()
        with pytest.raises(StorageError, match="in use by another broker"):
            await house.store().open()


class TestReplicas:
    async def test_new_ones_go_where_the_fewest_are(self, house: House) -> None:
        store = await house.loaded()
        made = [store.logs.get_or_create(tp, ID, CONFIG, is_new=True) for tp in (A0, A1, B0)]
        assert [log.directory for log in made] == ["/disks/one/a-0", "/disks/two/a-1", "/disks/one/b-0"]
        assert store.logs.get_or_create(A0, ID, CONFIG, is_new=False) is made[0]
        assert made[0].topic_id == ID
        assert house.text("/disks/one/a-0/partition.metadata").startswith("version: 0\ntopic_id: ")
        chosen = store.logs.get_or_create(TopicPartition("c", 0), None, CONFIG, is_new=True, directory=TWO)
        assert chosen.directory == "/disks/two/c-0"

    async def test_no_more_than_there_are_descriptors_for(self, house: House) -> None:
        store = await house.loaded(StoreSettings((ONE,), partitions_max=1))
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        with pytest.raises(StorageError, match="ulimit"):
            store.logs.get_or_create(A1, None, CONFIG, is_new=True)

    async def test_one_that_could_not_be_made_for_want_of_descriptors_is_made_later(self, house: House) -> None:
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
        assert store.get(A0) is None
        marked = f"a-0.{ID.hex}-delete"
        assert marked in names(house.disk, ONE)
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        await until(lambda: marked not in names(house.disk, ONE))
        assert house.disk.exists("/disks/two/a-0") or house.disk.exists("/disks/one/a-0")

    async def test_leftovers_of_a_deletion_go_after_the_next_start(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, None, CONFIG, is_new=True)
        store.logs.delete(A0)
        await store.abandon()
        house.disk.restart()
        again = await house.loaded()
        assert again.get(A0) is None
        await until(lambda: names(house.disk, ONE) == [".lock", ".logyard-boot"])

    async def test_what_is_no_replica_is_named_and_left_alone(self, house: House) -> None:
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
        first = store.get(A0)
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
        log = again.get(A0)
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
        again = (await house.loaded()).get(A0)
        assert again is not None
        assert (again.log_end_offset, again.high_watermark) == (58, 58)
        assert any("to be recovered" in note for note in house.notes)

    async def test_where_records_are_synced_at_once_a_recovered_tail_is_too(self, house: House) -> None:
        """A leader alone in its ISR shows it at once; a loss of power then took it back (simulator, seed 20)."""
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        await store.close()
        write(await house.loaded(), A0, 30)
        house.disk.restart()  # a kill: nothing is synced, nothing is lost
        house.config = replace(CONFIG, flush_messages=1)
        await house.loaded()
        house.disk.restart(lambda n: 0)  # a loss of power
        again = (await house.loaded()).get(A0)
        assert again is not None
        assert again.log_end_offset == 60

    async def test_a_damaged_recovery_point_file_costs_a_recovery_not_the_directory(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 30)
        house.disk.restart()
        write_whole(house.disk, f"{ONE}/recovery-point-offset-checkpoint", b"0\n5\nnonsense\n")
        again = (await house.loaded()).get(A0)
        assert again is not None
        assert again.log_end_offset == 60
        assert any("ignored" in note for note in house.notes)

    async def test_a_damaged_high_watermark_file_takes_its_directory_offline(self, house: House) -> None:
        await (await house.loaded()).close()
        write_whole(house.disk, f"{ONE}/replication-offset-checkpoint", b"0\n5\nnonsense\n")
        store = await house.loaded()
        assert store.online_directories == (TWO,)
        assert house.offline == [(ONE, [])]

    async def test_one_log_that_cannot_be_opened_hurts_only_itself(self, house: House) -> None:
        store = await house.loaded()
        for tp in (A0, B0):
            store.logs.get_or_create(tp, ID, CONFIG, is_new=True, directory=ONE)
            write(store, tp, 30)
        log = store.get(A0)
        assert log is not None
        broken = log.segments[0]
        await store.close()
        house.disk.restart()
        house.disk.open(broken.path(".log"), write=True).write_at(b"\xff" * 40, 0)
        house.disk.remove(broken.path(".index"))
        house.disk.remove(f"{ONE}/.kafka_cleanshutdown")
        again = await house.loaded()
        assert again.get(B0) is not None
        assert again.get(A0) is None
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
        assert len(again.all_logs()) == 50
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
        assert store.get(A0) is None
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

    async def test_what_a_truncation_takes_back_is_read_again_in_a_thread(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        for sequence in range(20):
            data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
            log.append_as_leader(data, 0, now_ms=0)
        log.truncate_to(11)
        assert log.reload is not None
        await until(lambda: log.reload is None)
        assert log.producers.entries[1].last_sequence == 10
        log.truncate_to(6)
        log.truncate_to(3)
        assert log.reload is not None
        data = produced([b"v"], producer_id=1, producer_epoch=0, base_sequence=3, transactional=True)
        log.append_as_leader(data, 0, now_ms=0)  # who cannot wait reads on the spot
        await settled()
        assert log.producers.entries[1].last_sequence == 3

    async def test_what_could_not_be_read_again_is_tried_again(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A follower takes nothing in until it is: for want of a descriptor it would have stood still for ever."""
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
        await until(lambda: log.reload is None)
        assert log.producers.entries[1].last_sequence == 10

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
        assert (await house.loaded()).get(A0) is not None

    async def test_one_log_that_cannot_be_flushed_keeps_no_other_from_it(
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

    async def test_a_checkpoint_under_way_does_not_bring_the_old_point_back(self, house: House) -> None:
        store = await house.loaded()
        log = store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        log.flush()
        writing = asyncio.ensure_future(store.checkpoints.write_everywhere("recovery-point-offset-checkpoint"))
        for _ in range(50):
            if house.disk.exists(f"{ONE}/recovery-point-offset-checkpoint.tmp"):
                break
            await asyncio.sleep(0)
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

    @pytest.mark.parametrize("killed_between", [False, True])
    async def test_a_new_topic_has_nothing_of_a_deleted_one_of_its_name(
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
        found = again.get(A0)
        assert found is not None
        assert (found.log_start_offset, content(found)) == (0, kept)
        assert again.logs.high_watermark_at_start(A0) == 0
        assert again.cleaner_offset(A0) is None

    async def test_a_deleted_one_is_taken_out_of_the_cleaner_s_checkpoint(self, house: House) -> None:
        store = await house.loaded()
        store.logs.get_or_create(A0, ID, CONFIG, is_new=True)
        write(store, A0, 20)
        await store.set_cleaner_offset(A0, 30)
        store.logs.delete(A0)
        await store.checkpoints.write_everywhere("cleaner-offset-checkpoint")
        assert house.text(f"{ONE}/cleaner-offset-checkpoint") == "0\n0\n"


async def test_retention_takes_many_segments_in_pieces(house: House) -> None:
    store = await house.loaded()
    log = store.logs.get_or_create(A0, ID, replace(CONFIG, segment_bytes=100), is_new=True)
    write(store, A0, 40)
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(log.log_end_offset)
    left = [len(log.segments)]

    async def paused() -> None:
        left.append(len(log.segments))

    await Expiry(house.clock, lambda: [log], paused).delete_old_segments()
    assert len(log.segments) == 1
    assert max(before - after for before, after in pairwise(left)) == 4


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
    found = again.get(A0)
    assert found is not None
    assert (content(found), found.log_end_offset, found.topic_id) == (kept, 40, ID)
    await again.close()
