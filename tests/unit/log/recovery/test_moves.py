"""Replicas that move between log directories: future logs filled, promoted, and crashes at every step."""

import asyncio
import errno
import random
from itertools import pairwise

import pytest

from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MachineStopped
from logyard.broker.log.disk.port import read_whole
from logyard.broker.log.producers import LOOKED_AT_ONCE, ProducerEntry
from logyard.broker.model import TopicPartition
from tests.support.logs import content, names
from tests.support.moving_logs import A0, CONFIG, ONE, TOPIC_ID, TWO, House, copied, copy, moved, settled, state, write


async def test_a_move_keeps_records_epochs_and_producers() -> None:
    house = House()
    store, log = await house.filled()
    await store.set_cleaner_offset(A0, 7)
    before, mark = state(log), log.high_watermark
    new = await moved(store)
    assert (state(new), new.high_watermark) == (before, mark)
    assert (store.logs.get(A0), store.logs.future(A0), new.is_future) == (new, None, False)
    assert (new.directory, store.cleaner_offset(A0)) == (f"{TWO}/a-0", 7)
    assert new.recovery_point >= 20
    with pytest.raises(StorageError, match="moved"):
        write(log, 12)
    write(new, 12)
    await settled(store)
    assert not any(name.startswith("a-0") for name in names(house.disk, ONE) if not name.endswith("-delete"))
    assert read_whole(house.disk, f"{ONE}/{layout.CLEANER_OFFSETS}") == b"0\n0\n"
    assert layout.MOVED not in names(house.disk, new.directory)
    after = state(new)
    await store.close()
    again = await house.start()
    kept = again.logs.get(A0)
    assert kept is not None
    assert state(kept) == after
    await again.abandon()


async def test_very_many_producers_are_taken_along_in_portions() -> None:
    """They are of batches below the log's start, of which nothing is copied."""
    house = House()
    store, log = await house.filled()
    for number in range(20_000):
        log.producers.remember(ProducerEntry(100 + number, 0, last_timestamp=0))
    future = store.logs.begin_move(A0, TWO)
    assert future is not None
    copy(log, future)
    known: list[int] = []

    async def watch() -> None:
        while True:
            known.append(len(future.producers))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await store.prepare_promotion(A0)
    watching.cancel()
    assert len(future.producers) == len(log.producers)
    assert max(after - before for before, after in pairwise(known)) <= LOOKED_AT_ONCE
    before = state(log)
    assert state(store.promote(A0)) == before
    await settled(store)
    await store.abandon()


async def test_a_cut_ends_the_taking_along() -> None:
    """What the log knows then is of offsets that may be written anew."""
    house = House()
    store, log = await house.filled()
    for number in range(20_000):
        log.producers.remember(ProducerEntry(100 + number, 0, last_timestamp=0))
    future = store.logs.begin_move(A0, TWO)
    assert future is not None
    copy(log, future)
    preparing = asyncio.ensure_future(store.prepare_promotion(A0))
    await asyncio.sleep(0)
    log.truncate_to(11)
    await preparing
    async with asyncio.timeout(20):
        while log.pending_reload is not None or future.pending_reload is not None:
            await asyncio.sleep(0.001)
    assert len(future.producers) <= 1 + LOOKED_AT_ONCE
    await store.abandon()


async def test_who_may_move_where() -> None:
    house = House()
    store, log = await house.filled()

    def refused(tp: TopicPartition, path: str) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            store.logs.begin_move(tp, path)
        return caught.value.code

    assert refused(A0, "/disks/three") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refused(TopicPartition("x" * 249, 0), TWO) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert store.logs.begin_move(A0, ONE) is None, "it lies there"
    later = TopicPartition("later", 0)
    assert refused(later, TWO) is ErrorCode.REPLICA_NOT_AVAILABLE
    store.logs.get_or_create(TopicPartition("b", 0), None, CONFIG, is_new=True, directory=TWO)
    assert store.logs.get_or_create(later, None, CONFIG, is_new=True).directory == f"{TWO}/later-0", (
        "as it was asked for"
    )
    house.disk.fail(TWO, errno.EIO)
    with pytest.raises(StorageError):
        store.logs.begin_move(A0, TWO)
    await settled(store)
    assert refused(A0, TWO) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.is_moving, "it may be compacted"
    write(log, 12)
    await store.abandon()


