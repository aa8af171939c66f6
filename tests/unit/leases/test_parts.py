"""Parts: handed in whole or in pieces, refused, and what is wrong in them found before a swap."""

import asyncio
import hashlib
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import LogyardError
from logyard.broker.leases.room import SPARE_BYTES
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.records import batch
from tests.support.lease_world import ROOT, TP, LeaseWorld, commit_body, fill, in_pieces, lease_directories
from tests.support.logs import content

SHA = "0" * 64


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
            made, answer = await world.lease_service.put_part(
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

            async def refusal(at: str = path, data: bytes = b"data", sha256: str | None = None) -> tuple[int, str]:
                digest = {"x-content-sha256": sha256 or hashlib.sha256(data).hexdigest()}
                response = await world.http.put(at, content=data, headers=digest)
                return response.status_code, response.json().get("error", "none")

            assert await refusal(sha256=SHA) == (422, "bad_part")
            assert await refusal(sha256="short") == (400, "invalid_request")
            assert await refusal(path.partition("?")[0]) == (400, "invalid_request")
            assert await refusal(path.replace("generation=", "generation=9")) == (409, "wrong_generation")
            assert await refusal(path.replace("/0?", "/1?")) == (404, "unknown_segment")
            assert await refusal(path.replace("/0?", f"/{log.segments.active.base_offset}?")) == (
                404,
                "unknown_segment",
            )
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
                    await world.lease_service.put_part(
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
                await world.lease_service.put_part(lease["lease_id"], 0, lease["generation"], 4, SHA, chunks())
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

    async def test_room_that_a_part_still_needs_is_not_given_to_another(self) -> None:
        async with LeaseWorld() as world:
            fill(world.lead(), 60)
            lease = await world.take()
            assert isinstance(world.disk, MemoryDisk)
            world.disk.usable_bytes = SPARE_BYTES + 1500
            goes_on, data = asyncio.Event(), bytes(1000)

            async def chunks() -> Any:
                yield data[:10]
                await goes_on.wait()
                yield data[10:]

            sha = hashlib.sha256(data).hexdigest()
            first = asyncio.ensure_future(
                world.lease_service.put_part(lease["lease_id"], 0, lease["generation"], 1000, sha, chunks())
            )
            for _ in range(20):
                await asyncio.sleep(0)
            status, answer = await world.put(lease, 0, data)
            assert (status, answer["error"]) == (507, "storage")
            assert (await world.put(lease, 0, bytes(500)))[0] == 201
            goes_on.set()
            assert (await first)[0]
            assert (await world.put(lease, 0, data))[0] == 200, "and then it is there again"


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
            log = world.store.logs.get(TP)
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
