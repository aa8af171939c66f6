"""A follower log of formats v0 and v1, as an old leader wrote it: cleaned by the built-in cleaner, and swapped."""

import hashlib
import random
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.cleaner import compiled_passes, plain_passes
from logyard.broker.cleaner.passes import Engine
from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.partition_log import PartitionLog
from tests.support.batches import Batch, Rec, batch
from tests.support.cleaning_world import Worker, cleaner_of
from tests.support.lease_world import TP, LeaseWorld
from tests.support.logs import content
from tests.support.old_logs import AnyBatch, OldBatch, old, random_old_log, read_any, seen, sizes
from tests.support.whole_segments import rewrite_group, survey_segments

SMALL = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=600, min_cleanable_dirty_ratio=0.0)


def append(log: PartitionLog, batches: list[AnyBatch]) -> None:
    for each in batches:
        log.append_as_follower(memoryview(each.encode()))
    log.set_high_watermark(log.log_end_offset)


def latest(records: list[Rec], end: int) -> dict[bytes, Rec]:
    """The last record of each key below `end`."""
    return {r.key: r for r in records if r.key is not None and r.offset < end}


@pytest.mark.parametrize("engine", [plain_passes.ENGINE, compiled_passes.ENGINE], ids=["plain", "compiled"])
@pytest.mark.parametrize("seed", range(6))
async def test_a_log_of_all_formats_is_cleaned_and_cleaned_again(seed: int, engine: Engine) -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world, engine)
        cleaner = cleaner_of(world, worker)
        history = random_old_log(random.Random(seed), 120)
        append(log, history[:90])
        for part in (history[:90], history):
            if part is history:
                append(log, history[90:])
            end = log.segments.active.base_offset
            assert await cleaner.clean_next(worker)
            found = read_any(content(log))
            kept = [r for r in seen(part) if r.offset >= end] + list(latest(seen(part), end).values())
            assert found == sorted(kept, key=lambda r: r.offset)
            assert world.store.cleaner_offset(TP) == end
        assert not await cleaner.clean_next(worker), "nothing is dirty"


async def test_segments_begin_where_the_one_before_ended() -> None:
    async with LeaseWorld(config=replace(SMALL, segment_bytes=300)) as world:
        log = world.lead()
        wrappers: list[Batch | OldBatch] = [
            old([Rec(n * 10 + i, b"k%d" % i, bytes(9)) for i in range(10)], 1, 2) for n in range(8)
        ]
        append(log, wrappers)
        assert len(log.segments) > 2
        assert {s.base_offset % 10 for s in log.segments} == {0}
        lease = await world.take()
        assert [s["last_offset"] % 10 for s in lease["segments"]] == [9] * len(lease["segments"])
        for offset in range(80):
            assert offset in {r.offset for r in read_any(content(log, offset))}


async def test_what_is_swapped_in_is_as_old_as_the_last_it_replaces() -> None:
    async with LeaseWorld(config=SMALL) as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)

        def ages() -> list[int]:
            return [
                world.disk.status(s.path(layout.LOG)).mtime_ms for s in log.segments if s is not log.segments.active
            ]

        append(log, [old([Rec(n, b"k%d" % (n % 5), bytes(30))], 1, 0) for n in range(60)])
        closed = [s for s in log.segments if s is not log.segments.active]
        for number, segment in enumerate(closed):
            world.disk.set_mtime(segment.path(layout.LOG), 1_000_000 + number)
        before = ages()
        assert await cleaner.clean_next(worker)
        assert ages() == before, "one by one, since none was small before"
        append(log, [old([Rec(n, b"k%d" % (n % 5), bytes(30))], 1, 0) for n in range(60, 90)])
        assert await cleaner.clean_next(worker)
        assert len(log.segments) < len(closed) + 2
        assert ages()[0] in before[1:], "what is left of some is one segment, as old as the youngest of them"


async def test_old_tombstones_go_once_their_segments_are_older_than_the_retention() -> None:
    day = 86_400_000
    async with LeaseWorld(config=replace(SMALL, delete_retention_ms=day)) as world:
        log = world.lead()
        worker = Worker(world)
        cleaner = cleaner_of(world, worker)

        def write(start: int, value: bytes | None) -> None:
            append(log, [old([Rec(n, b"%d" % n, value)], 0, 0) for n in range(start, start + 40)])

        write(0, None)
        assert await cleaner.clean_next(worker)
        assert [r.offset for r in read_any(content(log))] == list(range(40)), "nothing is older than what was cleaned"
        for start in (40, 80):
            world.clock.advance(2 * day / 1000)
            write(start, bytes(40))
            assert await cleaner.clean_next(worker)
        # Two days lie between the tombstones' segments and the last one cleaned before; the tail of the first write
        # shares its segment with what came two days later.
        found = [r.offset for r in read_any(content(log))]
        assert found[0] > 15
        assert found[-80:] == list(range(40, 120))


async def test_a_part_of_old_messages_is_checked_as_any_other() -> None:
    async with LeaseWorld(config=SMALL) as world:
        log = world.lead()
        history: list[AnyBatch] = [
            old([Rec(n * 3 + i, b"k%d" % (n % 4), bytes(60)) for i in range(3)], n % 2, 1) for n in range(40)
        ]
        append(log, history)
        lease = await world.take()
        first, second = lease["segments"][:2]
        data = [memoryview(await world.read(lease, s["base_offset"])) for s in (first, second)]
        end = second["last_offset"] + 1
        decision = survey_segments(
            data, Survey(TP.topic, TP.partition, lease["leader_epoch"], 0, end, lease["now_ms"], 0, 0)
        )
        tally = Tally()
        part = b"".join(bytes(p) for p in rewrite_group(data, decision, tally))
        assert sizes(part)[-1][1] == second["last_offset"]

        async def commit(changed: bytes, records: int) -> tuple[int, Any]:
            assert (await world.put(lease, first["base_offset"], changed))[0] == 201
            said = {
                "size": len(changed),
                "sha256": hashlib.sha256(changed).hexdigest(),
                "last_offset": second["last_offset"],
                "records": records,
            }
            body = {
                "generation": lease["generation"],
                "leader_epoch": lease["leader_epoch"],
                "clean_offset": end,
                "decision": decision.summary(),
                "groups": [{"segments": [first["base_offset"], second["base_offset"]], "part": said}],
            }
            return await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)

        damaged = bytearray(part)
        damaged[30] ^= 1
        assert (await commit(bytes(damaged), tally.records_out))[1]["error"] == "bad_part"
        assert (await commit(part, tally.records_out + 1))[1]["error"] == "bad_part"
        assert (await commit(part * 2, 2 * tally.records_out))[1]["error"] == "bad_part"
        status, answer = await commit(part, tally.records_out)
        assert (status, answer.get("records")) == (200, tally.records_out)
        assert read_any(content(log, 0))[: tally.records_out] == read_any(part)


async def test_v2_behind_v1_supersedes_it() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        worker = Worker(world)
        early: list[AnyBatch] = [old([Rec(n * 2 + i, b"k%d" % i, bytes(50)) for i in range(2)]) for n in range(20)]
        late: list[AnyBatch] = [batch([Rec(40 + n, b"k%d" % (n % 2), bytes(50))]) for n in range(20)]
        append(log, early + late)
        assert await cleaner_of(world, worker).clean_next(worker)
        assert {r.offset for r in read_any(content(log))} >= {58, 59}
        assert not [r for r in read_any(content(log)) if r.offset < 40]
