"""Leases and decisions outlive the process: a clean stop, a kill or a loss of power at any operation."""

import base64
import random
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.leases import persistence
from logyard.broker.leases.snapshot import LEASE_FILE
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MachineStopped, MemoryDisk
from logyard.broker.log.disk.port import read_whole, write_whole
from logyard.broker.log.retention import delete_old_segments
from tests.support.lease_world import ROOT, TP, LeaseWorld, commit_body, fill

DIRECTORY = f"{ROOT}/t-0"


def on_disk(world: LeaseWorld) -> list[str]:
    path = f"{DIRECTORY}/.leases"
    return [entry.name for entry in world.disk.list(path)] if world.disk.exists(path) else []


async def taken_before_a_restart(**fields: Any) -> tuple[LeaseWorld, Any]:
    world = LeaseWorld()
    async with world:
        log = world.lead()
        fill(log, 60)
        lease = await world.take(**fields)
        await world.store.checkpoints.write_everywhere(layout.HIGH_WATERMARKS)
    return world, lease


async def test_a_lease_goes_on_where_it_was() -> None:
    world, lease = await taken_before_a_restart()
    path = f"/leases/{lease['lease_id']}"
    world.clock.advance(3600)
    async with world:
        log = world.store.logs.get(TP)
        assert log is not None
        beat = {"generation": lease["generation"]}
        assert await world.refusal("POST", f"{path}/heartbeat", beat) == (503, "starting")
        shown = await world.ok("GET", path)
        assert (shown["state"], shown["generation"]) == ("active", lease["generation"])
        assert shown["expires_at_ms"] == world.clock.now_ms() + 60_000, "a whole time to live"
        world.clock.advance(50)
        assert (await world.refusal("POST", f"{path}/heartbeat", beat))[1] == "starting"
        world.clock.advance(50)
        world.lead()
        assert (await world.ok("POST", f"{path}/heartbeat", beat))["state"] == "active"
        log.advance_log_start(log.segments.active.base_offset)
        assert delete_old_segments(log, world.clock.now_ms()) == 0, "retention leaves them alone"
        assert await world.refusal("POST", "/leases", {**take_body(), "run_id": "other"}) == (409, "lease_held")
        decision, parts = await world.compaction(lease)
        await world.put_all(lease, parts)
        answer = await world.ok("POST", f"{path}/commit", commit_body(lease, decision, parts))
        assert answer["state"] == "committed"
        assert (await world.take(run_id="next"))["generation"] > lease["generation"]


def take_body() -> dict[str, Any]:
    return {"topic": TP.topic, "partition": TP.partition, "run_id": "run", "purpose": "compact"}


async def test_an_audit_goes_on_reading_what_it_leased() -> None:
    world, lease = await taken_before_a_restart(purpose="audit")
    async with world:
        last = lease["segments"][-1]
        assert len(await world.read(lease, last["base_offset"])) == last["size"]


async def test_another_leader_ends_compact_leases() -> None:
    for world, lease in [await taken_before_a_restart(), await taken_before_a_restart(purpose="audit")]:
        async with world:
            world.lead(leader_epoch=1)
            shown = await world.ok("GET", f"/leases/{lease['lease_id']}")
            assert shown["state"] == ("lost" if lease["purpose"] == "compact" else "active")


async def test_a_leader_that_becomes_a_follower_loses_compact_leases() -> None:
    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        lease = await world.take()
        world.lead(leader=2, leader_epoch=1)
        shown = await world.ok("GET", f"/leases/{lease['lease_id']}")
        assert (shown["state"], shown["reason"]) == ("lost", "the leader changed (epoch 1)")


async def test_a_log_that_lost_its_end_has_no_leases_over_it() -> None:
    world, lease = await taken_before_a_restart(purpose="audit")
    log = f"{DIRECTORY}/{lease['segments'][-1]['base_offset']:020d}.log"
    world.disk.open(log, write=True).truncate(10)
    world.disk.remove(f"{ROOT}/.kafka_cleanshutdown")
    async with world:
        assert await world.refusal("GET", f"/leases/{lease['lease_id']}") == (404, "unknown_lease")
        assert on_disk(world) == []


