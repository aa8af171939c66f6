"""Moves between log directories on real logs: filled while producers write, promoted, resumed, cancelled."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.replay import Reload
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.swap import BadPart
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import LeaderAndIsr, LeaderAndIsrPartition
from logyard.broker.replication.internal_log import InternalLog
from logyard.broker.replication.log_dir_moves import align
from tests.support import moving_replicas
from tests.support.logs import content, create_log, fetched, produced
from tests.support.moving_replicas import A0, CONFIG, ONE, TWO, Broker, led


@pytest.mark.parametrize("cold", [False, True])
async def test_a_log_moves_that_ends_above_its_last_batch(cold: bool) -> None:
    broker = await led(4)
    broker.log.append_as_follower(memoryview(fetched(20, [b"v"])))  # 12 to 19 were compacted away
    broker.log.truncate_to(15)
    whole = content(broker.log)
    broker.disk.cold = cold
    assert broker.moves.alter({A0: TWO}) == {A0: ErrorCode.NONE}
    await asyncio.sleep(0.01)
    broker.disk.cold = False
    await broker.ended()
    assert (broker.log.directory, broker.log.log_end_offset) == (f"{TWO}/a-0", 15)
    assert content(broker.log) == whole
    broker.write()
    assert broker.log.log_end_offset == 18
    await broker.stop()


@pytest.mark.parametrize("cold", [False, True])
async def test_a_replica_moves_while_it_is_written(cold: bool) -> None:
    broker = await led()
    broker.disk.cold = cold
    assert broker.moves.alter({A0: TWO}) == {A0: ErrorCode.NONE}
    for _ in range(100):
        broker.write()
        await asyncio.sleep(0)
    broker.disk.cold = False
    await broker.ended()
    assert broker.log.directory == f"{TWO}/a-0"
    broker.write(3)
    partition = broker.replicas.partition(A0)
    assert partition is not None
    assert partition.log is broker.log
    assert (broker.log.log_end_offset, broker.log.high_watermark) == (429, 429)
    assert len(content(broker.log)) == broker.log.size
    assert any("now lies in another log directory" in note for note in broker.notes)
    await broker.stop()


@pytest.mark.parametrize("is_last", [False, True])
async def test_who_reads_an_internal_topic_goes_on_in_the_log_that_took_its_place(is_last: bool) -> None:
    """A coordinator that loads: it failed, or missed what was written after the move, as a transaction's marker."""
    broker = await led()
    moved, taken = asyncio.Event(), list[int]()

    async def run(work: Callable[[], Any]) -> Any:
        found = work()
        if not is_last or taken[-1] == broker.log.log_end_offset - 1:
            await moved.wait()
        return found

    internal = InternalLog(broker.replicas, lambda work: asyncio.ensure_future(run(work)), A0.topic)
    reading = asyncio.ensure_future(internal.read(0, lambda data, header: taken.append(header.last_offset)))
    await asyncio.sleep(0.01)
    broker.moves.alter({A0: TWO})
    await broker.ended()
    assert broker.log.directory == f"{TWO}/a-0"
    broker.write(2)
    moved.set()
    assert await reading == broker.log.log_end_offset == 126
    assert taken == list(range(2, 126, 3))
    await broker.stop()