async def test_a_move_ends_when_its_current_directory_is_requested() -> None:
    house = House()
    store, log = await house.filled()
    future = store.logs.begin_move(A0, TWO)
    assert future is not None
    assert store.logs.begin_move(A0, TWO) is future
    assert log.is_moving
    assert store.logs.begin_move(A0, ONE) is None
    assert (store.logs.future(A0), log.is_moving) == (None, False)
    assert not any(name.endswith("-future") for name in names(house.disk, TWO))
    store.logs.begin_move(A0, TWO)
    store.logs.delete(A0)
    assert store.logs.future(A0) is None
    replicas = [name for root in (ONE, TWO) for name in names(house.disk, root) if name.startswith("a-")]
    assert len(replicas) == 3
    assert all(name.endswith("-delete") for name in replicas)
    await store.abandon()


async def test_a_truncation_cuts_the_copy_as_well() -> None:
    house = House()
    store, log = await house.filled()
    future = store.logs.begin_move(A0, TWO)
    assert future is not None
    copy(log, future)
    log.truncate_to(11)
    assert future.log_end_offset == log.log_end_offset == 10
    async with asyncio.timeout(20):
        while log.pending_reload is not None:  # a thread reads its producers
            await asyncio.sleep(0.001)
    write(log, 5)
    copy(log, future)
    assert content(future) == content(log)
    await store.abandon()


async def test_the_checkpoints_of_both_directories_know_of_both_logs() -> None:
    house = House()
    store, _ = await house.filled()
    await copied(store)
    text = read_whole(house.disk, f"{TWO}/{layout.RECOVERY_POINTS}").decode()
    assert text == "0\n1\na 0 24\n"
    assert read_whole(house.disk, f"{TWO}/{layout.LOG_STARTS}").decode() == "0\n1\na 0 3\n"
    await store.close()
    again = await house.start()
    assert again.logs.resume_move(A0)
    kept, half = again.logs.get(A0), again.logs.future(A0)
    assert kept is not None
    assert half is not None
    assert (content(kept), half.is_future, half.log_end_offset) == (content(half), True, 24)
    await again.abandon()


async def steps_of_a_move() -> tuple[int, int]:
    """The numbers of disk operations before a move and after it."""
    house = House()
    store, _ = await house.filled()
    before = house.disk.operations
    await moved(store)
    await settled(store)
    await store.abandon()
    return before, house.disk.operations


@pytest.mark.parametrize("power_lost", [False, True])
async def test_killed_at_any_operation_the_replica_is_there_once(power_lost: bool) -> None:
    before, after = await steps_of_a_move()
    assert after - before > 30
    places = set()
    for stop_at in range(before + 1, after + 2):
        house = House()
        store, log = await house.filled()
        synced, whole = 20, state(log)
        house.disk.stop_at = stop_at
        try:
            await moved(store)
            await settled(store)
        except MachineStopped:
            pass
        await store.abandon()
        house.disk.restart(random.Random(stop_at).randrange if power_lost else None)
        again = await house.start()
        kept = again.logs.get(A0)
        assert kept is not None, f"operation {stop_at}: the replica is gone"
        places.add(kept.directory)
        if power_lost:
            # What had been synced before the move began is there, byte for byte, and nothing else.
            assert kept.log_end_offset >= synced
            assert whole[0].startswith(content(kept, 3))
        else:
            assert state(kept) == whole, f"operation {stop_at}"
        if again.logs.resume_move(A0):
            assert again.logs.begin_move(A0, ONE) is None
        write(kept, kept.log_end_offset // 2)
        await again.close()
    assert places == {f"{ONE}/a-0", f"{TWO}/a-0"}


async def test_a_disk_that_does_not_let_the_old_log_go_leaves_one_log(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    store, log = await house.filled()
    before = state(log)
    rename = house.disk.rename

    def stubborn(old: str, new: str) -> None:
        if old == f"{ONE}/a-0":
            house.disk.fail(old, errno.EIO)
        rename(old, new)

    monkeypatch.setattr(house.disk, "rename", stubborn)
    assert state(await moved(store)) == before
    house.disk.heal()  # it was one bad moment
    await settled(store)
    await store.abandon()
    house.disk.restart()
    again = await house.start()
    kept = again.logs.get(A0)
    assert kept is not None
    assert (kept.directory, state(kept)) == (f"{TWO}/a-0", before)
    await again.abandon()


async def test_a_marked_copy_is_no_log_while_a_directory_is_offline() -> None:
    house = House()
    store, _ = await house.filled()
    await copied(store)
    await store.abandon()
    house.disk.restart()
    house.disk.fail(ONE)
    again = await house.start()
    assert again.logs.get(A0) is None
    with pytest.raises(StorageError, match="may be in"):
        again.logs.get_or_create(A0, TOPIC_ID, CONFIG, is_new=False)
    await again.abandon()
