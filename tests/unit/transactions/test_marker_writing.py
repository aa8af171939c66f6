"""Markers written to this broker's own partitions, for a coordinator here or elsewhere (facts §17.5)."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.records import batch
from logyard.broker.replication.events import ProduceResult
from logyard.broker.transactions.markers.writing import MARKERS_PER_TURN, MarkerWriter, NearMarkers
from logyard.broker.transactions.ports import Marker

TP = [TopicPartition("t", number) for number in range(2 * MARKERS_PER_TURN)]
OFFSETS = TopicPartition(OFFSETS_TOPIC, 3)


class World:
    """Partitions that are appended to at once, or when `held` is set; `codes` are what appends answer."""

    def __init__(self) -> None:
        self.appended: list[tuple[int, list[TopicPartition], Origin]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.ended: list[tuple[int, int, int, bool]] = []
        self.turns = 0
        self.held: asyncio.Event | None = None
        self.hosted = dict.fromkeys((*TP, OFFSETS))
        replicas = SimpleNamespace(partitions=lambda: self.hosted, producing=self)
        self.writer = MarkerWriter(cast(Any, replicas), ManualClock(), lambda: 30_000, self.end_offsets, self.next_turn)

    async def next_turn(self) -> None:
        self.turns += 1

    def end_offsets(self, partition: int, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        self.ended.append((partition, producer_id, marker_offset, committed))

    def append(
        self,
        entries: Sequence[tuple[TopicPartition, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
        origin: Origin,
        internal_topics: bool,
    ) -> Any:
        assert (acks, timeout_ms, internal_topics) == (-1, 30_000, True)
        for _, data in entries:
            assert next(batch.iter_headers(data))[1].is_control
        self.appended.append((self.turns, [tp for tp, _ in entries], origin))
        results = [ProduceResult(tp, self.codes.get(tp, ErrorCode.NONE), 11) for tp, _ in entries]
        return results if self.held is None else asyncio.ensure_future(self._answer(results, self.held))

    @staticmethod
    async def _answer(results: list[ProduceResult], held: asyncio.Event) -> list[ProduceResult]:
        await held.wait()
        return results


def marker(producer_id: int, *partitions: TopicPartition, version: int = 0, commits: bool = True) -> Marker:
    return Marker(producer_id, 0, 5, commits, partitions, version)


async def test_all_markers_are_appended_before_any_is_waited_for() -> None:
    world = World()
    world.held = asyncio.Event()
    markers = [marker(1, TP[0], TP[1]), marker(2, TP[1], version=2)]
    writing = asyncio.ensure_future(world.writer.write(markers))
    await asyncio.sleep(0)
    assert world.appended == [(0, [TP[0], TP[1]], Origin.COORDINATOR), (0, [TP[1]], Origin.RAISING_COORDINATOR)]
    assert not writing.done()
    world.held.set()
    none = ErrorCode.NONE
    assert await writing == {1: {TP[0]: none, TP[1]: none}, 2: {TP[1]: none}}


async def test_many_take_turns() -> None:
    world = World()
    await world.writer.write([marker(1, *TP), *(marker(pid, TP[0]) for pid in range(2, 5))])
    assert [(turn, len(partitions)) for turn, partitions, _ in world.appended] == [
        (0, MARKERS_PER_TURN),
        (1, MARKERS_PER_TURN),
        *[(2, 1)] * 3,
    ]


async def test_what_a_coordinator_does_not_expect_is_a_failed_disk() -> None:
    world = World()
    world.codes = {TP[0]: ErrorCode.INVALID_RECORD, TP[1]: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    elsewhere = TopicPartition("elsewhere", 0)
    assert await world.writer.write([marker(1, TP[0], TP[1], elsewhere)]) == {
        1: {
            elsewhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TP[0]: ErrorCode.KAFKA_STORAGE_ERROR,
            TP[1]: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        }
    }


async def test_offsets_end_with_their_marker() -> None:
    world = World()
    await world.writer.write([marker(1, OFFSETS, TP[0]), marker(2, OFFSETS, commits=False)])
    assert world.ended == [(3, 1, 11, True), (3, 2, 11, False)]
    world.codes[OFFSETS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    await world.writer.write([marker(3, OFFSETS)])
    assert len(world.ended) == 2


async def test_own_partitions_are_written_to_without_a_connection() -> None:
    world, sent = World(), []

    class Far:
        async def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Any:
            sent.append((broker_id, markers))
            return {}

    links = NearMarkers(1, world.writer, Far())
    assert await links.write_markers(1, [marker(7, TP[0])]) == {7: {TP[0]: ErrorCode.NONE}}
    assert (len(world.appended), sent) == (1, [])
    markers = [marker(8, TP[1])]
    assert await links.write_markers(2, markers) == {}
    assert (len(world.appended), sent) == (1, [(2, markers)])


async def test_markers_of_no_partitions_take_turns_too() -> None:
    world = World()
    assert len(await world.writer.write([marker(pid) for pid in range(10 * MARKERS_PER_TURN)])) == 10 * MARKERS_PER_TURN
    assert (world.turns, world.appended) == (9, [])


async def test_answers_that_come_late_are_taken_in_turns() -> None:
    world = World()
    world.held = asyncio.Event()
    writing = asyncio.ensure_future(world.writer.write([marker(pid, TP[0]) for pid in range(10 * MARKERS_PER_TURN)]))
    await asyncio.sleep(0)
    begun = world.turns
    world.held.set()
    assert len(await writing) == 10 * MARKERS_PER_TURN
    assert world.turns - begun == 10