async def test_a_move_waits_while_a_thread_finds_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a truncation nothing may be written until then, and what is read then is as much as a segment holds."""
    run, where = Reload.run, list[bool]()

    def noting(reload: Reload) -> None:
        where.append(broker.in_thread)
        run(reload)

    monkeypatch.setattr(Reload, "run", noting)
    broker = await led()
    for sequence in range(20):
        data = produced([b"v"], producer_id=8, producer_epoch=0, base_sequence=sequence, transactional=True)
        broker.log.append_as_leader(data, 0, now_ms=0)
    broker.reads_logs.clear()
    broker.moves.alter({A0: TWO})
    while (future := broker.store.logs.future(A0)) is None or future.log_end_offset < 135:
        await asyncio.sleep(0)
    broker.log.truncate_to(130)
    for _ in range(200):
        await asyncio.sleep(0)
    assert not where, "the event loop reads no log"
    assert broker.log.directory == f"{ONE}/a-0"
    broker.reads_logs.set()
    await broker.ended()
    assert where == [True, True]
    assert (broker.log.directory, broker.log.log_end_offset) == (f"{TWO}/a-0", 130)
    assert broker.log.producers.entries[8].last_offset == 129
    await broker.stop()


async def test_every_requested_move_is_answered() -> None:
    broker = await led()
    unknown, long = TopicPartition("nowhere", 3), TopicPartition("x" * 249, 0)
    assert broker.moves.alter({unknown: TWO, long: TWO}) == {
        unknown: ErrorCode.REPLICA_NOT_AVAILABLE,
        long: ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert broker.moves.alter({A0: "/disks/three"}) == {A0: ErrorCode.LOG_DIR_NOT_FOUND}
    assert broker.moves.alter({A0: ONE}) == {A0: ErrorCode.NONE}
    assert not broker.tasks, "it lies there already"
    await broker.stop()


async def killed(broker: Broker) -> Broker:
    """Kill it, and start another on the same disk: nobody has told it yet what it leads or follows."""
    broker.moves.close()
    await broker.ended()
    await broker.store.abandon()
    broker.disk.restart()
    again = Broker(broker.disk)
    await again.store.load()
    return again


async def test_after_a_kill_the_move_goes_on() -> None:
    broker = await led()
    broker.moves.alter({A0: TWO})
    for _ in range(5):
        await asyncio.sleep(0)
    future = broker.store.logs.future(A0)
    assert future is not None
    copied = future.log_end_offset
    assert 0 < copied < broker.log.log_end_offset
    whole = content(broker.log)
    again = await killed(broker)
    half = again.store.logs.future(A0)
    assert half is not None
    assert half.log_end_offset >= copied
    again.lead(epoch=1)
    await again.ended()
    assert again.log.directory == f"{TWO}/a-0"
    assert content(again.log) == whole
    await again.stop()


async def test_a_move_is_held_back_by_its_quota() -> None:
    broker = await led(rate=1000)
    broker.moves.alter({A0: TWO})
    await broker.ended()
    seconds = sum(broker.pauses)
    assert seconds >= broker.log.size / 1000 - 2
    assert broker.log.directory == f"{TWO}/a-0"
    await broker.stop()


@pytest.mark.parametrize("openings", range(6))
async def test_a_move_goes_on_once_there_are_file_descriptors(openings: int) -> None:
    """Until the broker's next start nobody would continue it, and its log was not compacted."""
    broker = await led()
    whole = content(broker.log)
    assert broker.moves.alter({A0: TWO}) == {A0: ErrorCode.NONE}
    broker.disk.openings = openings
    for _ in range(300):
        await asyncio.sleep(0)
    broker.disk.openings = None
    await broker.ended()
    assert broker.log.directory == f"{TWO}/a-0"
    assert content(broker.log) == whole
    assert sum("waits" in note for note in broker.notes) <= 1
    await broker.stop()


async def test_a_replica_that_is_deleted_ends_its_move() -> None:
    broker = await led()
    broker.moves.alter({A0: TWO})
    await asyncio.sleep(0)
    assert broker.delete() is ErrorCode.NONE
    await broker.ended()
    assert (broker.store.logs.get(A0), broker.store.logs.future(A0)) == (None, None)
    await broker.stop()


async def test_a_failing_target_ends_the_move_and_nothing_else() -> None:
    broker = await led()
    broker.moves.alter({A0: TWO})
    await asyncio.sleep(0)
    broker.disk.fail(TWO)
    await broker.ended()
    await asyncio.sleep(0)
    assert broker.store.logs.future(A0) is None
    assert any("its move to another log directory stops" in note for note in broker.notes)
    broker.write()
    assert broker.moves.alter({A0: TWO}) == {A0: ErrorCode.KAFKA_STORAGE_ERROR}
    broker.disk.heal()
    await broker.stop()


async def test_a_moving_replica_is_not_compacted() -> None:
    broker = await led()
    broker.write(200)
    log = broker.log
    base = log.segments[0].base_offset
    path = f"{ONE}/part"
    broker.disk.open(path, create=True, write=True).write_at(log.segments[0].read(log.segments[0].size, 0), 0)
    prepared = log.prepare_replacement([path], [[base]])
    broker.moves.alter({A0: TWO})
    with pytest.raises(BadPart, match="moving"):
        log.swap_in(prepared)
    await broker.ended()
    await broker.stop()


async def test_a_replica_whose_move_waits_for_a_leader_is_not_compacted() -> None:
    """After a restart nothing goes on before a leader is there. What is compacted meanwhile was copied as it was, and
    would count as compacted in its new place: values of deleted keys could come back."""
    broker = await led()
    broker.write(200)
    broker.moves.alter({A0: TWO})
    for _ in range(5):
        await asyncio.sleep(0)
    again = await killed(broker)
    half = again.store.logs.future(A0)
    assert half is not None
    assert 0 < half.log_end_offset < again.log.log_end_offset
    order = LeaderAndIsrPartition(A0, -1, 1, (2,), (1, 2), partition_epoch=1)
    again.replicas.requests.become_leader_or_follower(LeaderAndIsr(1, 1, 1, (order,)))
    log = again.log
    path = f"{ONE}/part"
    again.disk.open(path, create=True, write=True).write_at(log.segments[0].read(log.segments[0].size, 0), 0)
    prepared = log.prepare_replacement([path], [[log.segments[0].base_offset]])
    with pytest.raises(BadPart, match="moving"):
        log.swap_in(prepared)
    again.lead(epoch=2)
    await again.ended()
    assert again.log.directory == f"{TWO}/a-0"
    assert not again.log.is_moving
    await again.stop()