async def test_a_segment_that_lost_its_end_during_a_commit_was_not_compacted() -> None:
    world, lease = await taken_before_a_restart()
    path = f"{DIRECTORY}/.leases/{lease['lease_id']}/{LEASE_FILE}"
    record = persistence.unseal(read_whole(world.disk, path))
    bases = [segment["base_offset"] for segment in lease["segments"]]
    begun = persistence.committing([bases], "0" * 64, {"clean_offset": lease["end_offset"]})
    write_whole(world.disk, path, persistence.seal({**record, **begun}))
    world.disk.open(f"{DIRECTORY}/{bases[-1]:020d}.log", write=True).truncate(10)
    world.disk.remove(f"{ROOT}/.kafka_cleanshutdown")
    async with world:
        assert await world.refusal("GET", f"/leases/{lease['lease_id']}") == (404, "unknown_lease")
        assert world.store.cleaner_offset(TP) is None, "its old records and tombstones are still to be cleaned"
        assert on_disk(world) == []


async def test_segments_that_are_not_the_leased_ones_any_more() -> None:
    world, lease = await taken_before_a_restart()
    path = f"{DIRECTORY}/{0:020d}.log"
    data = read_whole(world.disk, path)
    world.disk.remove(path)
    world.disk.open(path, create=True, write=True).write_at(data, 0)
    async with world:
        assert await world.refusal("GET", f"/leases/{lease['lease_id']}") == (404, "unknown_lease")
        assert on_disk(world) == []


async def test_a_commits_answer_is_remembered_for_ten_minutes() -> None:
    world = LeaseWorld()
    async with world:
        fill(world.lead(), 60)
        lease = await world.take()
        decision, parts = await world.compaction(lease)
        await world.put_all(lease, parts)
        body = commit_body(lease, decision, parts)
        path = f"/leases/{lease['lease_id']}/commit"
        answer = await world.ok("POST", path, body)
    world.clock.advance(590)
    async with world:
        world.lead()
        assert await world.ok("POST", path, body) == answer
        world.clock.advance(11)
        assert await world.refusal("POST", path, body) == (404, "unknown_lease")
        await world.leases.settle()
        assert on_disk(world) == []


async def test_a_record_damaged_at_any_byte_is_no_lease() -> None:
    world, lease = await taken_before_a_restart()
    path = f"{DIRECTORY}/.leases/{lease['lease_id']}/lease.json"
    data = read_whole(world.disk, path)
    for at in range(0, len(data), 7):
        world.disk.open(path, write=True).write_at(bytes([data[at] ^ 1]), at)
        stored = persistence.read_stored(world.disk, DIRECTORY)
        assert stored.leases == []
        assert stored.leftovers == [f"{DIRECTORY}/.leases/{lease['lease_id']}"]
        world.disk.open(path, write=True).write_at(data[at : at + 1], at)
    assert [found.is_intact for found in persistence.read_stored(world.disk, DIRECTORY).leases] == [True]


