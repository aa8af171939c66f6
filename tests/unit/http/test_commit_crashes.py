"""The machine stops at any disk operation of a commit: after the next start the log is the old one or the new one."""

import random
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.log.memory_disk import Choose, MachineStopped, MemoryDisk
from logyard.broker.topic_config import TopicConfig
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


async def commit_stopped_at(operation: int | None) -> tuple[MemoryDisk, int, bytes, bool]:
    """Commit, the machine stopping at that operation of it; returns disk, operations, the content before, stopped."""
    disk = MemoryDisk(ManualClock().now_ms, lambda n: n // 2)
    world, lease, body = await prepared(disk)
    log = world.store.get(TP)
    assert log is not None
    before = content(log)
    begun = disk.operations
    if operation is not None:
        disk.stop_at = begun + operation
    try:
        await world.leasing.commit(lease["lease_id"], body)
    except MachineStopped:
        return disk, disk.operations - begun, before, True
    operations = disk.operations - begun
    await world.http.aclose()
    return disk, operations, before, False


async def content_after_start(disk: MemoryDisk, choose: Choose | None) -> tuple[bytes, int | None]:
    """Start again after a kill (or, with `choose`, a loss of power); returns the log and the cleaner's offset."""
    disk.restart(choose)
    world = LeaseWorld(disk, config=CONFIG)
    async with world:
        log = world.lead()
        assert not [e.name for e in disk.list(log.directory) if e.name.endswith((".cleaned", ".swap", ".leases"))]
        for number, segment in enumerate(log.segments):
            log.load_indexes(segment)
            assert segment.end_offset() <= log.end_of(number)
        return content(log), world.store.cleaner_offset(TP)


@pytest.mark.parametrize("power_fails", [False, True], ids=["killed", "power"])
async def test_old_or_new_at_every_operation(power_fails: bool) -> None:
    disk, operations, old, stopped = await commit_stopped_at(None)
    assert not stopped
    new, cleaned = await content_after_start(disk, None)
    assert len(new) < len(old)
    assert cleaned is not None
    assert operations > 40
    seen = {old: 0, new: 0}
    for operation in range(1, operations + 1):
        disk, _, before, stopped = await commit_stopped_at(operation)
        assert stopped
        assert before == old
        chance = random.Random(operation)
        found, offset = await content_after_start(disk, chance.randrange if power_fails else None)
        assert found in seen, f"operation {operation}: neither the old log nor the new one"
        seen[found] += 1
        # The checkpoint comes last: it never claims a swap that did not happen.
        assert offset is None or found == new
    assert all(seen.values())
