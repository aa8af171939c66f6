"""`__consumer_offsets` as Apache Kafka writes it, read into groups: transactions, old formats, what does not parse."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import loading, record_format
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets_log import ReplicatedOffsets
from logyard.broker.groups.ports import Producer, StoredBatch
from logyard.broker.groups.runner import GroupCoordinator
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import Partitioning
from logyard.broker.model import OFFSETS_TOPIC
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.records.crc import crc32c
from logyard.broker.records.decode import ABORT, COMMIT
from logyard.broker.records.downconvert import downconvert
from logyard.broker.replication.replicas import Replicas
from tests.support.logs import NOW, marker, new_log
from tests.support.longest_turn import longest_turn_of_the_new
from tests.support.memory_offsets_log import MemoryOffsetsLog

ONE = Partitioning(MetadataCache(), OFFSETS_TOPIC, lambda: 1)


class OffsetsPartition:
    """One offsets partition, written as a leader of Kafka's would, and loaded by us."""

    def __init__(self) -> None:
        self.log = new_log()
        self.notes: list[str] = []

    def append(self, data: memoryview) -> None:
        self.log.append_as_follower(data, now_ms=NOW)

    def commit(self, offset: int | None, topic: str = "t", *, group: str = "g", producer: int = -1) -> None:
        """One commit in a batch of its own, in `producer`'s transaction; None is a tombstone."""
        value = None if offset is None else record_format.offset_value(OffsetCommit(topic, 0, offset, commit_ms=NOW))
        record = Record(self.log.log_end_offset, NOW, record_format.offset_key(group, topic, 0), value)
        fields: dict[str, Any] = {"base_offset": self.log.log_end_offset, "leader_epoch": 0}
        if producer >= 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        self.append(memoryview(batch.build([record], **fields)))

    def group(self, name: str, generation: int | None) -> None:
        """A group's own record; None is a tombstone."""
        value = None if generation is None else record_format.group_value(Group(name, generation=generation), {})
        base = self.log.log_end_offset
        made = batch.build([Record(base, NOW, record_format.group_key(name), value)], base_offset=base, leader_epoch=0)
        self.append(memoryview(made))

    def end(self, kind: int, producer: int) -> None:
        data = bytearray(marker(kind, producer_id=producer))
        batch.stamp(data, 0, self.log.log_end_offset, 0)
        self.append(memoryview(data))

    async def load(self) -> dict[str, Group]:
        def run_blocking(work: Callable[[], Any]) -> Any:
            done = asyncio.get_running_loop().create_future()
            done.set_result(work())
            return done

        replicas = SimpleNamespace(partition=lambda tp: SimpleNamespace(log=self.log))
        store = ReplicatedOffsets(cast(Replicas, replicas), ONE, ManualClock(), run_blocking)
        return (await loading.load(store, 0, NOW, self.notes.append)).groups

    async def committed(self, group: str = "g") -> dict[str, int]:
        found = (await self.load())[group].offsets.committed
        return {topic: commit.offset for (topic, _), commit in found.items()}


@pytest.fixture
def partition() -> OffsetsPartition:
    return OffsetsPartition()


async def test_commits_of_an_aborted_transaction_do_not_count(partition: OffsetsPartition) -> None:
    partition.commit(1)
    partition.commit(9, producer=7)
    partition.end(ABORT, 7)
    assert await partition.committed() == {"t": 1}
    assert (await partition.load())["g"].offsets.open == {}


async def test_commits_of_a_transaction_count_from_its_marker_on(partition: OffsetsPartition) -> None:
    partition.commit(1)
    partition.commit(9, producer=7)
    offsets = (await partition.load())["g"].offsets
    assert offsets.committed["t", 0].offset == 1
    assert offsets.open[7]["t", 0].commit.offset == 9
    assert offsets.unstable_of({("t", 0)})
    partition.end(COMMIT, 7)
    assert await partition.committed() == {"t": 9}


async def test_a_group_of_which_only_an_open_transaction_knows_is_there(partition: OffsetsPartition) -> None:
    partition.commit(9, group="new", producer=7)
    group = (await partition.load())["new"]
    assert (group.offsets.committed, list(group.offsets.open)) == ({}, [7])
    assert not group.is_empty


async def test_a_commit_that_was_written_after_that_of_the_transaction_stays(partition: OffsetsPartition) -> None:
    """The place of the record counts, not that of the marker."""
    partition.commit(5, producer=7)
    partition.commit(6)
    partition.commit(1, "u")
    partition.commit(2, "u", producer=7)
    partition.end(COMMIT, 7)
    assert await partition.committed() == {"t": 6, "u": 2}


async def test_transactions_of_several_producers_are_kept_apart(partition: OffsetsPartition) -> None:
    partition.commit(5, producer=7)
    partition.commit(6, producer=8)
    partition.commit(3, "u", producer=7)
    partition.commit(None, "u", producer=7)
    partition.end(ABORT, 8)
    partition.end(COMMIT, 7)
    assert await partition.committed() == {"t": 5}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [0, 1])
async def test_batches_of_old_formats_are_read(partition: OffsetsPartition, magic: int, compression: int) -> None:
    values = [record_format.offset_value(OffsetCommit(topic, 0, n, commit_ms=NOW)) for n, topic in enumerate("tu")]
    records = [Record(n, NOW, record_format.offset_key("g", topic, 0), values[n]) for n, topic in enumerate("tu")]
    made = batch.build(records, base_offset=0, leader_epoch=0, compression=compression)
    partition.append(memoryview(bytearray(downconvert(memoryview(made), magic))))
    partition.commit(3, "v")
    assert await partition.committed() == {"t": 0, "u": 1, "v": 3}


