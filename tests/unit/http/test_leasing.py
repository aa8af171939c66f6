"""The lease routes over real logs: every route, every refusal, and a compaction from lease to swapped segments."""

import asyncio
import errno
import hashlib
from typing import Any

import pytest

from logyard.broker.errors import LogyardError
from logyard.broker.log import layout, swap
from logyard.broker.log.checkpoints import decode_epochs
from logyard.broker.log.disk import OsDisk
from logyard.broker.log.log import Origin
from logyard.broker.log.memory_disk import MemoryDisk
from logyard.broker.log.producers import decode_snapshot
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.topic_config import TopicConfig
from tests.support.lease_world import COMPACTED, ROOT, TP, LeaseWorld, commit_body, fill, in_pieces, latest
from tests.support.logs import content

DIRECTORY = f"{ROOT}/t-0"
SHA = "0" * 64


def lease_directories(world: LeaseWorld) -> list[str]:
    if not world.disk.exists(f"{DIRECTORY}/.leases"):
        return []
    return [entry.name for entry in world.disk.list(f"{DIRECTORY}/.leases")]


class TestTake:
    async def test_the_lease_says_what_the_log_is(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take(ttl_ms=30_000)
            closed = log.segments[:-1]
            assert len(closed) >= 3
            assert [s["base_offset"] for s in lease["segments"]] == [s.base_offset for s in closed]
            for number, (told, segment) in enumerate(zip(lease["segments"], closed, strict=True)):
                assert told["last_offset"] == log.end_of(number) - 1
                assert told["size"] == segment.size == told["files"]["log"]
                assert told["files"]["txnindex"] == 0
                assert told["files"]["index"] % 8 == 0
                assert told["files"]["timeindex"] % 12 == 0
                assert (told["active"], told["max_timestamp"]) == (False, segment.max_timestamp)
            assert lease["end_offset"] == log.active.base_offset
            assert (lease["log_end_offset"], lease["high_watermark"], lease["last_stable_offset"]) == (180, 180, 180)
            assert (lease["leader"], lease["is_leader"], lease["leader_epoch"]) == (1, True, 0)
            assert (lease["replicas"], lease["isr"]) == ([1, 2], [1, 2])
            assert (lease["cluster_id"], lease["broker_id"], lease["topic_id"]) == ("cluster", 1, None)
            assert lease["leader_epochs"] == [[0, 0]]
            assert lease["expires_at_ms"] == lease["now_ms"] + 30_000
            assert (lease["clean_offset"], lease["first_dirty_at_ms"]) == (0, closed[0].max_timestamp)
            assert lease["config"]["cleanup.policy"] == "compact"
            assert lease["directory"] == DIRECTORY
            names = [e.name for e in world.disk.list(lease["links_dir"])]
            assert len(names) == 3 * len(closed)
            assert world.disk.list(lease["parts_dir"]) == []

    async def test_audit_and_export_get_the_active_segment_as_well(self) -> None:
        async with LeaseWorld(config=TopicConfig(segment_bytes=2000)) as world:
            log = world.lead()
            fill(log, 60)
            log.set_high_watermark(100)
            exported = await world.take("export")
            assert exported["segments"][-1]["files"] == {"log": log.active.size}
            lease = await world.take("audit")
            last = lease["segments"][-1]
            assert (last["active"], last["base_offset"]) == (True, log.active.base_offset)
            # An audit looks at what lies beside the indexes as well.
            assert set(last["files"]) == {"log", "snapshot", "epochs"}
            assert decode_snapshot(await world.read(lease, last["base_offset"], "snapshot")) == []
            epochs = await world.read(lease, last["base_offset"], "epochs")
            assert [list(entry) for entry in decode_epochs(epochs)] == lease["leader_epochs"]
            assert (last["last_offset"], lease["end_offset"]) == (179, 100)
            size = log.active.size
            fill(log, 1)
            data = await world.read(lease, last["base_offset"])
            assert len(data) == size
            assert [h.last_offset for _, h in batch.iter_headers(data)][-1] == 179

    async def test_end_offset_heeds_watermark_open_transactions_and_lag(self) -> None:
        config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2000, min_compaction_lag_ms=1000)
        async with LeaseWorld(config=config) as world:
            log = world.lead()
            now = world.clock.now_ms()
            fill(log, 30, now_ms=now - 5000)
            fill(log, 40, now_ms=now - 500)
            second = next(s for s in log.segments if s.max_timestamp > now - 1000)
            lease = await world.take()
            assert lease["end_offset"] == second.base_offset > 0
            assert lease["segments"][-1]["last_offset"] == second.base_offset - 1
            log.set_high_watermark(5)
            lease = await world.take()
            assert lease["end_offset"] == 5
            assert [s["base_offset"] for s in lease["segments"]] == [0]

    async def test_refusals(self) -> None:
        async with LeaseWorld(config=TopicConfig(segment_bytes=2000)) as world:
            world.lead()
            good = {"topic": "t", "partition": 0, "run_id": "r", "purpose": "audit"}

            async def refusal(**changes: Any) -> tuple[int, str]:
                return await world.refusal("POST", "/leases", good | changes)

            assert await refusal(purpose="compact") == (409, "not_compacted")
            assert await refusal(topic="nowhere") == (404, "unknown_partition")
            assert await refusal(partition=1) == (404, "unknown_partition")
            for wrong in (
                {"topic": 3},
                {"topic": ""},
                {"partition": -1},
                {"partition": True},
                {"partition": "0"},
                {"run_id": ""},
                {"run_id": "x" * 201},
                {"purpose": "steal"},
                {"purpose": None},
                {"ttl_ms": 4999},
                {"ttl_ms": 600_001},
                {"ttl_ms": 6000.5},
            ):
                assert await refusal(**wrong) == (400, "invalid_request"), wrong
            assert await refusal(ttl_ms=None, more="ignored") == (201, "none")
            huge = good | {"run_id": "x" * (4 * 1024 * 1024)}
            assert await world.refusal("POST", "/leases", huge) == (413, "too_large")
            response = await world.http.post("/leases", content=b"{")
            assert (response.status_code, response.json()["error"]) == (400, "invalid_request")

    async def test_every_route_wants_the_token(self) -> None:
        async with LeaseWorld() as world:
            routes = [
                ("POST", "/leases"),
                ("GET", "/leases"),
                ("GET", "/leases/x"),
                ("POST", "/leases/x/heartbeat"),
                ("GET", "/leases/x/segments/0/log"),
                ("PUT", "/leases/x/parts/0"),
                ("POST", "/leases/x/commit"),
                ("POST", "/leases/x/abort"),
                ("GET", "/partitions"),
                ("GET", "/partitions/t/0"),
            ]
            for method, path in routes:
                headers = {"authorization": "Bearer wrong"}
                assert await world.refusal(method, path, headers=headers) == (401, "unauthorized"), path
            assert (await world.http.get("/health", headers={"authorization": ""})).status_code == 200

    async def test_one_compact_lease_per_replica_and_retaking(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            first = await world.take(run_id="a")
            body = {"topic": "t", "partition": 0, "run_id": "b", "purpose": "compact"}
            status, answer = await world.call("POST", "/leases", body)
            assert (status, answer["error"], answer["run_id"]) == (409, "lease_held", "a")
            assert answer["expires_at_ms"] == first["expires_at_ms"]
            again = await world.take(run_id="a")
            assert again["generation"] > first["generation"]
            shown = await world.ok("GET", f"/leases/{first['lease_id']}")
            assert (shown["state"], shown["reason"]) == ("aborted", "retaken")
            await world.leases.settle()
            assert lease_directories(world) == [again["lease_id"]]

    async def test_thirty_two_living_leases(self) -> None:
        async with LeaseWorld() as world:
            world.lead()
            for number in range(32):
                await world.take("audit", run_id=f"r{number}")
            body = {"topic": "t", "partition": 0, "run_id": "one more", "purpose": "export"}
            assert await world.refusal("POST", "/leases", body) == (429, "too_many_leases")
            assert len((await world.ok("GET", "/leases"))["leases"]) == 32
            assert len((await world.ok("GET", "/leases?run_id=r7"))["leases"]) == 1

    async def test_a_log_cut_while_it_is_linked_is_leased_again(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)

            def cut() -> None:
                world.before_work = lambda: None
                log.truncate_to(100)

            world.before_work = cut
            lease = await world.take("audit")
            assert lease["log_end_offset"] == log.log_end_offset <= 100
            await world.leases.settle()
            assert lease_directories(world) == [lease["lease_id"]]
            states = [row["state"] for row in (await world.ok("GET", "/leases"))["leases"]]
            assert states == ["lost", "active"]

    async def test_a_swap_while_an_audit_is_linked(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            commit = asyncio.ensure_future(world.leasing.commit(lease["lease_id"], body))
            while not (world.leases.book.find(lease["lease_id"]).swapped):
                audits = [await world.take("audit", run_id=str(log.cuts))]
                await asyncio.sleep(0)
            await commit
            audits.append(await world.take("audit", run_id="after"))
            for audit in audits:
                status, _ = await world.call("GET", f"/leases/{audit['lease_id']}")
                assert status == 200
                for segment in audit["segments"]:
                    data = await world.read(audit, segment["base_offset"])
                    last = [h.last_offset for _, h in batch.iter_headers(data)][-1]
                    assert last == segment["last_offset"]
            reasons = [row["reason"] for row in (await world.ok("GET", "/leases"))["leases"]]
            assert "the log changed while it was linked" in reasons

    async def test_a_segment_that_retention_takes_meanwhile(self) -> None:
        async with LeaseWorld(config=TopicConfig(segment_bytes=2000, retention_bytes=2000)) as world:
            log = world.lead()
            fill(log, 60)

            def retire() -> None:
                world.before_work = lambda: None
                assert log.delete_old_segments(world.clock.now_ms())

            world.before_work = retire
            lease = await world.take("export")
            assert lease["log_start_offset"] == log.log_start_offset > 0
            assert lease["segments"][0]["base_offset"] == log.segments[0].base_offset

    async def test_links_that_cannot_be_made(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            assert isinstance(world.disk, MemoryDisk)
            world.disk.fail(f"{DIRECTORY}/.leases", errno.EMLINK)
            body = {"topic": "t", "partition": 0, "run_id": "r", "purpose": "compact"}
            assert await world.refusal("POST", "/leases", body) == (507, "storage")
            world.disk.heal()

    async def test_transactions_and_producers_are_told(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            for number in range(40):
                data = batch.build(
                    [batch.Record(0, log.now_ms, b"k%d" % number, b"v" * 20)],
                    base_offset=0,
                    producer_id=9,
                    producer_epoch=1,
                    base_sequence=number,
                    transactional=True,
                )
                log.append_as_leader(memoryview(data), 0, now_ms=log.now_ms)
                end = batch.build_control(
                    batch.ABORT if number % 2 else batch.COMMIT,
                    producer_id=9,
                    producer_epoch=1,
                    coordinator_epoch=3,
                    timestamp=log.now_ms,
                )
                log.append_as_leader(memoryview(end), 0, now_ms=log.now_ms, origin=Origin.COORDINATOR)
            log.set_high_watermark(80)
            lease = await world.take()
            aborted = lease["aborted_transactions"]
            assert [a["last_offset"] for a in aborted] == list(range(3, 80, 4))
            assert aborted[0] == {"producer_id": 9, "first_offset": 2, "last_offset": 3, "last_stable_offset": 4}
            assert lease["producers"] == [
                {
                    "producer_id": 9,
                    "producer_epoch": 1,
                    "last_sequence": 39,
                    "last_offset": 78,
                    "last_timestamp": log.now_ms,
                    "coordinator_epoch": 3,
                    "current_txn_first_offset": -1,
                }
            ]
            first = lease["segments"][0]
            assert first["files"]["txnindex"] == len(await world.read(lease, 0, "txnindex")) > 0


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
            assert log.delete_old_segments(world.clock.now_ms()) == 0
            world.clock.advance(5)
            path = f"/leases/{lease['lease_id']}"
            shown = await world.ok("GET", path)
            assert (shown["state"], shown["reason"]) == ("expired", "no heartbeat for 5000 ms")
            status, answer = await world.call("POST", f"{path}/heartbeat", {"generation": lease["generation"]})
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "expired")
            await world.leases.settle()
            assert lease_directories(world) == []
            assert log.delete_old_segments(world.clock.now_ms()) > 0
            world.clock.advance(600)
            assert await world.refusal("GET", path) == (404, "unknown_lease")

    async def test_audit_leases_pause_nothing_and_outlive_a_deletion(self) -> None:
        config = TopicConfig(segment_bytes=2000, retention_bytes=0, file_delete_delay_ms=0)
        async with LeaseWorld(config=config) as world:
            log = world.lead()
            fill(log, 60)
            before = content(log)
            lease = await world.take("audit")
            assert log.delete_old_segments(world.clock.now_ms()) > 1
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
            world.replicas.log_dir_failed([other])
            shown = await world.ok("GET", f"/leases/{lease['lease_id']}")
            assert (shown["state"], shown["reason"]) == ("lost", "its log directory failed")

    async def test_starting_removes_what_no_lease_needs(self) -> None:
        world = LeaseWorld()
        async with world:
            fill(world.lead(), 60)
            lease = await world.take(run_id="cleaner")
        assert lease_directories(world) == []
        world.disk.make_directory(f"{DIRECTORY}/.leases/{lease['lease_id']}/parts")
        world.disk.make_directory(f"{DIRECTORY}/.leases/{7:032x}.ended")
        async with world:
            assert lease_directories(world) == []
            assert await world.refusal("GET", f"/leases/{lease['lease_id']}") == (404, "unknown_lease")


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
            for given in (f"{size}-", "9-8", "-5", "x-y", "1-2,4-5"):
                assert await world.refusal("GET", path, headers={"range": f"bytes={given}"}) == (416, "range_wanted")
            assert len(await world.read(lease, 0, "index")) == lease["segments"][0]["files"]["index"]
            assert await world.read(lease, 0, "txnindex") == b""

    async def test_what_is_not_leased(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take()
            path = f"/leases/{lease['lease_id']}/segments"
            for name in (f"{log.active.base_offset}/log", "1/log", "0/snapshot", "0/..%2flease.json"):
                status, _ = await world.call("GET", f"{path}/{name}") if "%" not in name else (404, None)
                assert status == 404, name
            assert await world.refusal("GET", f"{path}/0/snapshot") == (404, "unknown_segment")
            audit = await world.take("audit")
            active = f"/leases/{audit['lease_id']}/segments/{log.active.base_offset}/index"
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
            path = f"/leases/{lease['lease_id']}/segments/{log.active.base_offset}/log"
            world.leases.book.lose = lambda *args: None  # type: ignore[method-assign]
            log.truncate_to(log.active.base_offset)
            with pytest.raises(LogyardError, match="was leased"):
                await world.http.get(path)


class TestParts:
    async def test_put_is_idempotent_and_the_last_writer_wins(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take(ttl_ms=5_000)
            world.clock.advance(4)
            status, answer = await world.put(lease, 0, b"one")
            assert (status, answer["size"], answer["base_offset"]) == (201, 3, 0)
            world.clock.advance(4)
            assert (await world.put(lease, 0, b"one"))[0] == 200
            assert (await world.put(lease, 0, b"two!"))[0] == 201
            assert [e.name for e in world.disk.list(lease["parts_dir"])] == ["00000000000000000000.part"]
            file = world.disk.open(f"{lease['parts_dir']}/00000000000000000000.part")
            assert file.read_at(100, 0) == b"two!"

    async def test_a_large_part_comes_in_pieces(self) -> None:
        config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2 << 20)
        async with LeaseWorld(config=config) as world:
            log = world.lead()
            for number in range(40):
                records = [batch.Record(0, log.now_ms, b"%d" % number, bytes(200_000))]
                log.append_as_leader(memoryview(batch.build(records, base_offset=0)), 0, now_ms=log.now_ms)
            log.set_high_watermark(log.log_end_offset)
            lease = await world.take()
            data = bytes(range(256)) * 12_000
            digest = hashlib.sha256(data).hexdigest()
            made, answer = await world.leasing.put_part(
                lease["lease_id"], 0, lease["generation"], len(data), digest, in_pieces(data, 65_537)
            )
            assert made
            assert answer["sha256"] == digest
            assert world.disk.status(f"{lease['parts_dir']}/{0:020d}.part").size == len(data)
            big = await world.read(lease, 0)
            assert len(big) == lease["segments"][0]["size"] > 1 << 20
            assert next(h.base_offset for _, h in batch.iter_headers(big)) == 0

    async def test_refusals(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take()
            path = f"/leases/{lease['lease_id']}/parts/0?generation={lease['generation']}"

            async def refusal(at: str = path, data: bytes = b"data", **headers: str) -> tuple[int, str]:
                digest = {"x-content-sha256": hashlib.sha256(data).hexdigest()}
                response = await world.http.put(at, content=data, headers=digest | headers)
                return response.status_code, response.json().get("error", "none")

            assert await refusal(**{"x-content-sha256": SHA}) == (422, "bad_part")
            assert await refusal(**{"x-content-sha256": "short"}) == (400, "invalid_request")
            assert await refusal(path.partition("?")[0]) == (400, "invalid_request")
            assert await refusal(path.replace("generation=", "generation=9")) == (409, "wrong_generation")
            assert await refusal(path.replace("/0?", "/1?")) == (404, "unknown_segment")
            assert await refusal(path.replace("/0?", f"/{log.active.base_offset}?")) == (404, "unknown_segment")
            allowed = 2 * sum(s["size"] for s in lease["segments"]) + (1 << 20)
            assert await refusal(data=bytes(allowed + 1)) == (413, "too_large")
            assert await refusal(data=bytes(allowed)) == (201, "none")
            audit = await world.take("audit")
            other = f"/leases/{audit['lease_id']}/parts/0?generation={audit['generation']}"
            assert await refusal(other) == (400, "invalid_request")
            assert [e.name for e in world.disk.list(lease["parts_dir"])] == ["00000000000000000000.part"]

    async def test_fewer_bytes_than_announced_leave_nothing(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            digest = hashlib.sha256(b"data").hexdigest()
            for size, data in ((9, b"data"), (3, b"data")):
                with pytest.raises(LogyardError, match="arrived"):
                    await world.leasing.put_part(
                        lease["lease_id"], 0, lease["generation"], size, digest, in_pieces(data, 2)
                    )
            assert world.disk.list(lease["parts_dir"]) == []

    async def test_a_lease_that_ends_while_a_part_arrives(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()

            async def chunks() -> Any:
                yield b"da"
                world.leases.book.abort(world.leases.book.find(lease["lease_id"]), "now", world.clock.now_ms())
                await world.leases.settle()
                yield b"ta"

            with pytest.raises(LogyardError, match="aborted") as refused:
                await world.leasing.put_part(lease["lease_id"], 0, lease["generation"], 4, SHA, chunks())
            assert refused.value.code == "lease_ended"  # type: ignore[attr-defined]
            assert lease_directories(world) == []

    async def test_a_disk_that_is_nearly_full_takes_no_part(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            assert isinstance(world.disk, MemoryDisk)
            world.disk.usable_bytes = 1000
            status, answer = await world.put(lease, 0, b"data")
            assert (status, answer["error"]) == (507, "storage")
            assert world.store.online_directories == (ROOT,)


async def ready_to_commit(world: LeaseWorld, group_size: int = 2) -> tuple[Any, Any, Any]:
    """A filled log, a lease on it, its compaction handed in; returns lease, commit body, parts."""
    fill(world.lead(), 60)
    lease = await world.take()
    decision, parts = await world.compaction(lease, group_size)
    await world.put_all(lease, parts)
    return lease, commit_body(lease, decision, parts), parts


class TestCommit:
    async def test_round_trip(self) -> None:
        async with LeaseWorld() as world:
            lease, body, parts = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            before, size = latest(content(log)), log.size
            answer = await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert answer == {
                "state": "committed",
                "segments_before": len(lease["segments"]),
                "segments_after": len(parts),
                "bytes_before": sum(s["size"] for s in lease["segments"]),
                "bytes_after": sum(len(data) for _, data in parts),
                "records": sum(group["part"]["records"] for group in body["groups"]),
                "clean_offset": lease["end_offset"],
            }
            assert latest(content(log)) == before
            assert log.size < size
            assert [s.base_offset for s in log.segments[:-1]] == [bases[0] for bases, _ in parts]
            assert world.store.checkpointed(TP)[layout.CLEANER_OFFSETS] == lease["end_offset"]
            again = await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert again == answer
            other = body | {"decision": body["decision"] | {"sha256": SHA}}
            refused = await world.refusal("POST", f"/leases/{lease['lease_id']}/commit", other)
            assert refused == (409, "lease_ended")
            await world.leases.settle()
            assert lease_directories(world) == [f"{lease['lease_id']}.json"]
            fill(log, 20)
            following = await world.take(run_id="next")
            assert following["clean_offset"] == lease["end_offset"]
            shown = await world.ok("POST", f"/leases/{lease['lease_id']}/abort", {"generation": lease["generation"]})
            assert (shown["state"], shown["result"]) == ("committed", answer)
            whole = content(log)
        async with world:
            assert content(world.lead()) == whole
            assert world.store.cleaner_offset(TP) == lease["end_offset"]

    async def test_round_trip_on_a_real_disk(self, tmp_path: Any) -> None:
        async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            before = latest(content(log))
            await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert latest(content(log)) == before
            await world.leases.settle()
            await asyncio.sleep(0.05)
            left = sorted(path.name for path in (tmp_path / "t-0").glob("*.log*"))
            assert left == [f"{segment.base_offset:020d}.log" for segment in log.segments]
            left = [path.name for path in (tmp_path / "t-0" / ".leases").iterdir()]
            assert left == [f"{lease['lease_id']}.json"]

    async def test_no_groups_move_the_checkpoint_alone(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            before = content(log)
            answer = await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body | {"groups": []})
            assert (answer["segments_before"], answer["bytes_after"]) == (0, 0)
            assert content(log) == before
            assert world.store.cleaner_offset(TP) == lease["end_offset"]

    async def test_requests_that_do_not_parse(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            group = body["groups"][0]
            part = group["part"]

            def with_group(**changes: Any) -> Any:
                return body | {"groups": [group | changes]}

            wrong = [
                {},
                body | {"generation": "7"},
                body | {"leader_epoch": None},
                body | {"clean_offset": lease["end_offset"] - 1},
                body | {"decision": 1},
                body | {"decision": body["decision"] | {"sha256": "x"}},
                body | {"decision": body["decision"] | {"range_start": lease["end_offset"] + 1}},
                body | {"decision": body["decision"] | {"range_end": 10**6}, "clean_offset": 10**6},
                body | {"groups": {}},
                body | {"groups": [1]},
                with_group(segments=[]),
                with_group(segments=[True]),
                with_group(part=None),
                with_group(part=part | {"size": -1}),
                with_group(part=part | {"sha256": None}),
                with_group(part=part | {"records": 1.5}),
                with_group(segments=[group["segments"][1], group["segments"][0]]),
                with_group(segments=[group["segments"][0], body["groups"][1]["segments"][0]]),
                body | {"groups": [group, group]},
                body | {"groups": list(reversed(body["groups"]))},
            ]
            path = f"/leases/{lease['lease_id']}/commit"
            for request in wrong:
                assert await world.refusal("POST", path, request) == (400, "invalid_request"), request
            assert await world.refusal("POST", path, with_group(segments=[1])) == (404, "unknown_segment")
            assert (await world.ok("POST", path, body))["state"] == "committed"

    async def test_fences(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            path = f"/leases/{lease['lease_id']}/commit"
            generation = body["generation"]
            assert await world.refusal("POST", path, body | {"generation": generation - 1}) == (409, "wrong_generation")
            assert await world.refusal("POST", path, body | {"leader_epoch": 1}) == (409, "fenced")
            mark = log.high_watermark
            log.high_watermark = lease["end_offset"] - 1
            assert await world.refusal("POST", path, body) == (409, "fenced")
            log.high_watermark = mark
            world.lead(leader_epoch=1)
            assert await world.refusal("POST", path, body) == (409, "fenced")
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "active"
            audit = await world.take("audit")
            other = body | {"generation": audit["generation"], "leader_epoch": 1}
            refused = await world.refusal("POST", f"/leases/{audit['lease_id']}/commit", other)
            assert refused == (400, "invalid_request")
            assert await world.refusal("POST", "/leases/none/commit", body) == (404, "unknown_lease")

    async def test_a_zombie_of_an_earlier_generation(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            again = await world.take()
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["reason"]) == (409, "lease_ended", "retaken")
            stolen = f"/leases/{again['lease_id']}/commit"
            assert await world.refusal("POST", stolen, body) == (409, "wrong_generation")

    async def test_the_fence_is_looked_at_again_right_before_the_swap(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            before = content(log)
            prepare = log.prepare_replacement

            def overtaken(*args: Any) -> Any:
                made = prepare(*args)
                world.lead(leader_epoch=1)
                return made

            log.prepare_replacement = overtaken  # type: ignore[method-assign]
            path = f"/leases/{lease['lease_id']}/commit"
            assert await world.refusal("POST", path, body) == (409, "fenced")
            assert content(log) == before
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith(".cleaned")]
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "active"

    async def test_truncation_during_the_commit(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            prepare = log.prepare_replacement

            def cut(*args: Any) -> Any:
                log.truncate_to(lease["segments"][-1]["base_offset"])
                return prepare(*args)

            log.prepare_replacement = cut  # type: ignore[method-assign]
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith((".cleaned", ".swap"))]
            assert world.store.cleaner_offset(TP) is None

    async def test_truncation_while_the_replacements_are_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world, group_size=1)
            log = world.store.get(TP)
            assert log is not None
            # The segments of the second group stay: what stands between two groups is linked aside.
            del body["groups"][1]
            assert len(body["groups"]) >= 2
            rewrite = swap._rewrite

            def cut_behind_the_first(*args: Any) -> Any:
                made = rewrite(*args)
                log.truncate_to(1)
                return made

            monkeypatch.setattr(swap, "_rewrite", cut_behind_the_first)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith((".cleaned", ".swap"))]

    async def test_a_truncation_behind_the_swap_does_not_undo_it(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.get(TP)
            assert log is not None
            swap_in = log.swap_in
            states: list[str] = []

            def cut() -> None:
                log.truncate_to(lease["end_offset"] - 1)
                states.append(world.leasing.show(lease["lease_id"])["state"])

            def then_cut(replacements: Any) -> None:
                swap_in(replacements)
                asyncio.get_running_loop().call_soon(cut)

            log.swap_in = then_cut  # type: ignore[method-assign]
            answer = await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (answer["state"], states) == ("committed", ["committing"])
            assert log.log_end_offset < lease["end_offset"]

    async def test_a_second_commit_while_the_first_is_at_work(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            path = f"/leases/{lease['lease_id']}"
            seen: list[Any] = []

            async def look() -> None:
                seen.append((await world.ok("GET", path))["state"])
                seen.append(await world.refusal("POST", f"{path}/commit", body))
                seen.append(await world.refusal("POST", f"{path}/abort", {"generation": lease["generation"]}))
                seen.append((await world.put(lease, 0, b"late"))[1]["error"])
                take = {"topic": "t", "partition": 0, "run_id": "run", "purpose": "compact"}
                seen.append(await world.refusal("POST", "/leases", take))
                world.clock.advance(100)

            def once() -> None:
                world.before_work = lambda: None
                looking.append(asyncio.ensure_future(look()))

            looking: list[asyncio.Task[None]] = []
            slow = world.store.set_cleaner_offset

            async def wait_for_the_look(tp: TopicPartition, offset: int) -> None:
                await looking[0]
                await slow(tp, offset)

            world.store.set_cleaner_offset = wait_for_the_look  # type: ignore[method-assign]
            world.before_work = once
            assert (await world.ok("POST", f"{path}/commit", body))["state"] == "committed"
            busy = (409, "commit_in_progress")
            assert seen == ["committing", busy, busy, "commit_in_progress", busy]

    async def test_a_client_that_goes_away_does_not_stop_the_commit(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            waiting = asyncio.ensure_future(world.leasing.commit(lease["lease_id"], body))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
            await world.leases.settle()
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "committed"

    async def test_a_segment_that_is_not_the_leased_one(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            path = f"{DIRECTORY}/{0:020d}.log"
            copy = world.disk.open(path).read_at(1 << 20, 0)
            world.disk.remove(path)
            world.disk.open(path, create=True, write=True).write_at(copy, 0)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")

    async def test_disk_trouble_swaps_nothing(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            assert isinstance(world.disk, MemoryDisk)
            world.disk.usable_bytes = 1000
            path = f"/leases/{lease['lease_id']}"
            assert await world.refusal("POST", f"{path}/commit", body) == (507, "storage")
            shown = await world.ok("GET", path)
            assert shown["state"] == "aborted"
            assert shown["reason"].startswith("storage: 1000 bytes")
            await world.leases.settle()
            assert lease_directories(world) == []

    async def test_an_io_error_while_building(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            assert isinstance(world.disk, MemoryDisk)
            world.disk.fail(f"{DIRECTORY}/{0:020d}.index.cleaned", errno.EIO)
            assert await world.refusal("POST", f"/leases/{lease['lease_id']}/commit", body) == (507, "storage")
            world.disk.heal()


class TestBadParts:
    async def refusal(self, damage: Any) -> tuple[str, str]:
        """Commit with one part changed by `damage(bytes) -> bytes`; returns code and message."""
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            decision, parts = await world.compaction(lease)
            parts[1] = (parts[1][0], damage(parts[1][1]))
            await world.put_all(lease, parts)
            good = commit_body(lease, decision, [parts[0]])["groups"]
            data = parts[1][1]
            row = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **self.said}
            body = commit_body(lease, decision, [])
            body["groups"] = [*good, {"segments": parts[1][0], "part": row}]
            log = world.store.get(TP)
            assert log is not None
            before = content(log)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["base_offset"]) == (422, parts[1][0][0])
            assert content(log) == before
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "active"
            return answer["error"], answer["message"]

    said: dict[str, Any]

    @pytest.fixture(autouse=True)
    async def what_is_right(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            _, parts = await world.compaction(lease)
            headers = [h for _, h in batch.iter_headers(parts[1][1])]
            self.said = {"last_offset": headers[-1].last_offset, "records": sum(h.count for h in headers)}

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda data: data[:-1], "go past the end"),
            (lambda data: data[:30], "batch"),
            (lambda data: b"", "last offset"),
            (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "CRC"),
            (lambda data: data + data[-200:], ""),
            (lambda data: data[:16] + b"\x01" + data[17:], ""),
            (lambda data: data + bytes(batch.build([batch.Record(999, 1, b"k", b"v")], base_offset=999)), "999"),
            (lambda data: bytes(batch.build([batch.Record(0, 1, b"k", b"v")], base_offset=0)) + data, "follows"),
        ],
    )
    async def test_damage(self, damage: Any, message: str) -> None:
        code, told = await self.refusal(damage)
        assert code == "bad_part"
        assert message in told

    async def test_what_the_commit_says_of_it(self) -> None:
        right = dict(self.said)
        for change, message in (
            ({"records": right["records"] + 1}, "records"),
            ({"last_offset": right["last_offset"] + 1}, "last offset"),
            ({"sha256": SHA}, "sha256"),
            ({"size": 5}, "5"),
        ):
            self.said = right | change
            code, told = await self.refusal(bytes)
            assert code == "bad_part"
            assert message in told

    async def test_a_part_that_was_never_handed_in(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            decision, parts = await world.compaction(lease)
            body = commit_body(lease, decision, parts)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["base_offset"]) == (422, "bad_part", 0)
            await world.put_all(lease, parts)
            assert (await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body))["state"] == "committed"


class TestStatuses:
    async def test_one_partition(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            await world.store.checkpoint_high_watermarks()
            status = await world.ok("GET", "/partitions/t/0")
            assert (status["topic"], status["partition"], status["directory"]) == ("t", 0, DIRECTORY)
            assert (status["is_leader"], status["leader"], status["leader_epoch"]) == (True, 1, 0)
            assert (status["log_end_offset"], status["size"]) == (180, log.size)
            assert status["segments"][-1] == {
                "base_offset": log.active.base_offset,
                "size": log.active.size,
                "active": True,
            }
            assert status["checkpoints"] == {
                "replication-offset-checkpoint": 180,
                "recovery-point-offset-checkpoint": None,
                "log-start-offset-checkpoint": None,
                "cleaner-offset-checkpoint": None,
            }
            assert await world.refusal("GET", "/partitions/t/1") == (404, "unknown_partition")

    async def test_a_replica_that_moves_is_not_compacted_and_its_copy_is_no_stray(self) -> None:
        async with LeaseWorld(None, ROOT, COMPACTED, "/other") as world:
            world.store.get_or_create(TP, None, COMPACTED, True, ROOT)
            fill(world.lead(), 20)
            world.store.begin_move(TP, "/other")
            body = {"topic": TP.topic, "partition": TP.partition, "run_id": "r", "purpose": "compact"}
            assert await world.refusal("POST", "/leases", body) == (409, "moving")
            await world.ok("POST", "/leases", body | {"purpose": "audit"})
            assert (await world.ok("GET", "/partitions"))["strays"] == []
            world.store.begin_move(TP, ROOT)
            await world.ok("POST", "/leases", body)

    async def test_all_partitions_and_strays(self) -> None:
        async with LeaseWorld() as world:
            world.lead()
            world.lead(TopicPartition("u", 3))
            world.disk.make_directory(f"{ROOT}/odd-name")
            world.disk.make_directory(f"{ROOT}/x-0.{'a' * 32}-stray")
            world.disk.make_directory(f"{ROOT}/x-0.{'a' * 32}-delete")
            world.store.get_or_create(TopicPartition("orphan", 0), None, COMPACTED, True)
            answer = await world.ok("GET", "/partitions")
            assert [(p["topic"], p["partition"]) for p in answer["partitions"]] == [("t", 0), ("u", 3)]
            assert answer["log_dirs"] == [{"path": ROOT, "online": True}]
            assert (answer["broker_id"], answer["cluster_id"]) == (1, "cluster")
            names = [path.rpartition("/")[2] for path in answer["strays"]]
            assert names == ["odd-name", "orphan-0", f"x-0.{'a' * 32}-stray"]
