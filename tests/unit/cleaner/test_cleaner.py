"""The built-in cleaner: what it chooses, what it swaps in, what it does about trouble."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from logyard.broker.cleaner import selection
from logyard.broker.cleaner.cleaner import WARM_S
from logyard.broker.cleaner.selection import Candidate
from logyard.broker.cleaner.settings import CleanerSettings
from logyard.broker.cleaner.worker import WorkerDied
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from tests.support.cleaning_world import Worker, cleaner_of
from tests.support.lease_world import COMPACTED, TP, LeaseWorld, fill, latest
from tests.support.logs import content


async def test_a_dirty_log_is_cleaned_once_and_again_when_it_is_dirty_again() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        fill(log, 60)
        before = content(log)
        assert await cleaner.clean_next(worker)
        after = content(log)
        assert latest(after) == latest(before)
        assert len(after) < len(before) / 2
        assert world.store.cleaner_offset(TP) == log.segments.active.base_offset
        assert not await cleaner.clean_next(worker), "nothing is dirty"
        await world.leases.settle()
        assert not world.disk.list(f"{log.directory}/.leases")
        fill(log, 60, keys=9)
        before = content(log)
        assert await cleaner.clean_next(worker)
        assert latest(content(log)) == latest(before)
        assert cleaner.gauges()["cleaner_logs_cleaned"] == 2
        assert {entry["state"] for entry in (await world.ok("GET", "/leases"))["leases"]} == {"committed"}


async def test_what_is_clean_enough_waits_unless_a_record_waited_too_long() -> None:
    async with LeaseWorld(config=replace(COMPACTED, min_cleanable_dirty_ratio=1.0)) as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        fill(log, 60, now_ms=world.clock.now_ms() - 5000)
        assert not await cleaner.clean_next(worker)
        log.config = replace(log.config, max_compaction_lag_ms=10_000)
        assert not await cleaner.clean_next(worker)
        log.config = replace(log.config, max_compaction_lag_ms=4_000)
        assert await cleaner.clean_next(worker)


async def test_a_log_that_a_job_holds_is_left_alone() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        fill(log, 60)
        lease = await world.take()
        assert not await cleaner.clean_next(worker)
        assert not worker.requests
        await world.ok("POST", f"/leases/{lease['lease_id']}/abort", {"generation": lease["generation"]})
        assert await cleaner.clean_next(worker)


async def test_an_audit_does_not_keep_the_cleaner_away() -> None:
    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        worker = Worker(world)
        lease = await world.take("audit")
        before = await world.read(lease, 0)
        assert await cleaner_of(world, worker).clean_next(worker)
        assert await world.read(lease, 0) == before


async def test_logs_of_other_policies_are_left_alone_and_both_policies_go_together() -> None:
    for policy, wanted in ({"delete"}, False), ({"compact", "delete"}, True):
        async with LeaseWorld(config=replace(COMPACTED, cleanup_policy=frozenset(policy))) as world:
            fill(world.lead(), 60)
            worker = Worker(world)
            assert await cleaner_of(world, worker).clean_next(worker) is wanted


async def test_more_keys_than_the_buffer_takes_are_cleaned_round_by_round() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker, CleanerSettings(dedupe_buffer_bytes=1))
        fill(log, 1200, keys=1500)
        expected = latest(content(log))
        rounds = []
        while await cleaner.clean_next(worker):
            cleaned_to = world.store.cleaner_offset(TP)
            assert cleaned_to is not None
            rounds.append(cleaned_to)
            assert latest(content(log)) == expected
        assert len(rounds) > 1
        assert rounds == sorted(set(rounds))


async def test_a_damaged_log_is_given_up_with_its_reason_and_others_go_on() -> None:
    async with LeaseWorld() as world:
        log, other = world.lead(), world.lead(TopicPartition("other", 1))
        fill(log, 60)
        fill(other, 40)
        name = f"{log.directory}/{0:020d}.log"
        file = world.disk.open(name, write=True)
        file.write_at(b"\xff", 100)
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        for _ in range(3):
            await cleaner.clean_next(worker)
        assert list(cleaner.uncleanable) == [TP]
        assert "t-0, segment 0: batch at position 0 (offset 0)" in cleaner.uncleanable[TP]
        assert "its CRC is wrong" in cleaner.uncleanable[TP]
        assert cleaner.gauges()["cleaner_uncleanable_partitions_count"] == 1
        assert world.store.cleaner_offset(other.tp) == other.segments.active.base_offset
        assert world.store.cleaner_offset(TP) is None
        world.clock.advance(10**6)
        requests = len(worker.requests)
        assert not await cleaner.clean_next(worker)
        assert len(worker.requests) == requests
        world.delete()
        assert not await cleaner.clean_next(worker)
        assert not cleaner.uncleanable, "a log that is gone is forgotten"


async def test_other_trouble_is_tried_again_later_and_later() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        worker.answers = [WorkerDied("killed"), {"failed": "storage", "message": "no room"}]
        waits = []
        for _ in range(3):
            assert await cleaner.clean_next(worker)
            if not world.leases.book.is_being_compacted(TP) and world.store.cleaner_offset(TP) is None:
                waited = 0
                while not await cleaner.clean_next(Worker(world)) and waited < 100:
                    world.clock.advance(5)
                    waited += 5
                waits.append(waited)
                break
        assert waits == [15]
        assert world.store.cleaner_offset(TP) == log.segments.active.base_offset


async def test_what_nobody_expected_of_one_log_keeps_no_other_dirty() -> None:
    async with LeaseWorld() as world:
        log, other, odd = world.lead(), world.lead(TopicPartition("other", 1)), world.lead(TopicPartition("odd", 0))
        fill(log, 60)
        fill(other, 40)
        fill(odd, 40)

        def mistaken(kept: PartitionLog) -> int:
            if kept is odd:
                raise IndexError("a mistake of ours")
            return world.leases.clean_offset(kept)

        worker = Worker(world)
        cleaner = cleaner_of(world, worker, clean_offset=mistaken)
        worker.answers = [IndexError("another")]
        for _ in range(2):
            await cleaner.clean_next(worker)
        assert (world.store.cleaner_offset(TP) is None) != (world.store.cleaner_offset(other.tp) is None)
        assert not cleaner.uncleanable, "they are tried again"


async def test_a_topic_deleted_in_the_midst_is_no_trouble() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        fill(log, 60)
        worker.before = lambda: world.store.logs.delete(TP)
        with capture_logs() as said:
            assert await cleaner.clean_next(worker)
        await world.leases.settle()
        assert [line["event"] for line in said if line["event"].startswith(("cleaning", "log cannot"))] == []
        assert not cleaner.failures


async def test_a_truncation_in_the_midst_swaps_nothing() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        worker = Worker(world)
        worker.before = lambda: log.truncate_to(20)
        cleaner = cleaner_of(world, worker)
        assert await cleaner.clean_next(worker)
        assert log.log_end_offset <= 20
        assert world.store.cleaner_offset(TP) is None
        assert cleaner.gauges()["cleaner_logs_cleaned"] == 0


async def test_tombstones_go_after_their_time_and_never_before() -> None:
    config = replace(COMPACTED, delete_retention_ms=60_000, min_cleanable_dirty_ratio=0.0)
    async with LeaseWorld(config=config) as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)
        gone = batch.build([Record(0, world.clock.now_ms(), b"gone", None)], base_offset=0)
        log.append_as_leader(memoryview(gone), 0, now_ms=world.clock.now_ms())
        kept = []
        for _ in range(4):
            fill(log, 30)
            assert await cleaner.clean_next(worker)
            kept.append(b"gone" in latest(content(log)))
            world.clock.advance(40)
        assert kept == [True, True, False, False]


async def test_a_worker_that_was_ending_when_it_was_wanted_again_goes_on() -> None:
    async with LeaseWorld() as world:
        worker, ending, may_end = Worker(world), asyncio.Event(), asyncio.Event()

        async def end() -> None:
            ending.set()
            await may_end.wait()

        cleaner = cleaner_of(world, worker, CleanerSettings(backoff_ms=3_600_000))
        cleaner.start()
        await asyncio.sleep(0)
        worker.end = end  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            cleaner.configure(CleanerSettings(threads=0, backoff_ms=3_600_000))
            await ending.wait()
            fill(world.lead(), 60)
            cleaner.configure(CleanerSettings(backoff_ms=3_600_000))
            may_end.set()
            while not cleaner.cleaned:
                await asyncio.sleep(0.001)
        await cleaner.close()


async def test_threads_follow_the_settings_and_end_with_the_cleaner() -> None:
    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        worker = Worker(world)
        cleaner = cleaner_of(world, worker, CleanerSettings(threads=0, backoff_ms=3_600_000))
        cleaner.start()
        await asyncio.sleep(0)
        assert not worker.requests
        cleaner.configure(CleanerSettings(threads=2, backoff_ms=3_600_000))
        async with asyncio.timeout(5):
            while not cleaner.cleaned or not worker.ends:  # the one that found nothing has nothing to keep
                await asyncio.sleep(0.001)
        assert worker.requests[0]["keys_max"] == CleanerSettings(threads=2).keys_max
        await cleaner.close()
        assert worker.ends >= 2
        assert not [t for t in asyncio.all_tasks() if t.get_name() == "cleaner"]


async def test_an_idle_worker_is_kept_warm_and_ended_after_a_minute() -> None:
    async with LeaseWorld() as world:
        worker, looks = Worker(world), 0
        fill(world.lead(), 60)

        def logs() -> list[PartitionLog]:
            nonlocal looks
            looks += 1
            return world.store.logs.all_current()

        async def after_looks(count: int) -> int:
            async with asyncio.timeout(30):
                while looks < count:
                    await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0)
            return worker.ends

        cleaner = cleaner_of(world, worker, CleanerSettings(backoff_ms=3_600_000), logs=logs)
        cleaner.start()
        assert await after_looks(2) == 0, "it has cleaned, and then found nothing"
        assert cleaner.cleaned == 1
        for number, (seconds, ends) in enumerate([(WARM_S / 2, 0), (WARM_S / 2 + 1, 1)], start=1):
            world.clock.advance(seconds)
            cleaner.configure(CleanerSettings(backoff_ms=3_600_000 + number))
            assert await after_looks(2 + number) == ends
        await cleaner.close()


def test_the_dirtiest_goes_first_and_internal_topics_before_all() -> None:
    def candidate(topic: str, ratio: float, due: bool = True) -> Candidate:
        return Candidate(TopicPartition(topic, 0), 0, 10, ratio, due)

    small, large = candidate("a", 0.6), candidate("b", 0.9)
    assert selection.next_to_clean([small, large]) is large
    internal = candidate("__consumer_offsets", 0.7)
    assert selection.next_to_clean([large, internal, small]) is internal
    assert selection.next_to_clean([candidate("a", 0.99, due=False)]) is None


async def test_a_disk_without_room_is_left_with_its_rest() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        before, worker = content(log), Worker(world)
        cleaner = cleaner_of(world, worker)
        with pytest.MonkeyPatch.context() as full:
            worker.before = lambda: full.setattr(world.disk, "space", lambda path: (1 << 40, 64 << 20))
            assert await cleaner.clean_next(worker)
            assert content(log) == before
            assert not cleaner.uncleanable, "it is tried again"
        worker.before = lambda: None
        world.clock.advance(60)
        assert await cleaner.clean_next(worker)
        assert len(content(log)) < len(before)


async def test_a_cleaner_that_is_stopped_during_a_commit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit refused to be aborted, which took the place of the cancellation: the cleaner went on, and its broker
    never came to an end."""
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        before = latest(content(log))
        begun, goes_on = asyncio.Event(), asyncio.Event()
        save = world.store.set_cleaner_offset

        async def slowly(tp: TopicPartition, offset: int) -> None:
            begun.set()
            await goes_on.wait()
            await save(tp, offset)

        monkeypatch.setattr(world.store, "set_cleaner_offset", slowly)
        cleaner = cleaner_of(world, Worker(world))
        cleaner.start()
        async with asyncio.timeout(10):
            await begun.wait()
            await cleaner.close()
        goes_on.set()
        await world.leases.settle()
        assert world.store.cleaner_offset(TP) == log.segments.active.base_offset
        assert latest(content(log)) == before
        assert [lease.state.value for lease in world.leases.book] == ["committed"]