async def test_a_batch_whose_records_do_not_parse_is_noted_and_left_out_alone(partition: OffsetsPartition) -> None:
    partition.commit(1)
    record = Record(partition.log.log_end_offset, NOW, record_format.offset_key("g", "u", 0), b"v")
    data = bytearray(batch.build([record], base_offset=partition.log.log_end_offset, leader_epoch=0))
    data[-6:] = b"\xff" * 6
    seal(data)
    partition.append(memoryview(data))
    partition.commit(3, "v")
    assert await partition.committed() == {"t": 1, "v": 3}
    assert partition.notes[0].startswith("batch at offset 1: ")


async def test_values_and_keys_that_do_not_parse_are_left_out_alone(partition: OffsetsPartition) -> None:
    base = partition.log.log_end_offset
    keys = [record_format.offset_key("g", "t", 0), b"\0\1\xff", b"\0\2\0\x09short", b"\0\x63future", b""]
    made = batch.build([Record(base + n, NOW, key, b"\0\3") for n, key in enumerate(keys)], base_offset=base)
    batch.stamp(made, 0, base, 0)
    partition.append(memoryview(made))
    partition.commit(4, "u")
    assert await partition.committed() == {"u": 4}
    assert len(partition.notes) == 4


def seal(data: bytearray) -> None:
    """Make the batch's checksum right."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")


class ReadInAThread(MemoryOffsetsLog):
    """As a real one, which calls `take` in the thread that reads."""

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        def all_batches() -> None:
            for stored in self.partitions[partition]:
                take(stored)

        await asyncio.to_thread(all_batches)


async def test_very_many_offsets_are_loaded_beside_the_event_loop() -> None:
    """All of a partition, and those of open transactions, were given to their groups in one turn."""
    value = record_format.offset_value(OffsetCommit("t", 0, 5, commit_ms=NOW))
    log = ReadInAThread(1)
    for number in range(1000):
        keys = [record_format.offset_key(f"g{number}", "t", n) for n in range(100)]
        log.append(0, [(key, value) for key in keys], Producer(number, 0) if number % 4 == 0 else None)
    groups = GroupCoordinator(log, ManualClock(), unused_timer, lambda: "id")
    async with longest_turn_of_the_new() as longest:
        groups.on_leader(0)
        while groups.availability("g1") is not ErrorCode.NONE:
            await asyncio.sleep(0)
    assert longest.seconds < 0.03
    assert sum(len(group.offsets.committed) for group in groups.roster.all()) == 75_000
    assert sum(len(commits) for group in groups.roster.all() for commits in group.offsets.open.values()) == 25_000
    await groups.close()


async def test_very_many_groups_are_loaded_beside_the_event_loop() -> None:
    """They were added to a table of all groups, and each was asked for its open transactions, in one turn."""
    value = record_format.offset_value(OffsetCommit("t", 0, 5, commit_ms=NOW))
    log = ReadInAThread(1)
    for number in range(100):
        names = [f"g{number}-{n}" for n in range(1000)]
        records = [(record_format.offset_key(name, "t", 0), value) for name in names]
        log.append(0, records, Producer(number, 0) if number % 4 == 0 else None)
    groups = GroupCoordinator(log, ManualClock(), unused_timer, lambda: "id")
    async with longest_turn_of_the_new() as longest:
        groups.on_leader(0)
        while groups.availability("g1") is not ErrorCode.NONE:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert longest.seconds < 0.03
    groups.commits.end_transaction(0, 4, log.end_transaction(0, 4, committed=True), committed=True)
    _, [(code, found)] = groups.commits.fetch("g4-7", {("t", 0)}, require_stable=True)
    assert (code, found.offset) == (ErrorCode.NONE, 5)
    _, [(code, _)] = groups.commits.fetch("g8-7", {("t", 0)}, require_stable=True)
    assert code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    await groups.close()


async def test_a_group_whose_record_is_deleted_keeps_its_offsets(partition: OffsetsPartition) -> None:
    partition.commit(1)
    partition.group("g", 3)
    partition.group("h", 4)
    group = (await partition.load())["g"]
    assert (group.generation, group.offsets.committed["t", 0].offset) == (3, 1)
    partition.group("g", None)
    partition.group("h", None)
    loaded = await partition.load()
    assert list(loaded) == ["g"]
    assert (loaded["g"].generation, loaded["g"].offsets.committed["t", 0].offset) == (0, 1)


async def test_a_group_of_which_nothing_is_left_is_not_loaded(partition: OffsetsPartition) -> None:
    partition.commit(1, group="deleted")
    partition.commit(None, group="deleted")
    partition.commit(2, group="aborted", producer=7)
    partition.end(ABORT, 7)
    partition.commit(3, group="taken back", producer=8)
    partition.commit(None, group="taken back", producer=8)
    partition.group("recorded", 3)
    partition.commit(4, group="recorded")
    partition.commit(None, group="recorded")
    assert list(await partition.load()) == ["recorded"]


def unused_timer(delay_s: float, callback: Callable[[], None]) -> NoReturn:
    """Groups without members have no timers."""
    raise AssertionError
