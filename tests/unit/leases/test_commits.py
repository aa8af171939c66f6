"""Commits: from a lease to swapped segments, every fence, and trouble in between."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.segment import swap
from logyard.broker.model import TopicPartition
from tests.support.lease_world import DIRECTORY, TP, LeaseWorld, fill, latest, lease_directories, ready_to_commit
from tests.support.logs import content

SHA = "0" * 64


def overtaken(monkeypatch: pytest.MonkeyPatch, log: PartitionLog, happens: Callable[[], object]) -> None:
    """Have this happen between the making of the replacements and the swap."""
    prepare = log.prepare_replacement

    def prepared(*args: Any) -> Any:
        made = prepare(*args)
        happens()
        return made

    monkeypatch.setattr(log, "prepare_replacement", prepared)


class TestCommit:
    async def test_round_trip(self) -> None:
        async with LeaseWorld() as world:
            lease, body, parts = await ready_to_commit(world)
            log = world.store.logs.get(TP)
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
            assert [s.base_offset for s in list(log.segments)[:-1]] == [bases[0] for bases, _ in parts]
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
            log = world.store.logs.get(TP)
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
            log = world.store.logs.get(TP)
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
            log = world.store.logs.get(TP)
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

    async def test_the_fence_is_looked_at_again_right_before_the_swap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.logs.get(TP)
            assert log is not None
            before = content(log)
            overtaken(monkeypatch, log, lambda: world.lead(leader_epoch=1))
            path = f"/leases/{lease['lease_id']}/commit"
            assert await world.refusal("POST", path, body) == (409, "fenced")
            assert content(log) == before
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith(".cleaned")]
            assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "active"

    async def test_a_log_whose_policy_changed_keeps_its_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever turns compaction off wants to keep what is there, as with Apache Kafka, which ends its cleaning."""
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.logs.get(TP)
            assert log is not None
            before, compacted = content(log), log.config
            kept = replace(compacted, cleanup_policy=frozenset({"delete"}))
            overtaken(monkeypatch, log, lambda: setattr(log, "config", kept))
            path = f"/leases/{lease['lease_id']}/commit"
            assert await world.refusal("POST", path, body) == (409, "not_compacted")
            assert content(log) == before
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith(".cleaned")]
            assert await world.refusal("POST", path, body) == (409, "not_compacted")

    async def test_truncation_during_the_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.logs.get(TP)
            assert log is not None
            prepare = log.prepare_replacement

            def cut(*args: Any) -> Any:
                log.truncate_to(lease["segments"][-1]["base_offset"])
                return prepare(*args)

            monkeypatch.setattr(log, "prepare_replacement", cut)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith((".cleaned", ".swap"))]
            assert world.store.cleaner_offset(TP) is None

    async def test_truncation_while_the_replacements_are_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world, group_size=1)
            log = world.store.logs.get(TP)
            assert log is not None
            # The segments of the second group stay: what stands between two groups is linked aside.
            del body["groups"][1]
            assert len(body["groups"]) >= 2
            rewrite = swap.replacement_of

            def cut_behind_the_first(*args: Any) -> Any:
                made = rewrite(*args)
                log.truncate_to(1)
                return made

            monkeypatch.setattr(swap, "replacement_of", cut_behind_the_first)
            status, answer = await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            assert (status, answer["error"], answer["state"]) == (409, "lease_ended", "lost")
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith((".cleaned", ".swap"))]

    async def test_a_truncation_behind_the_swap_does_not_undo_it(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            log = world.store.logs.get(TP)
            assert log is not None
            swap_in = log.swap_in
            states: list[str] = []

            def cut() -> None:
                log.truncate_to(lease["end_offset"] - 1)
                states.append(world.lease_service.show(lease["lease_id"])["state"])

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
            waiting = asyncio.ensure_future(world.lease_service.commit(lease["lease_id"], body))
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

    async def test_what_nobody_expects_ends_the_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)

            def bug(*args: Any) -> Any:
                raise ValueError("a bug")

            monkeypatch.setattr(swap, "BatchIndexer", bug)
            with pytest.raises(ValueError, match="a bug"):
                await world.lease_service.commit(lease["lease_id"], body)
            shown = await world.ok("GET", f"/leases/{lease['lease_id']}")
            assert (shown["state"], shown["reason"]) == ("aborted", "the commit failed: ValueError('a bug')")
            assert not [e.name for e in world.disk.list(DIRECTORY) if e.name.endswith(".cleaned")]
            await world.take(run_id="next")  # its log is not held for ever

    async def test_an_io_error_while_building(self) -> None:
        async with LeaseWorld() as world:
            lease, body, _ = await ready_to_commit(world)
            assert isinstance(world.disk, MemoryDisk)
            world.disk.fail(f"{DIRECTORY}/{0:020d}.index.cleaned", errno.EIO)
            assert await world.refusal("POST", f"/leases/{lease['lease_id']}/commit", body) == (507, "storage")
            world.disk.heal()


class SlowWorld(LeaseWorld):
    """A disk that puts the parts of a second sender in their places only when a commit has begun, if one does."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.go_on = asyncio.Event()

    async def _run_inline(self, work: Any) -> Any:
        called = getattr(work, "func", work)
        if self.holds and called == self.disk.rename:
            await self.go_on.wait()
        if self.holds and called.__name__ == "_write_begun":
            self.go_on.set()
            await asyncio.sleep(0.01)
        return await super()._run_inline(work)


async def test_a_part_that_comes_again_during_the_commit_is_not_swapped_in_unseen() -> None:
    """Its first request hung in the network or at the disk; what is committed is what was checked."""
    async with SlowWorld() as world:
        lease, body, parts = await ready_to_commit(world)
        log = world.store.logs.get(TP)
        assert log is not None
        before = content(log)
        bases = parts[0][0]
        other = b"".join([await world.read(lease, base) for base in bases])
        world.holds = True
        second = asyncio.ensure_future(world.put(lease, bases[0], other))
        for _ in range(50):
            await asyncio.sleep(0)
        commit = asyncio.ensure_future(world.refusal("POST", f"/leases/{lease['lease_id']}/commit", body))
        for _ in range(200):
            await asyncio.sleep(0)
        world.go_on.set()
        assert await commit == (422, "bad_part")
        await second
        world.holds = False
        assert content(log) == before
        assert (await world.put(lease, bases[0], parts[0][1]))[0] in (200, 201)
        await world.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
        assert latest(content(log)) == latest(before)
