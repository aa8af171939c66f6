"""Taking leases: what one says of the log, who gets none, and logs that change while they are linked."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.leases import persistence
from logyard.broker.leases.book import Purpose
from logyard.broker.leases.snapshot import LogSnapshot, link
from logyard.broker.log import layout
from logyard.broker.log.checkpoints import decode_epochs
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.producers import Origin, decode_snapshot
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.records import batch
from tests.support.lease_world import DIRECTORY, TP, LeaseWorld, fill, lease_directories, ready_to_commit


class _LateLinks(LeaseWorld):
    """The disk's work for the task `late` is not begun before `is_due`."""

    def __init__(self) -> None:
        super().__init__()
        self.late: asyncio.Task[Any] | None = None
        self.is_due: Callable[[], bool] = lambda: False

    def _run(self, work: Callable[[], Any]) -> Any:
        is_late = self.late is not None and asyncio.current_task() is self.late
        return asyncio.ensure_future(self._run_when_due(work)) if is_late else super()._run(work)

    async def _run_when_due(self, work: Callable[[], Any]) -> Any:
        while not self.is_due():
            await asyncio.sleep(0)
        return await self._run_inline(work)


class TestTake:
    async def test_the_lease_says_what_the_log_is(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            lease = await world.take(ttl_ms=30_000)
            closed = list(log.segments)[:-1]
            assert len(closed) >= 3
            assert [s["base_offset"] for s in lease["segments"]] == [s.base_offset for s in closed]
            for number, (told, segment) in enumerate(zip(lease["segments"], closed, strict=True)):
                assert told["last_offset"] == log.end_of(number) - 1
                assert told["size"] == segment.size == told["files"]["log"]
                assert told["files"]["txnindex"] == 0
                assert told["files"]["index"] % 8 == 0
                assert told["files"]["timeindex"] % 12 == 0
                assert (told["active"], told["max_timestamp"]) == (False, segment.max_timestamp)
            assert lease["end_offset"] == log.segments.active.base_offset
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

    async def test_an_index_that_is_lost_is_left_out(self) -> None:
        async with LeaseWorld() as world:
            log = world.lead()
            fill(log, 60)
            for kind in (layout.INDEX, layout.TIME_INDEX):
                world.disk.remove(log.segments[1].path(kind))
            for purpose in ("audit", "compact"):
                lease = await world.take(purpose)
                first, second = lease["segments"][:2]
                assert {"log", "index", "timeindex"} <= set(first["files"])
                assert {"index", "timeindex"} & set(second["files"]) == set()
                assert second["last_offset"] == log.end_of(1) - 1

    async def test_audit_and_export_get_the_active_segment_as_well(self) -> None:
        async with LeaseWorld(config=TopicConfig(segment_bytes=2000)) as world:
            log = world.lead()
            fill(log, 60)
            log.set_high_watermark(100)
            exported = await world.take("export")
            assert exported["segments"][-1]["files"] == {"log": log.segments.active.size}
            lease = await world.take("audit")
            last = lease["segments"][-1]
            assert (last["active"], last["base_offset"]) == (True, log.segments.active.base_offset)
            # An audit looks at what lies beside the indexes as well.
            assert set(last["files"]) == {"log", "snapshot", "epochs"}
            assert decode_snapshot(await world.read(lease, last["base_offset"], "snapshot")) == []
            epochs = await world.read(lease, last["base_offset"], "epochs")
            assert [list(entry) for entry in decode_epochs(epochs)] == lease["leader_epochs"]
            assert (last["last_offset"], lease["end_offset"]) == (179, 100)
            size = log.segments.active.size
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
        async with _LateLinks() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.logs.get(TP)
            assert log is not None
            taken = {"topic": TP.topic, "partition": TP.partition, "run_id": "late", "purpose": "audit"}
            world.late = asyncio.ensure_future(world.lease_service.grant(taken))
            while len(list(world.leases.book)) == 1:
                await asyncio.sleep(0)
            world.is_due = lambda: world.leases.book.find(lease["lease_id"]).swapped
            commit = asyncio.ensure_future(world.lease_service.commit(lease["lease_id"], body))
            while not world.is_due():
                audits = [await world.take("audit", run_id=str(log.segments.cuts))]
                await asyncio.sleep(0)
            await commit
            audits += [await world.late, await world.take("audit", run_id="after")]
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
                assert delete_old_segments(log, world.clock.now_ms())

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


async def test_a_replica_deleted_while_it_is_linked_leaves_nothing_in_the_way() -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        run = world.ports.run_blocking
        snapshot = LogSnapshot.of(log, Purpose.AUDIT, 0, world.clock.now_ms())
        world.store.logs.delete(TP)
        with pytest.raises(FileNotFoundError):
            await run(lambda: link(world.disk, snapshot, f"{log.directory}/.leases/one"))
        with pytest.raises(FileNotFoundError):
            await run(lambda: persistence.write_decision(world.disk, f"{log.directory}/.leases", b"decided"))
        assert not world.disk.exists(log.directory)
        world.store.logs.get_or_create(TP, None, log.config, is_new=True)
