"""What becomes of decisions and leases when a replica moves to another log directory."""

import base64
from typing import Any

import pytest

from logyard.broker.log.partition_log import PartitionLog
from tests.support.lease_world import COMPACTED, ROOT, TP, LeaseWorld, commit_body, fill
from tests.support.moving_logs import copy, settled

OTHER = "/other"


def two_directories() -> LeaseWorld:
    return LeaseWorld(None, ROOT, COMPACTED, OTHER)


async def ready(world: LeaseWorld) -> tuple[PartitionLog, bytes, str, Any]:
    """A leader's log in the first directory, the decision about it, and the commit of its compaction: path and body."""
    log = world.store.logs.get_or_create(TP, None, COMPACTED, is_new=True, directory=ROOT)
    world.lead()
    fill(log, 60)
    lease = await world.take()
    decision, parts = await world.compaction(lease)
    await world.put_all(lease, parts)
    body = commit_body(lease, decision, parts)
    body["decision"] |= {"bytes": base64.b64encode(decision.encode()).decode()}
    return log, decision.encode(), f"/leases/{lease['lease_id']}/commit", body


async def compacted(world: LeaseWorld) -> tuple[PartitionLog, bytes]:
    """A leader's log in the first directory, and the decision by which it was compacted."""
    log, data, path, body = await ready(world)
    await world.ok("POST", path, body)
    return log, data


async def copied(world: LeaseWorld, log: PartitionLog) -> None:
    """A copy in the other directory, ready to take the log's place."""
    future = world.store.logs.begin_move(TP, OTHER) or world.store.logs.future(TP)
    assert future is not None
    copy(log, future)
    await world.store.prepare_promotion(TP)


async def promoted(world: LeaseWorld) -> PartitionLog:
    partition = world.replicas.partition(TP)
    assert partition is not None
    partition.log = world.store.promote(TP)
    await world.leases.settle()
    await settled(world.store)
    return partition.log


def files(world: LeaseWorld) -> list[str]:
    """What is kept beside the replica in the other directory."""
    path = f"{OTHER}/{TP}/.leases"
    return [entry.name for entry in world.disk.list(path)] if world.disk.exists(path) else []


async def test_it_is_told_after_the_move_and_after_a_restart() -> None:
    world = two_directories()
    async with world:
        log, data = await compacted(world)
        await copied(world, log)
        assert (await promoted(world)).directory == f"{OTHER}/{TP}"
        assert (await world.http.get("/decisions/t/0")).content == data
        (told,) = (await world.ok("GET", "/decisions"))["decisions"]
    async with world:
        world.lead()
        assert (await world.ok("GET", "/decisions"))["decisions"] == [told]
        assert (await world.http.get("/decisions/t/0")).content == data


async def test_what_a_truncation_takes_while_the_copy_waits_does_not_come_back() -> None:
    world = two_directories()
    async with world:
        log, _ = await compacted(world)
        await copied(world, log)
        log.truncate_to(10)
        await promoted(world)
        assert await world.refusal("GET", "/decisions/t/0") == (404, "unknown_decision")
        assert not any("decision" in name for name in files(world))


async def test_one_that_a_try_before_left_beside_the_copy_does_not_count() -> None:
    world = two_directories()
    async with world:
        log, _ = await compacted(world)
        await copied(world, log)
        log.truncate_to(10)
        fill(log, 60)
        await copied(world, log)
        await promoted(world)
        assert await world.ok("GET", "/decisions") == {"decisions": []}
        assert not any("decision" in name for name in files(world))
    async with world:
        world.lead()
        assert await world.ok("GET", "/decisions") == {"decisions": []}


async def test_without_one_nothing_is_kept() -> None:
    async with two_directories() as world:
        log = world.store.logs.get_or_create(TP, None, COMPACTED, is_new=True, directory=ROOT)
        world.lead()
        fill(log, 3)
        await copied(world, log)
        await promoted(world)
        assert files(world) == []


async def test_a_copy_that_is_given_up_meanwhile_stops_nothing() -> None:
    async with two_directories() as world:
        log, _ = await compacted(world)
        world.store.logs.begin_move(TP, OTHER)
        future = world.store.logs.future(TP)
        assert future is not None
        world.disk.remove_tree(future.directory)
        await world.leases.carry(log, future)


async def test_leases_on_the_log_that_was_left_are_lost_at_once() -> None:
    async with two_directories() as world:
        log, _ = await compacted(world)
        lease = await world.take()
        await copied(world, log)
        await promoted(world)
        assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "lost"
        assert (await world.take(run_id="another"))["directory"] == f"{OTHER}/{TP}"


async def test_a_commit_that_is_sent_again_after_the_move_and_a_restart_has_its_answer() -> None:
    world = two_directories()
    async with world:
        log, _, path, body = await ready(world)
        answer = await world.ok("POST", path, body)
        await copied(world, log)
        await promoted(world)
        assert await world.ok("POST", path, body) == answer
    async with world:
        world.lead()
        assert await world.ok("POST", path, body) == answer
    world.clock.advance(601)
    async with world:
        assert await world.refusal("POST", path, body) == (404, "unknown_lease")
        assert not any(name.endswith(".json") for name in files(world))


@pytest.mark.parametrize("moment", range(6))
async def test_a_commit_goes_on_where_a_move_has_put_the_replica(moment: int) -> None:
    """It began after the swap, and is over before the disk has done so many pieces of the commit's last work."""
    world = two_directories()
    async with world:
        log, data, path, body = await ready(world)
        pieces = 0

        def move() -> None:
            nonlocal pieces
            pieces += world.leases.book.find(path.split("/")[2]).swapped
            partition = world.replicas.partition(TP)
            if pieces > moment and log.failure is None and partition is not None:
                world.store.logs.begin_move(TP, OTHER)
                future = world.store.logs.future(TP)
                assert future is not None
                copy(log, future)
                partition.log = world.store.promote(TP)

        world.before_work = move
        answer = await world.ok("POST", path, body)
        await world.leases.settle()
        await settled(world.store)
        world.before_work = lambda: None
        assert (await world.take("audit"))["directory"] == f"{OTHER}/{TP}"
        assert (await world.http.get("/decisions/t/0")).content == data or moment > 3
        assert world.store.cleaner_offset(TP) == body["clean_offset"] or moment > 3, "else it goes before the renames"
    async with world:
        world.lead()
        assert await world.ok("POST", path, body) == answer
