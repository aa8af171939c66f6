"""Leases that live: heartbeats, the end by time or by hand, and what is read of them."""

import asyncio
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import LogyardError
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from tests.support.lease_world import DIRECTORY, TP, LeaseWorld, commit_body, fill, lease_directories
from tests.support.logs import content


class TestLiving:
    async def test_heartbeat_renews_and_tells_what_is_now(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take(ttl_ms=10_000)
            path = f"/leases/{lease['lease_id']}/heartbeat"
            world.clock.advance(9)
            log.append_as_leader(memoryview(batch.build([batch.Record(0, 1, b"k", b"v")], base_offset=0)), 0, now_ms=1)
            log.set_high_watermark(181)
            answer = await world.ok("POST", path, {"generation": lease["generation"]})
            assert answer == {
                "lease_id": lease["lease_id"],
                "generation": lease["generation"],
                "state": "active",
                "expires_at_ms": world.clock.now_ms() + 10_000,
                "leader_epoch": 0,
                "high_watermark": 181,
            }
            answer = await world.ok("POST", path, {"generation": lease["generation"], "ttl_ms": 60_000})
            assert answer["expires_at_ms"] == world.clock.now_ms() + 60_000
            assert await world.refusal("POST", path, {"generation": 1}) == (409, "wrong_generation")
            assert await world.refusal("POST", path, {}) == (400, "invalid_request")
            late = {"generation": lease["generation"], "ttl_ms": 1}
            assert await world.refusal("POST", path, late) == (400, "invalid_request")
            assert await world.refusal("POST", "/leases/none/heartbeat", {"generation": 1}) == (404, "unknown_lease")

    async def test_it_expires_and_everything_goes(self) -> None:
        config = TopicConfig(cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=2000, retention_bytes=0)
        async with LeaseWorld(config=config) as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take(ttl_ms=5_000)
            assert delete_old_segments(log, world.clock.now_ms()) == 0
            world.clock.advance(5)
            path = f"/leases/{lease['lease_id']}"
            shown = await world.ok("GET", path)
            assert (shown["state"], shown["reason"]) == ("expired", "no heartbeat for 5000 ms")
            status, answer = await world.call("POST", f"{path}/heartbeat", {"generation": lease["generation"]})
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "expired")
            await world.leases.settle()
            assert lease_directories(world) == []
            assert delete_old_segments(log, world.clock.now_ms()) > 0
            world.clock.advance(600)
            assert await world.refusal("GET", path) == (404, "unknown_lease")

    async def test_audit_leases_pause_nothing_and_outlive_a_deletion(self) -> None:
        config = TopicConfig(segment_bytes=2000, retention_bytes=0, file_delete_delay_ms=0)
        async with LeaseWorld(config=config) as world:
            log = world.lead()
            fill(log, 60)
            before = content(log)
            lease = await world.take("audit")
            assert delete_old_segments(log, world.clock.now_ms()) > 1
            await asyncio.sleep(0.01)
            data = b"".join([await world.read(lease, s["base_offset"]) for s in lease["segments"]])
            assert data == before

    async def test_abort(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            path = f"/leases/{lease['lease_id']}/abort"
            body = {"generation": lease["generation"], "reason": "two\nlines"}
            assert await world.refusal("POST", path, {"generation": 3}) == (409, "wrong_generation")
            assert await world.refusal("POST", path, body | {"reason": 4}) == (400, "invalid_request")
            answer = await world.ok("POST", path, body)
            assert (answer["state"], answer["reason"], answer["result"]) == ("aborted", "two lines", None)
            assert await world.ok("POST", path, body | {"reason": "again"}) == answer
            await world.leases.settle()
            assert lease_directories(world) == []
            assert await world.refusal("POST", "/leases/none/abort", body) == (404, "unknown_lease")

    async def test_truncation_below_what_it_covers(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            compact = await world.take("compact")
            audit = await world.take("audit")
            log.truncate_to(log.log_end_offset - 1)
            states = {row["purpose"]: row["state"] for row in (await world.ok("GET", "/leases"))["leases"]}
            assert states == {"compact": "active", "audit": "lost"}
            log.truncate_to(compact["end_offset"] - 1)
            shown = await world.ok("GET", f"/leases/{compact['lease_id']}")
            assert shown["state"] == "lost"
            assert "truncated" in shown["reason"]
            await world.leases.settle()
            assert lease_directories(world) == []
            status, answer = await world.call("GET", f"/leases/{audit['lease_id']}/segments/0/log")
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")

    async def test_deletion_and_a_failed_directory(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            world.delete()
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "lost"
            body = {"topic": "t", "partition": 0, "run_id": "r", "purpose": "audit"}
            assert await world.refusal("POST", "/leases", body) == (404, "unknown_partition")
            other = TopicPartition("u", 0)
            world.lead(other)
            lease = await world.ok("POST", "/leases", body | {"topic": "u"})
            world.replicas.requests.take_offline([other])
            shown = await world.ok("GET", f"/leases/{lease['lease_id']}")
            assert (shown["state"], shown["reason"]) == ("lost", "its log directory failed")

    async def test_starting_removes_what_no_lease_needs(self) -> None:
        world = LeaseWorld()
        async with world:
            fill(world.lead(), 60)
            lease = await world.lease_service.grant(of_the_broker("compact"))
        assert lease_directories(world) == []
        world.disk.make_directory(f"{DIRECTORY}/.leases/{lease['lease_id']}/parts")
        world.disk.make_directory(f"{DIRECTORY}/.leases/{7:032x}.ended")
        async with world:
            assert lease_directories(world) == []
            assert await world.refusal("GET", f"/leases/{lease['lease_id']}") == (404, "unknown_lease")


def of_the_broker(purpose: str) -> dict[str, Any]:
    return {"topic": TP.topic, "partition": TP.partition, "run_id": "cleaner", "purpose": purpose}


class TestTheBrokersOwnRuns:
    """Their parts are not checked against the commit."""

    async def test_no_client_takes_a_lease_of_theirs(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            own = await world.lease_service.grant(of_the_broker("compact"))
            for purpose in ("compact", "audit"):
                assert await world.refusal("POST", "/leases", of_the_broker(purpose)) == (400, "invalid_request")
            assert world.leases.book.find(own["lease_id"]).living

    async def test_no_client_hands_in_parts_or_commits_for_them(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            own = await world.lease_service.grant(of_the_broker("compact"))
            decision, parts = await world.compaction(own)
            bases, data = parts[0]
            assert (await world.put(own, bases[0], data))[0] == 400
            body = commit_body(own, decision, [])
            path = f"/leases/{own['lease_id']}/commit"
            assert await world.refusal("POST", path, body) == (400, "invalid_request")
            assert (await world.lease_service.commit(own["lease_id"], body))["state"] == "committed"


class TestRead:
    async def test_ranges(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take()
            path = f"/leases/{lease['lease_id']}/segments/0/log"
            whole = await world.read(lease, 0)
            size = log.segments[0].size
            assert len(whole) == size
            for given, start, end in (("0-0", 0, 1), ("5-", 5, size), ("7-99", 7, 100), (f"3-{size * 9}", 3, size)):
                response = await world.http.get(path, headers={"range": f"bytes={given}"})
                assert response.status_code == 206
                assert response.content == whole[start:end]
                assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
                assert response.headers["content-length"] == str(end - start)
            for given in (f"{size}-", "9-8", "-5", "x-y", "1-2,4-5", "9" * 5000 + "-"):
                assert await world.refusal("GET", path, headers={"range": f"bytes={given}"}) == (416, "range_wanted")
            assert len(await world.read(lease, 0, "index")) == lease["segments"][0]["files"]["index"]
            assert await world.read(lease, 0, "txnindex") == b""

    async def test_what_is_not_leased(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take()
            path = f"/leases/{lease['lease_id']}/segments"
            for name in (f"{log.segments.active.base_offset}/log", "1/log", "0/snapshot", "0/..%2flease.json"):
                status, _ = await world.call("GET", f"{path}/{name}") if "%" not in name else (404, None)
                assert status == 404, name
            assert await world.refusal("GET", f"{path}/0/snapshot") == (404, "unknown_segment")
            audit = await world.take("audit")
            active = f"/leases/{audit['lease_id']}/segments/{log.segments.active.base_offset}/index"
            assert await world.refusal("GET", active) == (404, "unknown_segment")

    async def test_a_read_is_a_sign_of_life(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take(ttl_ms=5_000)
            world.clock.advance(4)
            await world.read(lease, 0)
            world.clock.advance(4)
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "active"

    async def test_a_file_that_was_cut_is_never_served_short(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take("audit")
            path = f"/leases/{lease['lease_id']}/segments/{log.segments.active.base_offset}/log"
            world.leases.book.lose_replica = lambda *args: None  # type: ignore[method-assign]
            log.truncate_to(log.segments.active.base_offset)
            with pytest.raises(LogyardError, match="was leased"):
                await world.http.get(path)


async def test_leases_of_a_deleted_replica_are_lost() -> None:
    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        lease = await world.take("audit")
        world.delete()
        assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "lost"
