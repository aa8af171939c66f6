"""The machine stops at any disk operation of a commit: after the next start the log is the old one or the new one."""

import random
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MachineStopped, MemoryDisk
from logyard.broker.log.disk.memory_nodes import Choose
from logyard.broker.log.segment import index_builder
from tests.support.lease_world import ROOT, TP, LeaseWorld, commit_body, fill
from tests.support.logs import content

CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=450, index_interval_bytes=100)


async def prepared(disk: MemoryDisk) -> tuple[LeaseWorld, Any, Any]:
    """A broker with a flushed log of a few segments and a lease that is ready to be committed."""
    disk.make_directory(ROOT)
    disk.sync_directory("/")
    world = LeaseWorld(disk, config=CONFIG)
    await world.__aenter__()
    log = world.lead()
    fill(log, 24, keys=50, in_a_row=2)
    log.flush()
    lease = await world.take()
    decision, parts = await world.compaction(lease)
    # The second group stays as it is: segments between two groups take part in the swap as well.
    assert len(parts) == 3
    del parts[1]
    leased = {s["base_offset"]: s["size"] for s in lease["segments"]}
    assert all(len(data) < sum(leased[base] for base in bases) for bases, data in parts), "every group changes"
    await world.put_all(lease, parts)
    return world, lease, commit_body(lease, decision, parts)


async def commit_stopped_at(operation: int | None) -> tuple[MemoryDisk, int, bytes, Any]:
    """Commit, the machine stopping at that operation of it; returns disk, operations, the content before, the
    commit's body where it was stopped."""
    disk = MemoryDisk(ManualClock().now_ms, lambda n: n // 2)
    world, lease, body = await prepared(disk)
    log = world.store.logs.get(TP)
    assert log is not None
    before = content(log)
    begun = disk.operations
    if operation is not None:
        disk.stop_at = begun + operation
    try:
        await world.lease_service.commit(lease["lease_id"], body)
    except MachineStopped:
        return disk, disk.operations - begun, before, body | {"lease_id": lease["lease_id"]}
    operations = disk.operations - begun
    await world.http.aclose()
    return disk, operations, before, None


async def content_after_start(disk: MemoryDisk, choose: Choose | None, body: Any) -> tuple[bytes, int | None, str]:
    """Start again after a kill (or, with `choose`, a loss of power); returns the log, the cleaner's offset, and what
    became of the lease."""
    disk.restart(choose)
    world = LeaseWorld(disk, config=CONFIG)
    async with world:
        log = world.lead()
        assert not [e.name for e in disk.list(log.directory) if e.name.endswith((".cleaned", ".swap"))]
        for number, segment in enumerate(log.segments):
            index_builder.load(segment, log.config.index_interval_bytes)
            assert segment.end_offset() <= log.end_of(number)
        found = content(log), world.store.cleaner_offset(TP)
        log.set_high_watermark(log.log_end_offset)
        return *found, await fate_of(world, body)


async def fate_of(world: LeaseWorld, body: Any) -> str:
    """What the lease is now, held against what the job is told that asks for its commit once more."""
    if body is None:
        return ""
    path = f"/leases/{body['lease_id']}"
    status, shown = await world.call("GET", path)
    code, answer = await world.call("POST", f"{path}/commit", body)
    if status == 404:
        assert (code, answer["error"]) == (404, "unknown_lease")
        return "unknown"
    if shown["state"] == "committed":
        assert (code, answer) == (200, shown["result"])
    else:
        assert shown["state"] == "active"
        assert (code, answer.get("error")) in ((200, None), (422, "bad_part")), "its parts are there, or gone"
    return str(shown["state"])


@pytest.mark.parametrize("power_fails", [False, True], ids=["killed", "power"])
async def test_old_or_new_at_every_operation(power_fails: bool) -> None:
    disk, operations, old, _ = await commit_stopped_at(None)
    new, cleaned, _ = await content_after_start(disk, None, None)
    assert len(new) < len(old)
    assert cleaned is not None
    assert operations > 40
    seen = {old: 0, new: 0}
    fates: dict[tuple[bool, str], int] = {}
    for operation in range(1, operations + 1, 2 if power_fails else 1):
        disk, _, before, body = await commit_stopped_at(operation)
        assert body is not None
        assert before == old
        chance = random.Random(operation)
        found, offset, fate = await content_after_start(disk, chance.randrange if power_fails else None, body)
        assert found in seen, f"operation {operation}: neither the old log nor the new one"
        seen[found] += 1
        fates[found == new, fate] = fates.get((found == new, fate), 0) + 1
        # The checkpoint comes last: it never claims a swap that did not happen.
        assert offset is None or found == new
        assert power_fails or offset == (cleaned if found == new else None), "a start brings the commit to its end"
    assert all(seen.values())
    wanted = {(False, "active"), (True, "committed")}
    assert set(fates) == (wanted if not power_fails else wanted | {(False, "unknown"), (True, "unknown")})