@pytest.mark.parametrize("power_fails", [False, True], ids=["killed", "power"])
async def test_the_machine_stops_at_any_operation_of_taking_and_ending(power_fails: bool) -> None:
    outcomes = set()
    for operation in range(1, 10_000):
        disk = MemoryDisk(ManualClock().now_ms, lambda n: n // 2)
        disk.make_directory(ROOT)
        disk.sync_directory("/")
        world = LeaseWorld(disk)
        await world.__aenter__()
        log = world.lead()
        fill(log, 30)
        log.flush()
        taken = False
        disk.stop_at = disk.operations + operation
        try:
            lease = await world.lease_service.grant(take_body())
            taken = True
            await world.lease_service.abort(lease["lease_id"], {"generation": lease["generation"]})
            await world.leases.settle()
        except MachineStopped:
            pass
        if disk.operations < disk.stop_at:
            break
        disk.restart(random.Random(operation).randrange if power_fails else None)
        async with LeaseWorld(disk) as again:
            again.lead()
            states = [row["state"] for row in (await again.ok("GET", "/leases"))["leases"]]
            assert states in ([], ["active"])
            assert len(on_disk(again)) == len(states)
            for row in (await again.ok("GET", "/leases"))["leases"]:
                assert len(await again.read({"lease_id": row["lease_id"]}, 0)) > 0
            outcomes.add((taken, len(states)))
    assert operation > 10
    # Made but not answered, or ended but not yet removed: such a lease runs out by itself.
    assert (False, 0) in outcomes
    assert power_fails or (True, 1) in outcomes, "a kill forgets nothing that was answered"
    assert (True, 0) in outcomes


class TestDecisions:
    async def committed(self, world: LeaseWorld, **more: Any) -> tuple[Any, bytes]:
        lease = await world.take()
        decision, parts = await world.compaction(lease)
        await world.put_all(lease, parts)
        body = commit_body(lease, decision, parts)
        body["decision"] |= {"bytes": base64.b64encode(decision.encode()).decode(), **more}
        await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
        return body, decision.encode()

    async def test_it_is_kept_and_told_by_the_leader_and_outlives_a_restart(self) -> None:
        world = LeaseWorld()
        async with world:
            fill(world.lead(), 60)
            assert await world.ok("GET", "/decisions") == {"decisions": []}
            body, data = await self.committed(world)
            (told,) = (await world.ok("GET", "/decisions"))["decisions"]
            assert (told["topic"], told["partition"], told["size"]) == ("t", 0, len(data))
            assert (told["sha256"], told["range_end"]) == (body["decision"]["sha256"], body["clean_offset"])
            response = await world.http.get("/decisions/t/0")
            assert (response.content, response.headers["x-content-sha256"]) == (data, told["sha256"])
            assert await world.refusal("GET", "/decisions/t/1") == (404, "unknown_decision")
        async with world:
            assert await world.ok("GET", "/decisions") == {"decisions": []}, "nobody leads yet"
            assert await world.refusal("GET", "/decisions/t/0") == (404, "unknown_decision")
            world.lead()
            assert (await world.ok("GET", "/decisions"))["decisions"] == [told]
            assert (await world.http.get("/decisions/t/0")).content == data

    async def test_a_truncation_below_its_end_takes_it_away(self) -> None:
        world = LeaseWorld()
        async with world:
            log = world.lead()
            fill(log, 60)
            body, _ = await self.committed(world)
            log.truncate_to(body["clean_offset"])
            assert (await world.ok("GET", "/decisions"))["decisions"]
            log.truncate_to(body["clean_offset"] - 1)
            assert not (await world.ok("GET", "/decisions"))["decisions"]
            await world.leases.settle()
            assert "decision" not in on_disk(world)

    async def test_one_that_is_damaged_on_disk_is_none(self) -> None:
        world = LeaseWorld()
        async with world:
            fill(world.lead(), 60)
            await self.committed(world)
        world.disk.open(f"{DIRECTORY}/.leases/decision", write=True).write_at(b"\xff", 40)
        async with world:
            world.lead()
            assert await world.ok("GET", "/decisions") == {"decisions": []}

    async def test_one_that_does_not_fit_the_commit_is_refused(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            decision, parts = await world.compaction(lease)
            await world.put_all(lease, parts)
            body = commit_body(lease, decision, parts)
            path = f"/leases/{lease['lease_id']}/commit"
            for wrong in (7, "äö", "AAAA", base64.b64encode(bytes(2 << 20)).decode()):
                request = body | {"decision": body["decision"] | {"bytes": wrong}}
                assert await world.refusal("POST", path, request) == (400, "invalid_request"), wrong
            assert (await world.ok("POST", path, body))["state"] == "committed"
            assert await world.ok("GET", "/decisions") == {"decisions": []}