async def test_a_copy_that_comes_back_with_its_directory_has_what_its_log_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the directory was offline the log was compacted: what tombstones had deleted, and they, were in the copy's
    first part, but the tombstones were no longer in the rest."""
    broker = await led()
    broker.moves.alter({A0: TWO})
    while (future := broker.store.logs.future(A0)) is None or future.log_end_offset < 60:
        await asyncio.sleep(0)
    broker.disk.fail(TWO)
    await broker.ended()
    await asyncio.sleep(0)
    assert broker.store.logs.future(A0) is None
    monkeypatch.setattr(moving_replicas, "CONFIG", replace(CONFIG, cleanup_policy=frozenset({"compact"})))
    log, base = broker.log, broker.log.segments[0].base_offset
    *_, (last, header) = scan.headers(log.segments[0].read, 0, log.segments[0].size)
    part = broker.disk.open(f"{ONE}/part", create=True, write=True)
    part.write_at(log.segments[0].read(header.length, last), 0)
    log.swap_in(log.prepare_replacement([part.path], [[base]]))
    whole = content(log)
    broker.disk.heal()
    again = await killed(broker)
    half = again.store.logs.future(A0)
    assert half is not None
    assert half.log_end_offset >= 60
    again.lead(epoch=1)
    await again.ended()
    assert again.log.directory == f"{TWO}/a-0"
    assert content(again.log) == whole
    assert [note for note in again.notes if "compacted meanwhile" in note]
    await again.stop()


async def test_a_copy_of_a_compacted_log_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await led()
    broker.moves.alter({A0: TWO})
    while (future := broker.store.logs.future(A0)) is None or future.log_end_offset < 60:
        await asyncio.sleep(0)
    monkeypatch.setattr(moving_replicas, "CONFIG", replace(CONFIG, cleanup_policy=frozenset({"compact"})))
    whole = content(broker.log)
    again = await killed(broker)
    half = again.store.logs.future(A0)
    assert half is not None
    cuts = half.segments.cuts
    again.lead(epoch=1)
    await again.ended()
    assert (again.log.directory, again.log) == (f"{TWO}/a-0", half)
    assert content(again.log) == whole
    assert half.segments.cuts == cuts, "nothing of it was thrown away"
    await again.stop()


async def test_a_producer_that_was_verified_before_the_move_writes_after_it() -> None:
    """Its batch was refused with INVALID_TXN_STATE, and its transaction had to be aborted."""
    broker = await led()
    broker.store.logs.verification.is_on = True
    guard = broker.replicas.producing.begin_verification(A0, 8, 0, 0)
    assert guard is not None
    broker.moves.alter({A0: TWO})
    await broker.ended()
    assert broker.log.directory == f"{TWO}/a-0"
    guard.is_verified = True
    data = produced([b"v"], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    [result] = broker.replicas.producing.append(  # type: ignore[misc]  # acks=1: never a future
        [(A0, data)], acks=1, timeout_ms=0, origin=Origin.CLIENT
    )
    assert result.error is ErrorCode.NONE
    assert broker.log.producers.is_in_transaction(8, 0)
    await broker.stop()


def logs_of(disk: MemoryDisk, *histories: list[tuple[int, int]]) -> list[PartitionLog]:
    """Logs in directories of their own, each with batches of one record: (leader epoch, how many)."""
    made = []
    for number, history in enumerate(histories):
        log = create_log(disk, A0, f"/{number}", CONFIG, now_ms=0, is_future=number > 0)
        for epoch, count in history:
            for _ in range(count):
                log.append_as_follower(memoryview(fetched(log.log_end_offset, [b"x"], epoch=epoch)))
        made.append(log)
    return made


@pytest.mark.parametrize(
    ("of_log", "of_future", "common"),
    [
        ([(0, 5), (3, 5)], [(0, 5), (3, 2)], 7),  # a prefix
        ([(0, 5)], [(0, 5), (3, 2)], 5),  # the log lost its tail
        ([(0, 5), (4, 5)], [(0, 5), (3, 2)], 5),  # and something else was written since
        ([(0, 5), (3, 1), (4, 5)], [(0, 5), (3, 4)], 6),
        ([(2, 5)], [(0, 5)], 0),  # nothing
        ([], [(0, 5)], 0),
    ],
)
def test_a_copy_is_cut_to_what_it_shares(
    of_log: list[tuple[int, int]], of_future: list[tuple[int, int]], common: int
) -> None:
    log, future = logs_of(MemoryDisk(), of_log, of_future)
    align(log, future)
    assert future.log_end_offset == common
