"""The copies that moves between log directories fill: what is left of them at a start, and at a stop."""

import asyncio
import uuid
from dataclasses import replace

from logyard.broker.errors import StorageError
from logyard.broker.log import layout
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.model import TopicPartition
from tests.support.logs import names
from tests.support.moving_logs import A0, CONFIG, ONE, TOPIC_ID, TWO, House, copied, copy, settled, state, write
from tests.support.virtual_loop import run_virtually


async def test_a_copy_whose_log_was_in_a_lost_directory_becomes_the_log_when_that_is_back() -> None:
    """The power was lost when only the old directory had its new name, and the old disk was offline at the next start:
    the replica then came up empty, and where it was the only one, its records were gone."""
    house = House()
    store, log = await house.filled()
    before = state(log)
    await copied(store)
    await store.abandon()
    house.disk.restart()
    house.disk.rename(f"{ONE}/a-0", f"{ONE}/a-0.{uuid.UUID(int=99).hex}-delete")
    house.disk.fail(ONE)
    without = await house.start()
    assert without.logs.get(A0) is None
    await without.abandon()
    house.disk.restart()
    house.disk.heal()
    again = await house.start()
    kept = again.logs.get(A0)
    assert kept is not None, "the replica is gone"
    assert (kept.directory, state(kept)) == (f"{TWO}/a-0", before)
    assert layout.MOVED not in names(house.disk, kept.directory)
    await again.abandon()


async def test_a_copy_beside_its_log_has_no_mark_any_more() -> None:
    """From now on the log may have more that is durable, so that the copy could no longer take its place."""
    house = House()
    store, _ = await house.filled()
    await copied(store)
    await store.abandon()
    house.disk.restart()
    again = await house.start()
    half = again.logs.future(A0)
    assert half is not None
    assert layout.MOVED not in names(house.disk, half.directory)
    await again.abandon()


def test_files_that_retention_took_from_the_copy_do_not_stay_in_its_new_place() -> None:
    """They are removed after a delay, in which the directory gets another name."""

    async def history() -> None:
        house = House()
        store, log = await house.filled()
        log.config = replace(CONFIG, file_delete_delay_ms=50)
        future = store.logs.begin_move(A0, TWO)
        assert future is not None
        copy(log, future)
        log.advance_log_start(12)
        future.advance_log_start(12)
        assert delete_old_segments(future, 0) > 0
        await store.prepare_promotion(A0)
        new = store.promote(A0)
        assert any(name.endswith(layout.DELETED) for name in names(house.disk, new.directory))
        await asyncio.sleep(1.0)
        assert not any(name.endswith(layout.DELETED) for name in names(house.disk, new.directory))
        await store.abandon()

    run_virtually(history())


async def test_a_broker_that_stops_while_a_copy_is_flushed_keeps_its_checkpoints() -> None:
    """Behind the last writes the move wrote them without the logs that were closed: records that DeleteRecords had
    deleted were there again, and nothing counted as committed."""
    house = House()
    store, log = await house.filled()
    other = TopicPartition("b", 0)
    beside = store.logs.get_or_create(other, TOPIC_ID, CONFIG, is_new=True, directory=TWO)
    for number in range(12):
        write(beside, number)
    beside.set_high_watermark(20)
    beside.advance_log_start(3)
    future = store.logs.begin_move(A0, TWO)
    assert future is not None
    copy(log, future)
    house.syncs.clear()
    preparing = asyncio.ensure_future(store.prepare_promotion(A0))
    await settled(store)
    await store.close()
    house.syncs.set()
    (refused,) = await asyncio.gather(preparing, return_exceptions=True)
    await settled(store)
    again = await house.start()
    kept = again.logs.get(other)
    assert kept is not None
    assert (kept.log_start_offset, kept.high_watermark) == (3, 20)
    assert isinstance(refused, StorageError)
    await again.abandon()


async def test_a_directory_that_fails_while_moves_are_settled_keeps_no_other_from_it() -> None:
    """The broker did not start: of another replica there were two logs, and nobody had told them apart."""
    house, three = House(), "/disks/three"
    house.directories = ONE, TWO, three
    store, _ = await house.filled()
    other = TopicPartition("b", 0)
    store.logs.get_or_create(other, TOPIC_ID, CONFIG, is_new=True, directory=ONE)
    await store.close()
    for moved_to in (f"{three}/a-0", f"{TWO}/b-0"):
        house.disk.make_directory(moved_to)
        house.disk.open(f"{moved_to}/{layout.MOVED}", create=True)
    house.disk.restart()
    house.disk.fail(f"{three}/a-0")
    again = await house.start()
    assert again.online_directories == (ONE, TWO)
    logs = [again.logs.get(tp) for tp in (A0, other)]
    assert [log and log.directory for log in logs] == [f"{ONE}/a-0", f"{TWO}/b-0"]
    house.disk.heal()
    await again.abandon()
